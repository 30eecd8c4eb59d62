// Finds the instance of an all-reduce that a launch runs.
#pragma once

#include "ops/all_reduce/all_reduce_instances.hpp"
#include "ops/all_reduce/sim_kernels.hpp"
#include "sim/run.hpp"

namespace weft::sim {

// The instance that production takes for the call. Two kinds are left out because they take long to compile: instances
// for more ranks than set-ups have, and CPU ranks whose packs do not travel in units of 8 bytes.
template <int unit>
AllReduceKernel find_kernel_of(const KernelQuery& query) {
  AllReduceKernel kernel = nullptr;
  const auto take = [&]<class A>() {
    if constexpr (A::Instance::kSize <= 4) {
      if (!query.one_thread) kernel = &run_thread<A, unit>;
      if constexpr (unit == 8) kernel = query.one_thread ? &run_rank<A, unit> : kernel;
    }
  };
  with_instance(detail::AllReduceFamily::List{},
                detail::AllReduceQuery{.instance = query.instance, .algorithm = query.algorithm}, take);
  return kernel;
}

}  // namespace weft::sim
