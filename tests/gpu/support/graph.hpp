// A captured CUDA graph.
#pragma once

#include <cuda_runtime.h>

#include "gpu/support/gpu_world.hpp"
#include "kernel/cuda_error.hpp"

namespace weft::test {

class Graph {
 public:
  // Captures the work that `body` enqueues on the rank's stream. Every rank of the world must make its graphs at the
  // same points. If ranks share a GPU, making a graph may wait for another rank's kernels. So no rank may have a call
  // under way before all have made their graphs.
  template <class Body>
  Graph(const GpuRank& gpu, Body&& body) {
    gpu.meet();
    detail::check_cuda(cudaStreamBeginCapture(gpu.stream(), cudaStreamCaptureModeThreadLocal),
                       "cudaStreamBeginCapture");
    body();
    cudaGraph_t graph = nullptr;
    detail::check_cuda(cudaStreamEndCapture(gpu.stream(), &graph), "cudaStreamEndCapture");
    detail::check_cuda(cudaGraphInstantiate(&executable_, graph, 0), "cudaGraphInstantiate");
    detail::check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    detail::check_cuda(cudaGraphUpload(executable_, gpu.stream()), "cudaGraphUpload");
    gpu.meet();
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { static_cast<void>(cudaGraphExecDestroy(executable_)); }
  void launch(cudaStream_t stream) const {
    detail::check_cuda(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace weft::test
