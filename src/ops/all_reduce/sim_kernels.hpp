// The production templates, instantiated for the simulator's team.
#pragma once

#include "ops/all_reduce/all_reduce.hpp"
#include "ops/all_reduce/all_reduce_plan.hpp"
#include "sim/team.hpp"

namespace weft::sim {

// One thread's part of one launch; all of the launch if a rank is one thread.
using AllReduceKernel = void (*)(Machine& machine, Place place, const detail::Call& call,
                                 const detail::AllReduceWork& work);

struct KernelQuery {
  Algorithm algorithm;
  detail::InstanceQuery instance;
  int atomic_bytes;
  bool one_thread;
};
AllReduceKernel find_kernel(const KernelQuery& query);

// One translation unit for each (sim_kernels_4.cpp, …).
AllReduceKernel find_kernel_4(const KernelQuery& query);
AllReduceKernel find_kernel_8(const KernelQuery& query);
AllReduceKernel find_kernel_16(const KernelQuery& query);

}  // namespace weft::sim
