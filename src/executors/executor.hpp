// What the executors run: one piece of one operation.
#pragma once

#include <cstdint>

#include "core/channel.hpp"
#include "core/operation.hpp"
#include "weft/types.hpp"

namespace weft::detail {

class Liveness;

struct PlannedCall {
  Call call;
  Operation operation;
  int blocks = 2;  // the control block included
  int threads = 1;
  Stream stream = nullptr;
};

// Runs in the calling thread; complete on return. False: the call has failed, and the channel's record says why.
bool run_on_cpu(const PlannedCall& planned, Liveness* liveness);

// Enqueues one kernel; makes no synchronising call. Throws Errc::system with CUDA's reason.
void launch_on_gpu(const PlannedCall& planned);
// Blocks of the hungriest kernel, at the most threads it takes, that fit on the current device beside each other. Loads
// every kernel, so that no later launch has to (a lazy load synchronises).
int load_kernels();

}  // namespace weft::detail
