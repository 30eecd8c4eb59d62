#include <cstring>

#include "cuda_check.hpp"
#include "nccl_peer.hpp"

namespace weft::cli {
namespace {

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) throw Error(Errc::system, std::string(what) + ": " + ncclGetErrorString(result));
}

}  // namespace

NcclPeer::NcclPeer(Ranks::Seat& seat, std::size_t max_bytes) {
  ncclUniqueId id = {};
  if (seat.rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  seat.broadcast(std::as_writable_bytes(std::span(&id, 1)));
  check(ncclCommInitRank(&comm_, seat.communicator().size(), id, seat.rank()), "ncclCommInitRank");
  open_windows(seat, max_bytes);
}

void NcclPeer::open_windows(Ranks::Seat& seat, std::size_t max_bytes) {
  std::string problem;
  for (int b = 0; b < 2; ++b) {
    // Every rank makes every call, so that none waits for one that gave up.
    if (ncclMemAlloc(&buffers_[b], std::max<std::size_t>(max_bytes, 1)) != ncclSuccess) {
      problem = "ncclMemAlloc failed";
      buffers_[b] = nullptr;
    }
    bool all_have_memory = true;
    for (const auto& one : seat.gather({buffers_[b] != nullptr ? 1.0 : 0.0})) all_have_memory &= one.front() != 0;
    if (!all_have_memory) break;
    const auto result = ncclCommWindowRegister(comm_, buffers_[b], std::max<std::size_t>(max_bytes, 1), &windows_[b],
                                               NCCL_WIN_COLL_SYMMETRIC);
    // Without cuMem (NCCL_CUMEM_ENABLE=0) registration succeeds and gives no window.
    if (result != ncclSuccess || windows_[b] == nullptr) problem = "ncclCommWindowRegister gave no window";
  }
  double failures = 0;
  for (const auto& one : seat.gather({problem.empty() ? 0.0 : 1.0})) failures += one.front();
  if (failures > 0) symmetric_problem_ = problem.empty() ? "no symmetric window on another rank" : problem;
}

NcclPeer::~NcclPeer() {
  for (int b = 0; b < 2; ++b) {
    if (windows_[b] != nullptr) static_cast<void>(ncclCommWindowDeregister(comm_, windows_[b]));
    if (buffers_[b] != nullptr) static_cast<void>(ncclMemFree(buffers_[b]));
  }
  if (comm_ != nullptr) static_cast<void>(ncclCommDestroy(comm_));
}

void NcclPeer::all_reduce(const Point& point, const void* input, void* output, Stream stream) {
  constexpr ncclDataType_t types[] = {ncclBfloat16, ncclFloat16, ncclFloat32, ncclInt32};
  const auto op = point.op == ReduceOp::sum ? ncclSum : ncclMax;
  check(ncclAllReduce(input, output, point.count, types[static_cast<int>(point.type)], op, comm_, stream),
        "ncclAllReduce");
}

}  // namespace weft::cli
