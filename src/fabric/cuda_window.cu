#include "fabric/cuda_window.hpp"

#include <cuda.h>
#include <fmt/format.h>
#include <nccl_device.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <type_traits>
#include <vector>

#include "fabric/nccl_api.hpp"
#include "kernel/cuda_error.hpp"
#include "protocol/channel.hpp"
#include "team/ptx.cuh"

namespace weft::detail {
namespace {

__global__ void read_lsa_pointers(ncclWindow_t window, int count, void** pointers) {
  for (int i = 0; i < count; ++i) pointers[i] = ncclGetLsaPointer(window, 0, i);
}

__global__ void read_multicast_pointer(ncclWindow_t window, const __grid_constant__ ncclDevComm comm, void** pointer) {
  *pointer = ncclGetLsaMultimemPointer(window, 0, comm);
}

__global__ void push_kernel(Pack* to, const Pack* from, std::size_t packs) {
  for (std::size_t i = threadIdx.x; i < packs; i += blockDim.x) ptx::store_relaxed_sys(to + i, from[i]);
}

__global__ void poison_kernel(std::byte* const* windows, int count, std::uint32_t word, std::uint32_t* told) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    if (windows[i] == nullptr) continue;
    ptx::store_relaxed_sys(reinterpret_cast<std::uint32_t*>(windows[i] + kPoisonOffset), word);
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) ptx::store_release_sys(told, 1u);
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 7)
static_assert(std::is_same_v<NcclTable::GetLsaDevicePointer, decltype(ncclGetLsaDevicePointer)>);
#endif

std::vector<void*> read_lsa_pointers_on_gpu(ncclWindow_t window, int ranks, cudaStream_t stream) {
  void** pointers = nullptr;
  check_cuda(cudaMallocHost(&pointers, static_cast<std::size_t>(ranks) * sizeof(void*)), "cudaMallocHost");
  read_lsa_pointers<<<1, 1, 0, stream>>>(window, ranks, pointers);
  const cudaError_t launched = cudaGetLastError();
  const cudaError_t finished = cudaStreamSynchronize(stream);
  const std::vector<void*> copied(pointers, pointers + ranks);
  static_cast<void>(cudaFreeHost(pointers));
  check_cuda(launched, "reading NCCL's peer pointers");
  check_cuda(finished, "reading NCCL's peer pointers");
  return copied;
}

class NcclWindow final : public CudaWindow {
 public:
  NcclWindow(Bootstrap& bootstrap, const NcclWindowArgs& args) : comm_(args.comm) {
    try {
      // Ranks agree before NCCL registers, because registering waits for every rank, even for one that had no memory
      // left.
      bootstrap.agree_on("allocate the window", [&] {
        check_nccl(nccl().mem_alloc(&memory_, args.bytes), "ncclMemAlloc of the window", comm_);
      });
      bootstrap.agree_on("register the window", [&] {
        settle_nccl(nccl().window_register(comm_, memory_, args.bytes, &window_, NCCL_WIN_COLL_SYMMETRIC), comm_,
                    "ncclCommWindowRegister", args.deadline);
        find_peers(args);
        if (args.multicast) bind_multicast(args);
      });
    } catch (...) {
      free();
      throw;
    }
  }
  ~NcclWindow() override { free(); }
  NcclWindow(const NcclWindow&) = delete;
  NcclWindow& operator=(const NcclWindow&) = delete;

 private:
  void find_peers(const NcclWindowArgs& args) {
    peers_.assign(static_cast<std::size_t>(args.size), nullptr);
    // Without peer access (NCCL_P2P_DISABLE=1) or CUDA's virtual memory management (NCCL_CUMEM_ENABLE=0), NCCL gives no
    // window, or a handle on the host, and reports success. Then everything goes through NCCL.
    cudaPointerAttributes handle{};
    if (window_ == nullptr || cudaPointerGetAttributes(&handle, window_) != cudaSuccess ||
        handle.type != cudaMemoryTypeDevice) {
      static_cast<void>(cudaGetLastError());
      return;
    }
    const ncclTeam_t lsa = nccl().team_lsa(comm_);
    const std::vector<void*> pointers = nccl().get_lsa_device_pointer != nullptr
                                            ? ask_for_lsa_pointers(nccl(), window_, lsa.nRanks)
                                            : read_lsa_pointers_on_gpu(window_, lsa.nRanks, args.stream);
    for (int i = 0; i < lsa.nRanks; ++i) {
      const int rank = args.rank + (i - lsa.rank) * lsa.stride;
      if (args.links.may_reach(args.rank, rank))
        peers_[static_cast<std::size_t>(rank)] = static_cast<std::byte*>(pointers[static_cast<std::size_t>(i)]);
    }
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      if (peers_[rank] == nullptr) continue;
      cudaPointerAttributes attributes{};
      check_cuda(cudaPointerGetAttributes(&attributes, peers_[rank]), "cudaPointerGetAttributes of a peer's window");
      if (attributes.type == cudaMemoryTypeDevice) continue;
      throw Error(Errc::unsupported, fmt::format("NCCL's pointer to the window of rank {} is not device memory", rank));
    }
  }

  // NCCL makes the multicast object and shares it between processes. It binds every window of the communicator to it,
  // also windows that are registered later.
  void bind_multicast(const NcclWindowArgs& args) {
    const auto reached = args.size - std::count(peers_.begin(), peers_.end(), nullptr);
    if (reached != args.size) {
      throw Error(Errc::unsupported, fmt::format("Config::multicast: only {} of {} ranks share an NVLink domain with "
                                                 "rank {}, or NCCL finds no symmetric memory here",
                                                 reached, args.size, args.rank));
    }
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER  // of 2.29 and newer
    ncclDevCommRequirements wanted = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#else
    ncclDevCommRequirements wanted{};
#endif
    wanted.lsaMultimem = true;
    try {
      settle_nccl(nccl().dev_comm_create(comm_, &wanted, &device_comm_), comm_, "ncclDevCommCreate", args.deadline);
    } catch (const Error& error) {
      throw Error(
          Errc::unsupported,
          fmt::format("Config::multicast: NCCL makes no multicast object here, which NCCL_NVLS_ENABLE=0 forbids, "
                      "as machines may: {}",
                      error.what()));
    }
    bound_ = true;
    void** pointer = nullptr;
    check_cuda(cudaMallocHost(&pointer, sizeof(void*)), "cudaMallocHost");
    read_multicast_pointer<<<1, 1, 0, args.stream>>>(window_, device_comm_, pointer);
    const cudaError_t launched = cudaGetLastError();
    const cudaError_t finished = cudaStreamSynchronize(args.stream);
    multicast_ = static_cast<std::byte*>(*pointer);
    static_cast<void>(cudaFreeHost(pointer));
    check_cuda(launched, "reading NCCL's multicast pointer");
    check_cuda(finished, "reading NCCL's multicast pointer");
  }

  void free() {
    if (bound_) static_cast<void>(nccl().dev_comm_destroy(comm_, &device_comm_));
    if (window_ != nullptr) static_cast<void>(nccl().window_deregister(comm_, window_));
    if (memory_ != nullptr) static_cast<void>(nccl().mem_free(memory_));
  }

  ncclComm_t comm_;
  ncclWindow_t window_ = nullptr;
  ncclDevComm device_comm_{};  // only for its multicast object
  bool bound_ = false;
};

