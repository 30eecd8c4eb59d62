// NCCL's functions, found at run time. Their types come from the headers of the build. These types do not change from
// 2.28.9 to 2.30, and structures that have grown (ncclConfig_t) begin with their size.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

#include "fabric/nccl_library.hpp"

// Of nccl_device.h, which only those include that call these functions.
struct ncclTeam;
struct ncclDevComm;
struct ncclDevCommRequirements;

namespace weft::detail {

struct NcclTable {
  // As 2.29.7 and 2.30.7 declare it: the address of a window on a rank of the LSA team.
  using GetLsaDevicePointer = ncclResult_t(ncclWindow_t window, std::size_t offset, int lsa_rank, void** pointer);
  using TeamLsa = ncclTeam(ncclComm_t comm);
  using DevCommCreate = ncclResult_t(ncclComm_t comm, const ncclDevCommRequirements* wanted, ncclDevComm* made);
  using DevCommDestroy = ncclResult_t(ncclComm_t comm, const ncclDevComm* made);

  NcclLibrary library;

  decltype(&ncclGetErrorString) get_error_string = library.need("ncclGetErrorString");
  decltype(&ncclGetLastError) get_last_error = library.need("ncclGetLastError");
  decltype(&ncclGetUniqueId) get_unique_id = library.need("ncclGetUniqueId");

  decltype(&ncclCommInitRankConfig) comm_init_rank_config = library.need("ncclCommInitRankConfig");
  decltype(&ncclCommSplit) comm_split = library.need("ncclCommSplit");
  decltype(&ncclCommRevoke) comm_revoke = library.need("ncclCommRevoke");
  decltype(&ncclCommDestroy) comm_destroy = library.need("ncclCommDestroy");
  decltype(&ncclCommGetAsyncError) comm_get_async_error = library.need("ncclCommGetAsyncError");
  decltype(&ncclCommUserRank) comm_user_rank = library.need("ncclCommUserRank");
  decltype(&ncclCommCount) comm_count = library.need("ncclCommCount");
  decltype(&ncclCommCuDevice) comm_cu_device = library.need("ncclCommCuDevice");

  decltype(&ncclAllReduce) all_reduce = library.need("ncclAllReduce");
  decltype(&ncclReduceScatter) reduce_scatter = library.need("ncclReduceScatter");
  decltype(&ncclReduce) reduce = library.need("ncclReduce");
  decltype(&ncclAllGather) all_gather = library.need("ncclAllGather");
  decltype(&ncclAlltoAll) all_to_all = library.need("ncclAlltoAll");
  decltype(&ncclBroadcast) broadcast = library.need("ncclBroadcast");
  decltype(&ncclSend) send = library.need("ncclSend");
  decltype(&ncclRecv) recv = library.need("ncclRecv");
  decltype(&ncclGroupStart) group_start = library.need("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = library.need("ncclGroupEnd");

  decltype(&ncclMemAlloc) mem_alloc = library.need("ncclMemAlloc");
  decltype(&ncclMemFree) mem_free = library.need("ncclMemFree");
  decltype(&ncclCommWindowRegister) window_register = library.need("ncclCommWindowRegister");
  decltype(&ncclCommWindowDeregister) window_deregister = library.need("ncclCommWindowDeregister");
  TeamLsa* team_lsa = library.need("ncclTeamLsa");
  GetLsaDevicePointer* get_lsa_device_pointer = library.find("ncclGetLsaDevicePointer");  // null before 2.29

  // Only for the version of the build, whose layouts the arguments have.
  DevCommCreate* dev_comm_create = library.need("ncclDevCommCreate");
  DevCommDestroy* dev_comm_destroy = library.need("ncclDevCommDestroy");

  bool is_of_build() const { return library.version == NCCL_VERSION_CODE; }
};

// This process's table. NCCL is loaded with the first call. Errc::unsupported: there is no NCCL, or it cannot be used.
const NcclTable& nccl();

// See use_nccl().
void name_nccl(const std::string& file);

// Empty, or why nccl() throws.
std::string why_no_nccl();

// Facts for people. Loads NCCL as nccl() does, and does not throw if that fails.
struct NcclReport {
  std::string version{}, path{}, origin{};  // empty: none was taken
  std::string problem{};                    // why none was
  std::vector<std::string> notes{};  // what was not taken and why, what was found twice, what does not work with it
};
NcclReport nccl_report();

// Empty, or why this NCCL binds no window of ours to a multicast object.
std::string why_no_multicast(const NcclTable& table);

// Empty, or why a communicator's maker cannot be told: the process has several copies, and nobody chose one.
std::string why_maker_unknown();

// The window's addresses on the ranks of the LSA team, by their rank in it, as NCCL tells the host.
std::vector<void*> ask_for_lsa_pointers(const NcclTable& table, ncclWindow_t window, int ranks);

}  // namespace weft::detail
