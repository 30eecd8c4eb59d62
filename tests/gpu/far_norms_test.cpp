// All-reduces with residual and norm on GPU ranks, for rows that are 4 GiB apart, and for more than 4 GiB of rows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "gpu/support/far_memory.hpp"
#include "gpu/support/gpu_norm.hpp"
#include "gpu/support/kernels.hpp"
#include "support/moe_cases.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

constexpr int kFarNormRanks = 2;

Bytes norms_downloaded(const void* from, std::size_t bytes, cudaStream_t stream) {
  Bytes got(bytes);
  check_cuda(cudaMemcpyAsync(got.data(), from, bytes, cudaMemcpyDeviceToHost, stream), "download");
  check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return got;
}

// Tensors of three rows in one piece of memory, interleaved. The rows are more than 4 GiB apart.
class FarRows {
 public:
  static constexpr std::size_t kRows = 3, kStride = (std::size_t{1} << 32) + (1u << 20), kRoom = 4096;

  explicit FarRows(std::size_t tensors) : memory_(far_memory((kRows - 1) * kStride + tensors * kRoom)) {}
  std::byte* tensor(std::size_t number) const { return memory_.get() + number * kRoom; }
  void put(std::size_t number, const std::byte* rows, std::size_t row_bytes, cudaStream_t stream) const {
    for (std::size_t row = 0; row < kRows; ++row) {
      check_cuda(cudaMemcpyAsync(tensor(number) + row * kStride, rows + row * row_bytes, row_bytes,
                                 cudaMemcpyDeviceToDevice, stream),
                 "cudaMemcpyAsync");
    }
  }
  void spoil(std::size_t number, cudaStream_t stream) const {
    for (std::size_t row = 0; row < kRows; ++row) {
      check_cuda(cudaMemsetAsync(tensor(number) + row * kStride, 0xa5, kRoom, stream), "cudaMemsetAsync");
    }
  }
  Bytes take(std::size_t number, std::size_t row_bytes, cudaStream_t stream) const {
    Bytes rows;
    for (std::size_t row = 0; row < kRows; ++row) {
      const Bytes one = norms_downloaded(tensor(number) + row * kStride, row_bytes, stream);
      rows.insert(rows.end(), one.begin(), one.end());
    }
    return rows;
  }

 private:
  FarMemory memory_;
};

// A call with rows side by side must give the same bits, in one kernel, one kernel per row, and in pieces of rows.
TEST(GpuFarNorms, RowsPastFourGigabytes) {
  constexpr std::size_t hidden = 264, row_bytes = 2 * hidden, bytes = FarRows::kRows * row_bytes;
  for (const std::size_t buffer : {bytes, row_bytes, std::size_t{256}}) {
    Config config = gpu_config();
    config.one_shot_bytes = config.two_shot_bytes = buffer;
    GpuWorld world = make_gpu_world(kFarNormRanks, config);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      const cudaStream_t stream = gpu.stream();
      const FarRows far(4);  // input, residual, output, fp8
      gpu.meet();            // no kernel waits for a rank that still allocates memory
      for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
        gpu.reset();
        const auto filled = [&](std::uint32_t seed) {
          const Case content{.count = FarRows::kRows * hidden, .fill = Fill::random, .seed = seed};
          const Bytes from = input_of(content, seed == 0 ? rank : 0);
          std::byte* const host = gpu.host_memory(bytes);
          std::byte* const to = gpu.device_memory(bytes);
          std::memcpy(host, from.data(), bytes);
          check_cuda(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream), "upload");
          return to;
        };
        std::byte *const input = filled(0), *const residual = filled(1), *const gamma = filled(2),
                         *const output = gpu.device_memory(bytes), *const fp8 = gpu.device_memory(bytes);
        std::byte* const scales[] = {gpu.device_memory(64), gpu.device_memory(64)};
        // The output of an earlier call must not pass for this one's.
        for (const std::size_t number : {2, 3}) far.spoil(number, stream);
        check_cuda(cudaMemsetAsync(scales[1], 0xa5, 64, stream), "cudaMemsetAsync");
        far.put(0, input, row_bytes, stream);
        far.put(1, residual, row_bytes, stream);
        AllReduceRmsNormArgs args{.input = input,
                                  .residual = residual,
                                  .residual_output = residual,
                                  .gamma = gamma,
                                  .output = output,
                                  .fp8 = {.rows = fp8, .scales = scales[0]},
                                  .tokens = FarRows::kRows,
                                  .hidden = hidden,
                                  .algorithm = algorithm,
                                  .stream = stream,
                                  .launch = world.launch()};
        all_reduce_rms_norm(communicator, args);
        args.input = far.tensor(0);
        args.residual = args.residual_output = far.tensor(1);
        args.output = far.tensor(2);
        args.fp8 = {.rows = far.tensor(3), .stride = FarRows::kStride, .scales = scales[1]};
        args.input_stride = args.residual_stride = args.residual_output_stride = args.output_stride =
            FarRows::kStride / 2;
        all_reduce_rms_norm(communicator, args);
        gpu.synchronize();
        communicator.check();
        const std::string where = fmt::format("{} in buffers of {} bytes", name(algorithm), buffer);
        expect_bytes(far.take(1, row_bytes, stream), norms_downloaded(residual, bytes, stream), "residual, " + where);
        expect_bytes(far.take(2, row_bytes, stream), norms_downloaded(output, bytes, stream), "rows, " + where);
        expect_bytes(far.take(3, hidden, stream), norms_downloaded(fp8, FarRows::kRows * hidden, stream),
                     "fp8, " + where);
        constexpr std::size_t scale_bytes = FarRows::kRows * sizeof(float);
        expect_bytes(norms_downloaded(scales[1], scale_bytes, stream), norms_downloaded(scales[0], scale_bytes, stream),
                     "scales, " + where);
        gpu.meet();
      }
    }));
  }
}