class ProcessWindow final : public CudaWindow {
 public:
  ProcessWindow(Bootstrap& bootstrap, std::size_t bytes, int device) {
    try {
      bootstrap.agree_on("allocate the window",
                         [&] { check_cuda(cudaMalloc(&memory_, bytes), "cudaMalloc of the window"); });
      find_peers(bootstrap, device);
    } catch (...) {
      static_cast<void>(cudaFree(memory_));
      throw;
    }
  }
  ~ProcessWindow() override { static_cast<void>(cudaFree(memory_)); }
  ProcessWindow(const ProcessWindow&) = delete;
  ProcessWindow& operator=(const ProcessWindow&) = delete;

 private:
  void find_peers(Bootstrap& bootstrap, int device) {
    struct Place {
      void* memory;
      int device;
    };
    const auto places = bootstrap.all_gather_value("exchange windows", Place{memory_, device});
    bootstrap.agree_on("enable peer access", [&] {
      for (const Place& place : places) {
        peers_.push_back(static_cast<std::byte*>(place.memory));
        if (place.device == device) continue;
        const cudaError_t result = cudaDeviceEnablePeerAccess(place.device, 0);
        if (result == cudaErrorPeerAccessAlreadyEnabled) {
          static_cast<void>(cudaGetLastError());
          continue;
        }
        check_cuda(result, fmt::format("cudaDeviceEnablePeerAccess({})", place.device));
      }
    });
  }
};

}  // namespace

std::unique_ptr<CudaWindow> make_nccl_window(Bootstrap& bootstrap, const NcclWindowArgs& args) {
  return std::make_unique<NcclWindow>(bootstrap, args);
}

std::unique_ptr<CudaWindow> make_process_window(Bootstrap& bootstrap, std::size_t bytes, int device) {
  return std::make_unique<ProcessWindow>(bootstrap, bytes, device);
}

bool supports_multicast(int device) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t asked =
      cudaGetDriverEntryPointByVersion("cuDeviceGetAttribute", &entry, 12010, cudaEnableDefault, &found);
  if (asked != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  const auto get = reinterpret_cast<CUresult (*)(int*, CUdevice_attribute, CUdevice)>(entry);
  int supported = 0;
  return get(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device) == CUDA_SUCCESS && supported != 0;
}

void push_packs(void* to, const void* from, std::size_t packs, cudaStream_t stream) {
  push_kernel<<<1, 256, 0, stream>>>(static_cast<Pack*>(to), static_cast<const Pack*>(from), packs);
  check_cuda(cudaGetLastError(), "launch of push_kernel");
}

void load_poison() {
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, poison_kernel), "cudaFuncGetAttributes of poison_kernel");
}

void poison_windows(std::byte* const* windows, int count, std::uint32_t word, std::uint32_t* told,
                    cudaStream_t stream) {
  // Kernels of ranks that share the GPU may keep this one from running until they end.
  constexpr std::chrono::seconds patience{1};
  const std::atomic_ref done(*told);
  done.store(0, std::memory_order_relaxed);
  poison_kernel<<<1, 96, 0, stream>>>(windows, count, word, told);
  check_cuda(cudaGetLastError(), "launch of poison_kernel");
  // CUDA is not asked: a thread may capture a graph.
  const auto began = std::chrono::steady_clock::now();
  while (done.load(std::memory_order_acquire) == 0 && std::chrono::steady_clock::now() - began < patience) {
    std::this_thread::sleep_for(std::chrono::microseconds(10));
  }
}

}  // namespace weft::detail
