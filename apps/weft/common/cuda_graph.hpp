// A CUDA graph of the work that a function enqueues.
#pragma once

#include "common/cuda_check.hpp"

namespace weft::cli {

class Graph {
 public:
  // Captures the work that `enqueue` puts into `stream`.
  template <class Enqueue>
  Graph(cudaStream_t stream, const Enqueue& enqueue) {
    cudaGraph_t graph = nullptr;
    // Other threads allocate meanwhile, so the capture is restricted to its own thread.
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    try {
      enqueue();
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream, &graph));
      if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t result = cudaGraphInstantiate(&executable_, graph, 0);
    static_cast<void>(cudaGraphDestroy(graph));
    check(result, "cudaGraphInstantiate");
    check(cudaGraphUpload(executable_, stream), "cudaGraphUpload");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  ~Graph() { static_cast<void>(cudaGraphExecDestroy(executable_)); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay(cudaStream_t stream) const { check(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace weft::cli
