// Runs a kernel.
#pragma once

#include "kernel/kernel.hpp"

namespace weft::detail {

// Runs in the calling thread; complete on return. False: the call has failed, and the channel's record has the reason.
bool run_on_cpu(const KernelCall& call, const PeerWatch* watch);

// Enqueues one kernel; makes no synchronising call. Throws Errc::system with CUDA's reason.
void launch_on_gpu(const KernelCall& call);
// The number of blocks of the most demanding kernel, with its most threads, that fit on the current device at once.
// Loads every kernel, so that no later launch has to (a lazy load synchronises).
int load_kernels();
// The same in clusters of two. Behind load_kernels().
int most_paired_blocks();

}  // namespace weft::detail
