// Launches kernels: one instance per algorithm, type and batch.
#include <algorithm>
#include <variant>

#include "executors/cuda_launch.cuh"

namespace weft::detail {

void launch_on_gpu(const PlannedCall& planned) {
  std::visit([&](const auto& operation) { launch_operation(planned, operation); }, planned.operation);
}

int load_kernels() {
  int device = 0, processors = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  Loader loader;
  load_all_reduces(loader);
  load_moves(loader);
  load_moe(loader);
  load_norms(loader);
  load_norm_rows(loader);
  load_takes(loader);
  load_rejections(loader);
  return std::min(loader.fewest() * processors, static_cast<int>(kMaxBlocks));
}

}  // namespace weft::detail
