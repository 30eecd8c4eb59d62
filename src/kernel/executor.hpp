// How a kernel is run.
#pragma once

#include "kernel/kernel.hpp"

namespace weft::detail {

// Runs in the calling thread; complete on return. False: the call has failed, and the channel's record says why.
bool run_on_cpu(const KernelCall& call, const PeerWatch* watch);

// Enqueues one kernel; makes no synchronising call. Throws Errc::system with CUDA's reason.
void launch_on_gpu(const KernelCall& call);
// Blocks of the hungriest kernel, at the most threads it takes, that fit on the current device beside each other. Loads
// every kernel, so that no later launch has to (a lazy load synchronises).
int load_kernels();

}  // namespace weft::detail