// All sums are checked, and the norms of the first rows, the last rows, and those around 2^32 bytes. A call of only
// these rows must give the same norms.
TEST(GpuLargeNorms, MoreThanTwoToThe32Bytes) {
  constexpr std::size_t hidden = 8192, tokens = (std::size_t{1} << 32) / (2 * hidden) + 1001, some = 64;
  GpuWorld& world = lasting_gpu_world(kFarNormRanks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const cudaStream_t stream = gpu.stream();
    constexpr std::size_t bytes = tokens * hidden * 2, some_bytes = some * hidden * 2;
    const FarMemory input = far_memory(bytes), sums = far_memory(bytes), output = far_memory(bytes);
    gpu.reset();
    std::byte* const gamma = gpu.device_memory(2 * hidden);
    std::byte* const near_sums = gpu.device_memory(some_bytes);
    std::byte* const near_output = gpu.device_memory(some_bytes);
    auto* const wrong = reinterpret_cast<unsigned long long*>(gpu.device_memory(2 * sizeof(unsigned long long)));
    check_cuda(cudaMemsetAsync(wrong, 0, 2 * sizeof(*wrong), stream), "cudaMemsetAsync");
    fill_pattern(reinterpret_cast<std::uint16_t*>(gamma), hidden, 5, stream);
    fill_pattern(reinterpret_cast<std::uint16_t*>(input.get()), tokens * hidden, rank, stream);
    gpu.meet();
    AllReduceRmsNormArgs args{.input = input.get(),
                              .residual_output = sums.get(),
                              .gamma = gamma,
                              .output = output.get(),
                              .tokens = tokens,
                              .hidden = hidden,
                              .stream = stream,
                              .launch = world.launch()};
    all_reduce_rms_norm(communicator, args);
    count_wrong_sums(reinterpret_cast<const std::uint16_t*>(sums.get()), tokens * hidden, kFarNormRanks, wrong, stream);
    args.residual_output = near_sums;
    args.output = near_output;
    args.tokens = some;
    for (const std::size_t first : {std::size_t{0}, (std::size_t{1} << 32) / (2 * hidden) - some / 2, tokens - some}) {
      args.input = input.get() + first * hidden * 2;
      all_reduce_rms_norm(communicator, args);
      count_differences(output.get() + first * hidden * 2, near_output, some_bytes, wrong + 1, stream);
    }
    gpu.synchronize();
    communicator.check();
    const Bytes counted = norms_downloaded(wrong, 2 * sizeof(*wrong), stream);
    expect_bytes(counted, Bytes(counted.size()), "numbers of wrong sums and of wrong bytes of norms");
    gpu.meet();
  }));
}

}  // namespace
}  // namespace weft::test
