// Dispatch and combine on GPU ranks with rows that lie past 4 GiB, in windows and in the output.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "executors/cuda_error.hpp"
#include "gpu/support/gpu_moe.hpp"
#include "weft/moe.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

constexpr std::uint32_t kFarRanks = 2, kFarTokens = 2, kFarHidden = 1u << 20, kFarLocal = 4;
constexpr std::size_t kFarRow = std::size_t{kFarHidden} * 2;

struct Freed {
  void operator()(std::byte* memory) const { static_cast<void>(cudaFree(memory)); }
};
using FarMemory = std::unique_ptr<std::byte, Freed>;
FarMemory far_memory(std::size_t bytes) {
  std::byte* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), "cudaMalloc");
  return FarMemory(memory);
}

// bf16 between 1 and 2, of which no two rows have the same.
std::vector<std::uint16_t> far_row(std::uint32_t call, std::uint32_t rank, std::uint32_t token) {
  std::vector<std::uint16_t> row(kFarHidden);
  for (std::uint32_t i = 0; i < kFarHidden; ++i) {
    row[i] = static_cast<std::uint16_t>(0x3f80u | ((i / 97 + call * 31 + rank * 11 + token * 5 + i) & 0x7fu));
  }
  return row;
}
// Each token has another one of four experts, the first and the last of either rank.
std::int32_t far_expert(std::uint32_t call, std::uint32_t rank, std::uint32_t token) {
  constexpr std::int32_t experts[] = {kFarLocal - 1, 2 * kFarLocal - 1, 0, kFarLocal};
  return experts[(rank * kFarTokens + token + call) % 4];
}

void expect_row(const std::byte* place, const std::vector<std::uint16_t>& wanted, const char* what) {
  std::vector<std::uint16_t> got(kFarHidden);
  check_cuda(cudaMemcpy(got.data(), place, kFarRow, cudaMemcpyDeviceToHost), "download");
  if (got != wanted) throw std::runtime_error(what);
}

// Rows of the second sender in the second bank lie 6 GiB behind the first one's, and so does the last expert's row.
TEST(GpuMoeFar, RowsOfWindowsAndOutputs) {
  const ExchangeArgs args{.tokens = 1024,
                          .hidden = kFarHidden,
                          .experts = kFarRanks * kFarLocal,
                          .top_k = 1,
                          .capacity = 1024,
                          .weighted = false};
  const std::size_t expert_bytes = args.capacity * kFarRow;
  ASSERT_GT((kFarLocal - 1) * expert_bytes, std::size_t{1} << 32);
  GpuWorld& world = lasting_gpu_world(kFarRanks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const FarMemory output = far_memory(kFarLocal * expert_bytes), input = far_memory(kFarTokens * kFarRow),
                    result = far_memory(kFarTokens * kFarRow);
    auto* const ids = reinterpret_cast<std::int32_t*>(gpu.device_memory(kFarTokens * sizeof(std::int32_t)));
    auto* const counts = reinterpret_cast<std::int32_t*>(gpu.device_memory(kFarLocal * sizeof(std::int32_t)));
    Exchange exchange = Exchange::create(communicator, args);
    for (std::uint32_t call = 0; call < 4; ++call) {
      for (std::uint32_t token = 0; token < kFarTokens; ++token) {
        const std::int32_t expert = far_expert(call, rank, token);
        const auto upload = [&](void* to, const void* from, std::size_t bytes) {
          check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, gpu.stream()), "upload");
        };
        upload(ids + token, &expert, sizeof(expert));
        upload(input.get() + token * kFarRow, far_row(call, rank, token).data(), kFarRow);
      }
      const Ticket ticket = exchange.dispatch({.input = input.get(),
                                               .topk_ids = ids,
                                               .tokens = kFarTokens,
                                               .output = output.get(),
                                               .counts = counts,
                                               .stream = gpu.stream(),
                                               .launch = world.launch()});
      // Experts that give back what they got.
      exchange.combine({.ticket = ticket,
                        .input = output.get(),
                        .output = result.get(),
                        .stream = gpu.stream(),
                        .launch = world.launch()});
      gpu.synchronize();
      communicator.check();
      for (std::uint32_t i = 0; i < kFarRanks * kFarTokens; ++i) {
        const std::uint32_t source = i / kFarTokens, token = i % kFarTokens;
        const auto expert = static_cast<std::uint32_t>(far_expert(call, source, token));
        if (expert / kFarLocal != rank) continue;
        expect_row(output.get() + expert % kFarLocal * expert_bytes, far_row(call, source, token), "a row is wrong");
      }
      for (std::uint32_t token = 0; token < kFarTokens; ++token) {
        expect_row(result.get() + token * kFarRow, far_row(call, rank, token), "a combined row is wrong");
      }
    }
    free_together(gpu, exchange);
  }));
}

}  // namespace
}  // namespace weft::test
