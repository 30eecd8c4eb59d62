// A kernel without its type: executors run it, fabrics pass it on, and recordings keep it. None of them names an
// operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <typeinfo>

#include "protocol/channel.hpp"
#include "weft/types.hpp"

namespace weft::detail {

class PeerWatch;

// One instance of an algorithm's template. It lives in its family's table (kernel/instances.hpp) as long as the
// program.
struct Kernel {
  // The whole call of a CPU rank, in the calling thread. False: it has failed, and the channel's record has the reason.
  bool (*on_cpu)(const Call& call, const void* work, const PeerWatch* watch);
  const void* on_gpu;  // CUDA's function of a Call and a work; null in a build without CUDA
  int most_threads;    // of a block, on either
  bool staged;         // its warps have stages (team/team.hpp)
  const std::type_info* work_type;
  const void* no_work;  // a work of that type for a call that ends at once
};

inline constexpr std::size_t kMostWorkBytes = 640;

// A kernel with its work.
struct BoundKernel {
  const Kernel* kernel = nullptr;
  alignas(16) std::byte work[kMostWorkBytes] = {};
};
// Null if it is of another type.
template <class Work>
Work* work_of(BoundKernel& bound) {
  return *bound.kernel->work_type == typeid(Work) ? reinterpret_cast<Work*>(bound.work) : nullptr;
}

// The result of a family's find_kernel(): only a work of this type can be bound to it.
template <class Work>
struct KernelFor {
  const Kernel* kernel;

  BoundKernel with(const Work& work) const {
    static_assert(std::is_trivially_copyable_v<Work> && sizeof(Work) <= kMostWorkBytes && alignof(Work) <= 16);
    BoundKernel bound;
    bound.kernel = kernel;
    std::memcpy(bound.work, &work, sizeof(work));
    return bound;
  }
};

struct KernelCall {
  Call call;
  BoundKernel bound;
  int blocks = 2;  // the control block included
  int threads = 1;
  Stream stream = nullptr;
  bool in_pairs = false;  // on GPUs blocks start in clusters of two; their number is even
};

// A family's kernels, in the order of its list.
template <class Family>
std::span<const Kernel> kernels_of();
// The kernels of every family.
std::span<const std::span<const Kernel>> all_kernels();

}  // namespace weft::detail
