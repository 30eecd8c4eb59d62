// Compares the hand-written twin (tests/ptx/twin.cu) with the library's kernel on four GPUs: their bits, and their
// times.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "comm/state.hpp"
#include "gpu/support/gpu_world.hpp"
#include "gpu/support/graph.hpp"
#include "ptx/twin.cu"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

constexpr int kRanks = 4, kOperations = 20, kSamples = 15;

void launch_twin(const Communicator& communicator, const AllReduceArgs& args) {
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(args.launch.blocks));
  config.blockDim = dim3(static_cast<unsigned>(args.launch.threads));
  config.stream = args.stream;
  config.attrs = &dependent;
  config.numAttrs = 1;
  const detail::AllReduceWork work{.input = args.input, .output = args.output, .count = args.count};
  check_cuda(cudaLaunchKernelEx(&config, detail::twin::hand_written, communicator.world().state().call(4711), work),
             "launch of the twin");
}

// The time of one operation in a graph of many, in the second of two replays. All ranks begin together.
template <class Enqueue>
double median_us(const GpuRank& gpu, Enqueue enqueue) {
  cudaStream_t stream = gpu.stream();
  const Graph graph(gpu, [&] {
    for (int i = 0; i < kOperations; ++i) enqueue();
  });
  cudaEvent_t begin = nullptr, end = nullptr;
  check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  std::array<double, kSamples> samples{};
  for (double& sample : samples) {
    gpu.meet();
    graph.launch(stream);
    check_cuda(cudaEventRecord(begin, stream), "cudaEventRecord");
    graph.launch(stream);
    check_cuda(cudaEventRecord(end, stream), "cudaEventRecord");
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    sample = ms * 1000.0 / kOperations;
  }
  check_cuda(cudaEventDestroy(begin), "cudaEventDestroy");
  check_cuda(cudaEventDestroy(end), "cudaEventDestroy");
  std::ranges::nth_element(samples, samples.begin() + kSamples / 2);
  return samples[kSamples / 2];
}

TEST(GpuTwin, SameBitsAndItsTime) {
  if (gpu_count() < kRanks) GTEST_SKIP() << "needs " << kRanks << " GPUs, a rank on each; here are " << gpu_count();
  GpuWorld& world = lasting_gpu_world(kRanks);
  for (const std::size_t bytes : {std::size_t{8} << 10, std::size_t{16} << 10, std::size_t{64} << 10}) {
    const std::size_t packs = bytes / sizeof(detail::Pack);
    const Prepared prepared = prepare(
        {.count = bytes / 2, .type = DataType::bf16, .algorithm = Algorithm::one_shot, .fill = Fill::random}, kRanks);
    std::array<double, kRanks> library{}, twin{};
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      GpuTensors tensors(gpu, prepared, rank);
      AllReduceArgs args = tensors.arguments(gpu.stream());
      args.launch = {.blocks = static_cast<int>(packs / 64) + 1, .threads = 64};
      const auto index = static_cast<std::size_t>(rank);
      library[index] = median_us(gpu, [&] { all_reduce(communicator, args); });
      check_cuda(cudaMemsetAsync(args.output, 0xee, bytes, gpu.stream()), "cudaMemsetAsync");
      twin[index] = median_us(gpu, [&] { launch_twin(communicator, args); });
      tensors.download(gpu.stream());
      gpu.synchronize();
      tensors.check();
      communicator.check();
    }));
    const double of_library = std::ranges::max(library), of_twin = std::ranges::max(twin);
    std::printf("%zu KB: hand-written %.2f us, template %.2f us\n", bytes >> 10, of_twin, of_library);
  }
}

}  // namespace
}  // namespace weft::test
