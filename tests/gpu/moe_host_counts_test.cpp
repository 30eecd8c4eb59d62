// Counts of dispatches on GPU ranks that the host reads while the kernel runs (DispatchArgs::host_counts).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/graph.hpp"
#include "support/host_counts.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

class GpuMoeHostCounts : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoeHostCounts, testing::Values(1, 2, 4, 8));

std::uint64_t* zeroed_words(GpuRank& gpu, std::size_t size) {
  auto* const words = reinterpret_cast<std::uint64_t*>(gpu.host_memory(size * sizeof(std::uint64_t)));
  std::fill_n(words, size, 0);
  return words;
}

// A graph is replayed with other routings. The host polls right behind each launch, and waits for nothing else.
TEST_P(GpuMoeHostCounts, ReplaysOfAGraphAreToldApart) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  for (const Batch& batch : routings_for_two_graphs(ranks)) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      gpu.reset();
      MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      GpuMoe moe(gpu, communicator, exchange, world.launch());
      const std::size_t size = host_words(exchange, ranks);
      std::uint64_t* const words = zeroed_words(gpu, size);
      moe.fill(prepared[0]);
      const Graph graph(gpu, [&] {
        DispatchArgs args = moe.dispatch_args(prepared[0], gpu.stream(), true);
        args.host_counts = words;
        exchange.dispatch(args);
      });
      for (int turn = 0; turn < 3; ++turn) {
        for (std::size_t i = 0; i < prepared.size(); i += 2) {  // those with the graph's numbers of tokens
          moe.fill(prepared[i]);
          const std::uint32_t before = read_host_count(words).stamp;
          graph.launch(gpu.stream());
          const std::vector<std::uint32_t> wanted = host_counts(exchange, prepared[i]);
          const auto got = poll_host_counts(words, size, before, [&] { communicator.check(); });
          ensure(got == wanted, "the host has read other counts");
          expect_host_counts(words, wanted, before);
          moe.check_dispatch(prepared[i]);
        }
      }
      free_together(gpu, exchange);
    }));
  }
}

// In halves the wait tells them. Each call has words of its own, so nobody reads them in time.
TEST_P(GpuMoeHostCounts, HalvesTellThemInTheWait) {
  const std::uint32_t ranks = GetParam();
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 0, 3}}, ranks, 5);
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    gpu.reset();
    constexpr std::size_t kCalls = 4;
    MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    GpuMoe moe(gpu, communicator, exchange, world.launch());
    moe.fill(p);
    const std::size_t size = host_words(exchange, ranks);
    std::uint64_t* const words = zeroed_words(gpu, kCalls * size);
    DispatchArgs args = moe.dispatch_args(p, gpu.stream(), true);
    for (std::size_t call = 0; call < kCalls; ++call) {
      args.host_counts = words + call * size;
      exchange.dispatch_wait(exchange.dispatch_send(args), args);
    }
    moe.check_dispatch(p);
    for (std::size_t call = 0; call < kCalls; ++call) {
      const std::uint32_t before = call == 0 ? 0 : read_host_count(words + (call - 1) * size).stamp;
      expect_host_counts(words + call * size, host_counts(exchange, p), before);
    }
    free_together(gpu, exchange);
  }));
}

// Memory that the host or the GPU cannot use is rejected on every rank, and the exchange works on.
TEST(GpuMoeHostCountsRejections, MemoryMustBePinned) {
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, 2, 5);
  GpuWorld& world = lasting_gpu_world(2);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    gpu.reset();
    MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    GpuMoe moe(gpu, communicator, exchange, world.launch());
    moe.fill(p);
    std::vector<std::uint64_t> pageable(exchange.local_experts() + 2);
    auto* const of_device = reinterpret_cast<std::uint64_t*>(gpu.device_memory(pageable.size() * 8));
    for (std::uint64_t* const words : {pageable.data(), of_device}) {
      DispatchArgs args = moe.dispatch_args(p, gpu.stream());
      args.host_counts = words;
      expect_says(error_of([&] { exchange.dispatch(args); }), "is not pinned host memory");
    }
    run_on_gpu_rank(moe, gpu, p);
    free_together(gpu, exchange);
  }));
}

}  // namespace
}  // namespace weft::test
