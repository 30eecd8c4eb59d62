// Launches kernels: one instance per algorithm, type and batch.
#include <algorithm>

#include "core/dispatch.hpp"
#include "executors/collective.cuh"
#include "executors/cuda_error.hpp"
#include "executors/executor.hpp"

namespace weft::detail {
namespace {

// The state of a group that has ended, on the device.
class OwnedState {
 public:
  OwnedState() {
    check_cuda(cudaMalloc(&state_, sizeof(LocalState)), "cudaMalloc");
    check_cuda(cudaMemset(state_, 1, sizeof(LocalState)), "cudaMemset");
  }
  ~OwnedState() { static_cast<void>(cudaFree(state_)); }  // waits for the kernels
  OwnedState(const OwnedState&) = delete;
  OwnedState& operator=(const OwnedState&) = delete;
  LocalState* get() const { return state_; }

 private:
  LocalState* state_ = nullptr;
};

}  // namespace

void launch_on_gpu(const PlannedCall& planned) {
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(planned.blocks));
  config.blockDim = dim3(static_cast<unsigned>(planned.threads));
  config.stream = planned.stream;
  config.attrs = &dependent;
  config.numAttrs = 1;
  with_instance(planned.operation, [&]<class A>(const typename A::Work& work) {
    check_cuda(cudaLaunchKernelEx(&config, collective<A>, planned.call, work), "launch of a collective");
  });
}

int load_kernels() {
  int device = 0, processors = 0, fewest = 1 << 20;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  // A call of a group that has ended: the kernel looks at `dead` and returns.
  const OwnedState state;
  Call ended{};
  ended.local = state.get();
  std::size_t reserved = 0;
  const auto load = [&]<class A>() {
    int per_processor = 0;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, collective<A>, kMaxThreads<A>, 0),
               "loading a kernel");
    fewest = std::min(fewest, per_processor * processors);
    // The first launch of a kernel that needs more local memory than any before waits for all that runs on the device.
    cudaFuncAttributes attributes{};
    check_cuda(cudaFuncGetAttributes(&attributes, collective<A>), "cudaFuncGetAttributes");
    if (attributes.localSizeBytes <= reserved) return;
    reserved = attributes.localSizeBytes;
    collective<A><<<1, 32>>>(ended, typename A::Work{});
    check_cuda(cudaGetLastError(), "first launch of a kernel");
  };
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32, DataType::i32}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot, Algorithm::bulk}) {
        for (std::uint32_t size = 2; size <= 8; ++size) {
          with_all_reduce({.type = type, .op = op, .size = size, .whole = true}, algorithm, load);
        }
        with_all_reduce({.type = type, .op = op, .size = 2, .whole = false}, algorithm, load);
      }
    }
  }
  for (const RowType type : {RowType::bf16, RowType::f16}) {
    for (const RowCast cast : {RowCast::none, RowCast::fp8}) with_moe_dispatch(type, cast, load);
  }
  for (const DataType type : {DataType::bf16, DataType::f16}) with_moe_combine(type, load);
  return std::min(fewest, static_cast<int>(kMaxBlocks));
}

}  // namespace weft::detail
