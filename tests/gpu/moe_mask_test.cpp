// Rows that a mask sends to ranks, without ids (DispatchArgs::rank_mask), on GPU ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/graph.hpp"
#include "support/moe_masks.hpp"

namespace weft::test {
namespace {

class GpuMoeMasks : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoeMasks, testing::Values(1, 2, 4, 8));

// A graph reads the mask anew, and writes the ids that follow in front of its dispatch.
TEST_P(GpuMoeMasks, RowsGoToTheRanksOfTheMask) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  for (const Batch& batch : masked_batches(ranks)) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int number) {
      gpu.reset();
      const auto rank = static_cast<std::uint32_t>(number);
      MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      GpuMoe moe(gpu, communicator, exchange, world.launch());
      const std::size_t entries = std::size_t{batch.front().args.tokens} * ranks;
      std::byte *const host = gpu.host_memory(entries), *const mask = gpu.device_memory(entries);
      auto* const ids = reinterpret_cast<std::int32_t*>(gpu.device_memory(entries * sizeof(std::int32_t)));
      const auto fill = [&](const PreparedMoe& p) {
        const std::vector<std::uint8_t> wanted = mask_of(p, rank);
        std::ranges::copy(std::as_bytes(std::span(wanted)), host);
        detail::check_cuda(cudaMemcpyAsync(mask, host, entries, cudaMemcpyHostToDevice, gpu.stream()), "upload");
        moe.fill(p);
      };
      const auto call = [&] {
        DispatchArgs args = moe.dispatch_args(prepared[0], gpu.stream());
        args.topk_ids = nullptr;
        args.rank_mask = reinterpret_cast<const std::uint8_t*>(mask);
        args.mask_ids = ids;
        moe.combine(prepared[0], exchange.dispatch(args), gpu.stream());
      };
      fill(prepared[0]);
      const Graph graph(gpu, call);
      for (int turn = 0; turn < 3; ++turn) {
        for (const PreparedMoe& p : prepared) {
          fill(p);
          turn == 0 ? call() : graph.launch(gpu.stream());
          moe.check_dispatch(p);
          moe.check_combine(p);
        }
      }
      free_together(gpu, exchange);
    }));
  }
}

}  // namespace
}  // namespace weft::test
