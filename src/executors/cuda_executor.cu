// Launches kernels: one instance per algorithm, type and batch.
#include <algorithm>

#include "core/dispatch.hpp"
#include "executors/collective.cuh"
#include "executors/cuda_error.hpp"
#include "executors/executor.hpp"

namespace weft::detail {

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
  const auto load = [&]<class A>() {
    int per_processor = 0;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, collective<A>, kMaxThreads<A>, 0),
               "loading a kernel of all_reduce");
    fewest = std::min(fewest, per_processor * processors);
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
  return std::min(fewest, static_cast<int>(kMaxBlocks));
}

}  // namespace weft::detail
