// The kernels that calls launch, as a captured graph has them.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "gpu/support/gpu_world.hpp"
#include "kernel/cuda_error.hpp"

namespace weft::test {

struct CapturedKernel {
  int blocks = 0, threads = 0;
  int cluster = 0;  // blocks of a cluster; 0 and 1: single blocks

  bool in_pairs() const { return cluster == 2; }
};

// In the order in which `body` launches them. They never run. Every rank of the world must ask at the same points.
template <class Body>
std::vector<CapturedKernel> captured_kernels(const GpuRank& gpu, Body&& body) {
  using detail::check_cuda;
  gpu.meet();
  check_cuda(cudaStreamBeginCapture(gpu.stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    body();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(gpu.stream(), &graph));  // or all later tests on this stream would fail
    throw;
  }
  check_cuda(cudaStreamEndCapture(gpu.stream(), &graph), "cudaStreamEndCapture");
  std::size_t count = 0;
  check_cuda(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  check_cuda(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  std::vector<CapturedKernel> kernels;
  for (cudaGraphNode_t const node : nodes) {
    cudaGraphNodeType type{};
    check_cuda(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams launch{};
    check_cuda(cudaGraphKernelNodeGetParams(node, &launch), "cudaGraphKernelNodeGetParams");
    cudaLaunchAttributeValue value{};
    check_cuda(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value),
               "cudaGraphKernelNodeGetAttribute");
    kernels.push_back({.blocks = static_cast<int>(launch.gridDim.x),
                       .threads = static_cast<int>(launch.blockDim.x),
                       .cluster = static_cast<int>(value.clusterDim.x)});
  }
  check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  gpu.meet();
  return kernels;
}

}  // namespace weft::test
