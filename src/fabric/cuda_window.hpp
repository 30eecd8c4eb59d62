// Symmetric memory of GPUs: two ways to get it, one set of plain pointers.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "fabric/links.hpp"
#include "rendezvous/bootstrap.hpp"

namespace weft::detail {

class CudaWindow {
 public:
  virtual ~CudaWindow() = default;
  // By world rank; null where this GPU cannot reach that rank's memory.
  const std::vector<std::byte*>& peers() const { return peers_; }
  // This rank's, as it was allocated: there even where peers() has none.
  std::byte* memory() const { return static_cast<std::byte*>(memory_); }
  // The windows of all ranks through the switch; null where that was not asked for.
  std::byte* multicast() const { return multicast_; }

 protected:
  std::vector<std::byte*> peers_;
  void* memory_ = nullptr;
  std::byte* multicast_ = nullptr;
};

// NCCL allocates and registers. Peers are those of NCCL's LSA team, which are all that peer access joins, by whatever
// link, but for those that `links` keeps apart.
struct NcclWindowArgs {
  ncclComm_t comm;
  int rank, size;
  std::size_t bytes;
  cudaStream_t stream;
  std::chrono::nanoseconds deadline;
  const LinkDomains& links;
  bool multicast;  // bind it to a multicast object; throws Errc::unsupported where peers are out of reach
};
std::unique_ptr<CudaWindow> make_nccl_window(Bootstrap& bootstrap, const NcclWindowArgs& args);

// cudaMalloc and peer access, for ranks that are threads of one process and share GPUs, which NCCL does not allow.
std::unique_ptr<CudaWindow> make_process_window(Bootstrap& bootstrap, std::size_t bytes, int device);

// What the driver says of a GPU. Asks for nothing else.
bool supports_multicast(int device);

// Stores `packs` packs from `from` to `to` as operations do; enqueued on `stream`.
void push_packs(void* to, const void* from, std::size_t packs, cudaStream_t stream);
// Loads what poison_windows launches, for the current device: to be done while nothing waits, as a first launch may
// have to wait for kernels that only poison would end.
void load_poison();
// Writes `word` to the first word of every window that is not null; enqueued on `stream`. `windows` is device memory.
void poison_windows(std::byte* const* windows, int count, std::uint32_t word, cudaStream_t stream);

}  // namespace weft::detail
