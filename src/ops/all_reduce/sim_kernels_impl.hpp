// Finds the instance of an all-reduce that a launch runs.
#pragma once

#include "ops/all_reduce/all_reduce_instances.hpp"
#include "ops/all_reduce/sim_kernels.hpp"
#include "sim/run.hpp"

namespace weft::sim {

// The instances that set-ups run as threads of GPUs, and as CPU ranks (`one_thread`), whose packs travel in units of 8
// bytes. No set-up has more than four ranks.
constexpr bool is_simulated(const detail::AllReduceQuery& query, int unit, bool one_thread) {
  const detail::InstanceQuery& instance = query.instance;
  if (instance.size > 4) return false;
  if (instance.ops == detail::Ops::any) return unit == 16;
  switch (instance.type) {
    case DataType::bf16:
      return unit != 4;
    case DataType::f16:
      return unit == 8;
    case DataType::f32:
      return unit != 8 || one_thread;
    default:
      return !one_thread;
  }
}

// The instance that production takes for the call. Null if set-ups do not run it.
template <int unit>
AllReduceKernel find_kernel_of(const KernelQuery& query) {
  AllReduceKernel kernel = nullptr;
  const detail::AllReduceQuery wanted{.instance = query.instance, .algorithm = query.algorithm};
  if (!query.one_thread) {
    with_instance(
        rows_of<[](const auto& row) { return is_simulated(row, unit, false); }>(detail::AllReduceFamily::List{}),
        wanted, [&]<class A>() { kernel = &run_thread<A, unit>; });
  } else if constexpr (unit == 8) {
    with_instance(
        rows_of<[](const auto& row) { return is_simulated(row, unit, true); }>(detail::AllReduceFamily::List{}), wanted,
        [&]<class A>() { kernel = &run_rank<A, unit>; });
  }
  return kernel;
}

}  // namespace weft::sim
