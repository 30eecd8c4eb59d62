// A library that passes for NCCL of version WEFT_STUB_VERSION: Weft finds it, loads it and asks it for addresses,
// without a GPU. The headers of the build check the declarations, and check_headers.py asks those of other versions. No
// communicator is ever made.
#include <cuda_runtime_api.h>
#include <nccl_device.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fabric/nccl_table.hpp"

// Types that Weft's table does not take from the headers.
using weft::detail::NcclTable;
static_assert(std::is_same_v<NcclTable::TeamLsa*, decltype(static_cast<ncclTeam (*)(ncclComm_t)>(&ncclTeamLsa))>);
static_assert(std::is_same_v<NcclTable::DevCommCreate, decltype(ncclDevCommCreate)>);
static_assert(std::is_same_v<NcclTable::DevCommDestroy, decltype(ncclDevCommDestroy)>);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
static_assert(std::is_same_v<NcclTable::GetLsaDevicePointer, decltype(ncclGetLsaDevicePointer)>);
#endif
#ifdef NCCL_EXPECTED
static_assert(NCCL_VERSION_CODE == NCCL_EXPECTED, "these are the headers of another version");
#endif

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = WEFT_STUB_VERSION;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) {
  return "the stub says no";
}
const char* ncclGetLastError(ncclComm_t) {
  return "its last word";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId*) {
  return ncclSystemError;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*) {
  return ncclSystemError;
}
ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*) {
  return ncclSystemError;
}
ncclResult_t ncclCommRevoke(ncclComm_t, int) {
  return ncclSystemError;
}
ncclResult_t ncclCommDestroy(ncclComm_t) {
  return ncclSystemError;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t*) {
  return ncclSystemError;
}
ncclResult_t ncclCommUserRank(const ncclComm_t, int*) {
  return ncclSystemError;
}
ncclResult_t ncclCommCount(const ncclComm_t, int*) {
  return ncclSystemError;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t, int*) {
  return ncclSystemError;
}

ncclResult_t ncclAllReduce(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  return ncclSystemError;
}
ncclResult_t ncclReduceScatter(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  return ncclSystemError;
}
ncclResult_t ncclReduce(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t) {
  return ncclSystemError;
}
ncclResult_t ncclAllGather(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return ncclSystemError;
}
ncclResult_t ncclAlltoAll(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return ncclSystemError;
}
ncclResult_t ncclBroadcast(const void*, void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSystemError;
}
ncclResult_t ncclSend(const void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSystemError;
}
ncclResult_t ncclRecv(void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSystemError;
}
ncclResult_t ncclGroupStart() {
  return ncclSystemError;
}
ncclResult_t ncclGroupEnd() {
  return ncclSystemError;
}

ncclResult_t ncclMemAlloc(void**, std::size_t) {
  return ncclSystemError;
}
ncclResult_t ncclMemFree(void*) {
  return ncclSystemError;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, std::size_t, ncclWindow_t*, int) {
  return ncclSystemError;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  return ncclSystemError;
}
ncclResult_t ncclDevCommCreate(ncclComm_t, const ncclDevCommRequirements_t*, ncclDevComm_t*) {
  return ncclSystemError;
}
ncclResult_t ncclDevCommDestroy(ncclComm_t, const ncclDevComm_t*) {
  return ncclSystemError;
}

ncclTeam_t ncclTeamLsa(ncclComm_t) {
  return {4, 1, 2};
}

#if WEFT_STUB_VERSION >= 22900
// Memory of rank r lies r + 1 MiB behind the window's handle. The team has four ranks.
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, std::size_t offset, int rank, void** pointer) {
  if (window == nullptr || pointer == nullptr || rank < 0 || rank >= 4) return ncclInvalidArgument;
  *pointer = reinterpret_cast<std::byte*>(window) + offset + (static_cast<std::size_t>(rank + 1) << 20);
  return ncclSuccess;
}
#endif
}
