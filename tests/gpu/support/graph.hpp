// A captured CUDA graph.
#pragma once

#include <cuda_runtime.h>

#include "executors/cuda_error.hpp"

namespace weft::test {

class Graph {
 public:
  // Captures what `body` enqueues on `stream`.
  template <class Body>
  Graph(cudaStream_t stream, Body&& body) {
    detail::check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    body();
    cudaGraph_t graph = nullptr;
    detail::check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    detail::check_cuda(cudaGraphInstantiate(&executable_, graph, 0), "cudaGraphInstantiate");
    detail::check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    detail::check_cuda(cudaGraphUpload(executable_, stream), "cudaGraphUpload");
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
