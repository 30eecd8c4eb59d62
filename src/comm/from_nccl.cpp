// A communicator beside an engine's own NCCL communicator.
#include "comm/state.hpp"
#include "weft/communicator.hpp"

#if WEFT_WITH_CUDA

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <cstring>

#include "executors/cuda_error.hpp"
#include "fabric/nccl_api.hpp"
#include "rendezvous/unique_id.hpp"

namespace weft {
namespace {

using detail::check_cuda;
using detail::settle_nccl;

// `mine` of every rank, in rank order, by NCCL itself: before there is any other way to meet.
template <class T>
std::vector<T> gather_by_nccl(ncclComm* nccl, int size, int rank, const T& mine, std::chrono::nanoseconds deadline) {
  T* memory = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<T> all(static_cast<std::size_t>(size));
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  cudaError_t result = cudaMalloc(&memory, sizeof(T) * all.size());
  if (result == cudaSuccess) {
    result = cudaMemcpyAsync(memory + rank, &mine, sizeof(T), cudaMemcpyHostToDevice, stream);
    settle_nccl(ncclAllGather(memory + rank, memory, sizeof(T), ncclChar, nccl, stream), nccl, "ncclAllGather",
                deadline);
    if (result == cudaSuccess) {
      result = cudaMemcpyAsync(all.data(), memory, sizeof(T) * all.size(), cudaMemcpyDeviceToHost, stream);
    }
    if (result == cudaSuccess) result = cudaStreamSynchronize(stream);
  }
  static_cast<void>(cudaFree(memory));
  static_cast<void>(cudaStreamDestroy(stream));
  check_cuda(result, "exchanging the meeting point over NCCL");
  return all;
}

}  // namespace

Communicator Communicator::from_nccl(ncclComm* nccl, const Config& config) {
  if (nccl == nullptr) throw Error(Errc::invalid_argument, "nccl: null");
  if (config.device == Device::cpu)
    throw Error(Errc::invalid_argument, "Config::device: cpu, with an NCCL communicator");
  if (const std::string reason = detail::why_no_cuda(); !reason.empty()) throw Error(Errc::unsupported, reason);
  int rank = 0, size = 0, device = 0;
  detail::check_nccl(ncclCommUserRank(nccl, &rank), "ncclCommUserRank", nccl);
  detail::check_nccl(ncclCommCount(nccl, &size), "ncclCommCount", nccl);
  detail::check_nccl(ncclCommCuDevice(nccl, &device), "ncclCommCuDevice", nccl);
  const detail::DeviceScope scope(device);

  struct HostName {
    char text[256];
  };
  HostName mine{};
  static_cast<void>(gethostname(mine.text, sizeof(mine.text) - 1));
  bool one_host = true;
  for (const HostName& other : gather_by_nccl(nccl, size, rank, mine, config.rendezvous_deadline)) {
    one_host &= std::strcmp(other.text, mine.text) == 0;
  }
  UniqueId id{};
  if (rank == 0) id = UniqueId::create(one_host ? "127.0.0.1" : mine.text);
  id = gather_by_nccl(nccl, size, rank, id, config.rendezvous_deadline).front();

  Config chosen = config;
  chosen.device = Device::cuda;
  chosen.cuda_device = device;
  return Communicator(detail::CommunicatorState::create(
      detail::make_id_bootstrap(id, rank, size, config.rendezvous_deadline), chosen, nccl));
}

}  // namespace weft

#else

namespace weft {

Communicator Communicator::from_nccl(ncclComm*, const Config&) {
  throw Error(Errc::unsupported, detail::why_no_cuda());
}

}  // namespace weft

#endif
