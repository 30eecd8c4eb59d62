// A family's kernels, made from its list of instances: one translation unit of the host's compiler for each family.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <span>
#include <stdexcept>

#include "kernel/blocks.hpp"
#include "kernel/instances.hpp"
#include "kernel/kernel.hpp"
#include "kernel/most_threads.hpp"
#include "team/cpu_thread.hpp"

namespace weft::detail {

template <class A>
bool run_kernel(const Call& call, const void* bytes, const PeerWatch* watch) {
  const auto& work = *static_cast<const typename A::Work*>(bytes);
  if constexpr (kIsOneRanks<A>) {
    CpuThread thread(0, 1, watch);
    return A::run(thread, call, work);
  } else {
    // Peers must see this rank's writes of earlier calls (slots put back to rest) before its sends of this one.
    std::atomic_thread_fence(std::memory_order_acq_rel);
    return run_blocks<A>(std::array{CpuThread{0, kThreadBlocks, watch}, CpuThread{1, kThreadBlocks, watch}}, call,
                         work);
  }
}

template <class Work>
const void* no_work() {
  static const Work work{};
  return &work;
}

// `on_gpu`: CUDA's functions in the order of the list, or nothing.
template <class... Rows>
std::array<Kernel, sizeof...(Rows)> make_kernels(Instances<Rows...>, std::span<const void* const> on_gpu) {
  std::size_t row = 0;
  const auto make = [&]<class A>() {
    const void* const function = on_gpu.empty() ? nullptr : on_gpu[row];
    ++row;
    return Kernel{.on_cpu = run_kernel<A>,
                  .on_gpu = function,
                  .most_threads = kMaxThreads<A>,
                  .staged = kIsStaged<A>,
                  .work_type = &typeid(typename A::Work),
                  .no_work = no_work<typename A::Work>()};
  };
  return {make.template operator()<typename Rows::A>()...};
}

// CUDA's functions in the order of the family's list (kernel/gpu_functions.cuh).
template <class Family>
std::span<const void* const> gpu_functions();

template <class Family>
std::span<const Kernel> kernels_of() {
#if WEFT_WITH_CUDA
  static const auto kernels = make_kernels(typename Family::List{}, gpu_functions<Family>());
#else
  static const auto kernels = make_kernels(typename Family::List{}, {});
#endif
  return kernels;
}

// The kernel that serves the query.
template <class Family, class Query>
KernelFor<typename Query::Work> kernel_for(const Query& query) {
  const std::size_t row = row_of(typename Family::List{}, query);
  if (row == Family::List::kCount) throw std::logic_error("no instance of this family serves the call");
  return {&kernels_of<Family>()[row]};
}

}  // namespace weft::detail
