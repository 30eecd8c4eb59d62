// The kernel that takes rows out of a tensor of this rank: no part of a protocol, and no block waits for another.
#include "executors/cuda_launch.cuh"

namespace weft::detail {
namespace {

template <bool whole>
__global__ void __launch_bounds__(kMoveThreads)
    take_rows(const __grid_constant__ Call call, const __grid_constant__ TakeWork work) {
  CudaBlock block;
  ptx::wait_for_predecessor();
  ptx::launch_successor();
  TakeRows<whole>::run(block, call, work);
}

}  // namespace

void launch_operation(const PlannedCall& planned, const TakeOperation& operation) {
  launch_kernel(operation.whole ? take_rows<true> : take_rows<false>, planned, operation.work);
}

void load_takes(Loader& loader) {
  loader.load_kernel<TakeWork>(take_rows<true>, kMoveThreads);
  loader.load_kernel<TakeWork>(take_rows<false>, kMoveThreads);
}

}  // namespace weft::detail
