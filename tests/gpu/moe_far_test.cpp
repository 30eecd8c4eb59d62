// Dispatch and combine on GPU ranks with rows past 4 GiB in windows and outputs, or with such scales.
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "gpu/support/far_memory.hpp"
#include "gpu/support/gpu_moe.hpp"
#include "weft/moe.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

constexpr std::uint32_t kFarRanks = 2, kFarTokens = 2, kFarHidden = 1u << 20, kFarLocal = 4;

// bf16 between 1 and 2; no two rows are equal.
Bytes far_bytes(std::size_t bytes, std::uint32_t call, std::uint32_t rank, std::uint32_t token) {
  Bytes row(bytes);
  for (std::uint32_t i = 0; i < bytes / 2; ++i) {
    put(row, DataType::bf16, i, 0x3f80u | ((i / 97 + call * 31 + rank * 11 + token * 5 + i) & 0x7fu));
  }
  return row;
}

// The tokens use four experts in turn. Masked rows go to the first and the last expert of each rank, which have blocks
// of their own. With contiguous experts, every expert of one rank gets a row.
std::int32_t far_expert(const MoeExchangeArgs& args, std::uint32_t call, std::uint32_t rank, std::uint32_t token) {
  const std::uint32_t number = (rank * kFarTokens + token + call) % 4;
  constexpr std::int32_t experts[] = {kFarLocal - 1, 2 * kFarLocal - 1, 0, kFarLocal};
  const bool contiguous = args.layout == RowLayout::expert_contiguous;
  return contiguous ? static_cast<std::int32_t>(call % kFarRanks * kFarLocal + number) : experts[number];
}

void expect_bytes_at(const std::byte* place, const Bytes& wanted, const char* what) {
  Bytes got(wanted.size());
  check_cuda(cudaMemcpy(got.data(), place, got.size(), cudaMemcpyDeviceToHost), "download");
  if (got != wanted) throw std::runtime_error(what);
}

// Makes calls whose rows lie far, or whose scales do if `args` has some.
void run_far(const MoeExchangeArgs& args) {
  const bool contiguous = args.layout == RowLayout::expert_contiguous;
  const std::size_t row = oracle::MoeRules(args).row_bytes, scales = args.scale_bytes,
                    result_row = std::size_t{kFarHidden} * 2;
  const std::size_t step = contiguous ? args.alignment : args.capacity;  // rows from one expert to the next
  const std::size_t rows = contiguous ? args.capacity : kFarLocal * args.capacity;
  ASSERT_GE((kFarLocal - 1) * step * (scales != 0 ? scales : row), std::size_t{1} << 32);
  GpuWorld& world = lasting_gpu_world(kFarRanks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    gpu.reset();
    const FarMemory output = far_memory(rows * row), input = far_memory(kFarTokens * row),
                    output_scales = far_memory(rows * scales + 1), input_scales = far_memory(kFarTokens * scales + 1),
                    result = far_memory(kFarTokens * result_row);
    auto* const ids = reinterpret_cast<std::int32_t*>(gpu.device_memory(kFarTokens * sizeof(std::int32_t)));
    auto* const counts = reinterpret_cast<std::int32_t*>(gpu.device_memory(kFarLocal * sizeof(std::int32_t)));
    auto* const offsets = reinterpret_cast<std::int32_t*>(gpu.device_memory((kFarLocal + 1) * sizeof(std::int32_t)));
    MoeExchange exchange = MoeExchange::create(communicator, args);
    for (std::uint32_t call = 0; call < 4; ++call) {
      for (std::uint32_t token = 0; token < kFarTokens; ++token) {
        const std::int32_t expert = far_expert(args, call, rank, token);
        const auto upload = [&](void* to, const void* from, std::size_t bytes) {
          check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, gpu.stream()), "upload");
        };
        upload(ids + token, &expert, sizeof(expert));
        upload(input.get() + token * row, far_bytes(row, call, rank, token).data(), row);
        upload(input_scales.get() + token * scales, far_bytes(scales, call, rank, token + 1).data(), scales);
      }
      const DispatchHandle handle = exchange.dispatch({.input = input.get(),
                                                       .scales = input_scales.get(),
                                                       .topk_ids = ids,
                                                       .tokens = kFarTokens,
                                                       .output = output.get(),
                                                       .output_scales = output_scales.get(),
                                                       .counts = counts,
                                                       .offsets = contiguous ? offsets : nullptr,
                                                       .stream = gpu.stream(),
                                                       .discard = true,
                                                       .launch = world.launch()});
      // The experts return their input, if results have the same width.
      if (scales == 0) {
        exchange.combine({.handle = handle,
                          .input = output.get(),
                          .output = result.get(),
                          .stream = gpu.stream(),
                          .launch = world.launch()});
      }
      gpu.synchronize();
      communicator.check();
      for (std::uint32_t i = 0; i < kFarRanks * kFarTokens; ++i) {
        const std::uint32_t source = i / kFarTokens, token = i % kFarTokens;
        const auto expert = static_cast<std::uint32_t>(far_expert(args, call, source, token));
        if (expert / kFarLocal != rank) continue;
        const std::size_t at = expert % kFarLocal * step;
        expect_bytes_at(output.get() + at * row, far_bytes(row, call, source, token), "a row is wrong");
        expect_bytes_at(output_scales.get() + at * scales, far_bytes(scales, call, source, token + 1),
                        "scales are wrong");
      }
      for (std::uint32_t token = 0; token < kFarTokens && scales == 0; ++token) {
        expect_bytes_at(result.get() + token * result_row, far_bytes(row, call, rank, token),
                        "a combined row is wrong");
      }
    }
    free_together(gpu, exchange);
  }));
}

// In the second bank, rows of the second sender lie 6 GiB behind the first sender's, and so does the last expert's row.
constexpr std::uint32_t kMostTokens = 1024;

TEST(GpuMoeFar, RowsOfWindowsAndOutputs) {
  run_far({.tokens = kMostTokens,
           .hidden = kFarHidden,
           .experts = kFarRanks * kFarLocal,
           .top_k = 1,
           .capacity = 1024,
           .weighted = false});
}

// There is room for the last expert's row, but not for its padding.
TEST(GpuMoeFar, ContiguousRows) {
  run_far({.tokens = kMostTokens,
           .hidden = kFarHidden,
           .experts = kFarRanks * kFarLocal,
           .top_k = 1,
           .layout = RowLayout::expert_contiguous,
           .alignment = 1024,
           .capacity = (kFarLocal - 1) * 1024 + 1,
           .overflow = Overflow::drop,
           .weighted = false});
}

// The most bytes of scales, four times the row's.
TEST(GpuMoeFar, ScalesThatComeWithRows) {
  run_far({.tokens = 256,
           .hidden = kFarHidden,
           .experts = kFarRanks * kFarLocal,
           .top_k = 1,
           .type = RowType::fp8,
           .scale_bytes = 4 * kFarHidden,
           .capacity = 384,
           .weighted = false});
}

}  // namespace
}  // namespace weft::test
