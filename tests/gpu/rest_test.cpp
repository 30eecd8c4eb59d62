// Functions that free memory wait for the GPU, but not for ever, and do not disturb captures.
#include <gtest/gtest.h>

#include <vector>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/kernels.hpp"
#include "kernel/cuda_error.hpp"
#include "support/ranks.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
using detail::check_cuda;

constexpr int kRanks = 2;

// A foreign kernel runs for longer than half of the deadline for meetings.
TEST(GpuRest, ReleaseEndsByTheDeadlineBesideAForeignKernel) {
  Config config = gpu_config();
  config.rendezvous_deadline = 6s;  // NCCL takes its time
  GpuWorld world = make_gpu_world(kRanks, config);
  const auto prepared = prepare_for(world, {{.count = 5000, .fill = Fill::random, .seed = 1}});
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const auto memory = SymmetricMemory::allocate(communicator, 4096);
    const auto call = [&] { run_on_gpu_rank(communicator, gpu, prepared.front(), rank); };
    const auto expect_late = [&](const std::function<void()>& give_back) {
      gpu.meet();
      for (int second = 0; second < 5; ++second) delay(1s, gpu.other_stream());
      const std::string error = error_of(give_back);
      expect_says(error, "has not come to rest within 3000 ms");
      check_cuda(cudaStreamSynchronize(gpu.other_stream()), "cudaStreamSynchronize");
      gpu.meet();
      call();
    };
    call();
    expect_late([&] { communicator.release(); });
    expect_late([&] { SymmetricMemory(memory).free(); });
    communicator.release();
    communicator.acquire();
    call();
  }));
}

// A capture's mode forbids calls of other threads. A wait for the whole GPU ends a capture in any mode. The global mode
// is not tested: NCCL registers windows by calls that it forbids to every thread.
TEST(GpuRest, CapturesElsewhereGoOn) {
  GpuWorld world = make_gpu_world(kRanks, gpu_config());
  std::int32_t* counter = nullptr;
  check_cuda(cudaMalloc(&counter, sizeof(*counter)), "cudaMalloc");
  check_cuda(cudaMemset(counter, 0, sizeof(*counter)), "cudaMemset");
  load_test_kernels();
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  int launches = 0;
  for (const auto mode : {cudaStreamCaptureModeRelaxed, cudaStreamCaptureModeThreadLocal}) {
    check_cuda(cudaStreamBeginCapture(stream, mode), "cudaStreamBeginCapture");
    increment(counter, 1, stream);
    const auto errors = run_ranks(kRanks, [&](int rank) {
      Communicator& communicator = world.communicators[index(rank)];
      SymmetricMemory::allocate(communicator, 4096).free();
      communicator.release();
      communicator.acquire();
    });
    expect_no_errors(errors);
    increment(counter, 1, stream);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << "mode " << mode;
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    check_cuda(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    check_cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    std::int32_t value = 0;
    check_cuda(cudaMemcpy(&value, counter, sizeof(value), cudaMemcpyDeviceToHost), "cudaMemcpy");
    EXPECT_EQ(value, 2 * ++launches);
  }
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  check_cuda(cudaFree(counter), "cudaFree");
}

}  // namespace
}  // namespace weft::test
