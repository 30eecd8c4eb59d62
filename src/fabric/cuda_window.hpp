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
  // By world rank; null if this GPU cannot reach that rank's memory.
  const std::vector<std::byte*>& peers() const { return peers_; }
  // This rank's memory as it was allocated, also if peers() has none.
  std::byte* memory() const { return static_cast<std::byte*>(memory_); }
  // The windows of all ranks through the switch; null if multicast was not asked for.
  std::byte* multicast() const { return multicast_; }

 protected:
  std::vector<std::byte*> peers_;
  void* memory_ = nullptr;
  std::byte* multicast_ = nullptr;
};

// NCCL allocates and registers. Peers are the members of NCCL's LSA team: all ranks that peer access joins, by any
// link, except those that `links` keeps apart.
struct NcclWindowArgs {
  ncclComm_t comm;
  int rank, size;
  std::size_t bytes;
  cudaStream_t stream;
  std::chrono::nanoseconds deadline;
  const LinkDomains& links;
  bool multicast;  // bind to a multicast object; Errc::unsupported if peers are out of reach
};
std::unique_ptr<CudaWindow> make_nccl_window(Bootstrap& bootstrap, const NcclWindowArgs& args);

// cudaMalloc and peer access, for ranks that are threads of one process and share GPUs: NCCL does not allow that.
std::unique_ptr<CudaWindow> make_process_window(Bootstrap& bootstrap, std::size_t bytes, int device);

// The driver's answer for a GPU. It changes nothing.
bool supports_multicast(int device);

// Stores `packs` packs from `from` to `to` as operations do; enqueued on `stream`.
void push_packs(void* to, const void* from, std::size_t packs, cudaStream_t stream);
// Loads the kernel of poison_windows for the current device. Call it while nothing waits: a first launch may have to
// wait for kernels that only poison would end.
void load_poison();
// Writes `word` to the first word of every window that is not null, by a kernel on `stream`. Waits until all have it,
// for a second at most. `windows` is device memory, `told` a word of host memory that the device reaches.
void poison_windows(std::byte* const* windows, int count, std::uint32_t word, std::uint32_t* told, cudaStream_t stream);

}  // namespace weft::detail
