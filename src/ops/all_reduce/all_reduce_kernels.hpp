// Finds the kernel that serves an all-reduce.
#pragma once

#include "kernel/kernel.hpp"
#include "ops/all_reduce/all_reduce_plan.hpp"
#include "ops/all_reduce/all_reduce_work.hpp"
#include "tuning/tuning.hpp"

namespace weft::detail {

struct AllReduceFamily;  // ops/all_reduce/all_reduce_instances.hpp

struct AllReduceQuery {
  InstanceQuery instance;
  Algorithm algorithm;  // one that plan_all_reduce() has chosen

  using Work = AllReduceWork;
  constexpr bool operator==(const AllReduceQuery&) const = default;
  // One instance serves all calls without a specialized instance.
  constexpr AllReduceQuery key() const {
    AllReduceQuery key = *this;
    if (is_multimem(algorithm) || !has_specialized_instance(instance)) {
      key.instance.size = 0;
      key.instance.aligned16 = false;
    }
    return key;
  }
};
KernelFor<AllReduceWork> find_kernel(const AllReduceQuery& query);

}  // namespace weft::detail
