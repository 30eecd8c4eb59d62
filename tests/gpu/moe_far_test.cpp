// Dispatch and combine on GPU ranks with rows that lie past 4 GiB, in windows and in the output.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "executors/cuda_error.hpp"
#include "gpu/support/gpu_world.hpp"
#include "weft/moe.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

constexpr std::uint32_t kRanks = 2, kTokens = 2, kHidden = 1u << 20, kLocal = 4;
constexpr std::size_t kRowBytes = std::size_t{kHidden} * 2;

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
  std::vector<std::uint16_t> row(kHidden);
  for (std::uint32_t i = 0; i < kHidden; ++i) {
    row[i] = static_cast<std::uint16_t>(0x3f80u | ((i / 97 + call * 31 + rank * 11 + token * 5 + i) & 0x7fu));
  }
  return row;
}
// Each token has another one of four experts, the first and the last of either rank.
std::int32_t far_expert(std::uint32_t call, std::uint32_t rank, std::uint32_t token) {
  constexpr std::int32_t experts[] = {kLocal - 1, 2 * kLocal - 1, 0, kLocal};
  return experts[(rank * kTokens + token + call) % 4];
}

void expect_row(const std::byte* place, const std::vector<std::uint16_t>& wanted, const char* what) {
  std::vector<std::uint16_t> got(kHidden);
  check_cuda(cudaMemcpy(got.data(), place, kRowBytes, cudaMemcpyDeviceToHost), "download");
  if (got != wanted) throw std::runtime_error(what);
}

// Rows of the second sender in the second bank lie 6 GiB behind the first one's, and so does the last expert's row.
TEST(GpuMoeFar, RowsOfWindowsAndOutputs) {
  const ExchangeArgs args{
      .tokens = 1024, .hidden = kHidden, .experts = kRanks * kLocal, .top_k = 1, .capacity = 1024, .weighted = false};
  const std::size_t expert_bytes = args.capacity * kRowBytes;
  ASSERT_GT((kLocal - 1) * expert_bytes, std::size_t{1} << 32);
  GpuWorld world = make_gpu_world(kRanks, gpu_config());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const FarMemory output = far_memory(kLocal * expert_bytes), input = far_memory(kTokens * kRowBytes),
                    result = far_memory(kTokens * kRowBytes);
    auto* const ids = reinterpret_cast<std::int32_t*>(gpu.device_memory(kTokens * sizeof(std::int32_t)));
    auto* const counts = reinterpret_cast<std::int32_t*>(gpu.device_memory(kLocal * sizeof(std::int32_t)));
    const Exchange exchange = Exchange::create(communicator, args);
    for (std::uint32_t call = 0; call < 4; ++call) {
      for (std::uint32_t token = 0; token < kTokens; ++token) {
        const std::int32_t expert = far_expert(call, rank, token);
        check_cuda(cudaMemcpy(ids + token, &expert, sizeof(expert), cudaMemcpyHostToDevice), "upload");
        check_cuda(cudaMemcpy(input.get() + token * kRowBytes, far_row(call, rank, token).data(), kRowBytes,
                              cudaMemcpyHostToDevice),
                   "upload");
      }
      const Ticket ticket = exchange.dispatch({.input = input.get(),
                                               .topk_ids = ids,
                                               .tokens = kTokens,
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
      for (std::uint32_t i = 0; i < kRanks * kTokens; ++i) {
        const std::uint32_t source = i / kTokens, token = i % kTokens;
        const auto expert = static_cast<std::uint32_t>(far_expert(call, source, token));
        if (expert / kLocal != rank) continue;
        expect_row(output.get() + expert % kLocal * expert_bytes, far_row(call, source, token), "a row is wrong");
      }
      for (std::uint32_t token = 0; token < kTokens; ++token) {
        expect_row(result.get() + token * kRowBytes, far_row(call, rank, token), "a combined row is wrong");
      }
    }
  }));
}

}  // namespace
}  // namespace weft::test
