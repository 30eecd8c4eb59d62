// Dispatch and combine on GPU ranks through a ring: the CPU tests' calls with the same reference, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/moe_replays.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

void run_through_ring(const std::vector<Batch>& batches, std::uint32_t ranks) {
  for (const Batch& batch : on_ring(batches)) expect_right(lasting_gpu_world(static_cast<int>(ranks)), batch);
}

class GpuMoeRing : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoeRing, testing::Values(1, 2, 3, 4, 8));

TEST_P(GpuMoeRing, EveryKindOfRouting) {
  run_through_ring(in_every_layout(every_kind_of_routing(GetParam()), GetParam()), GetParam());
}

TEST_P(GpuMoeRing, RowsOfEveryTypeBitForBit) {
  run_through_ring(in_every_layout(rows_of_every_type(GetParam()), GetParam()), GetParam());
}

TEST_P(GpuMoeRing, RowsWithPayloads) {
  run_through_ring(in_every_layout(rows_with_payloads(GetParam()), GetParam()), GetParam());
}

TEST_P(GpuMoeRing, CastOnTheWay) {
  run_through_ring(in_every_layout(casts_on_the_way(GetParam()), GetParam()), GetParam());
}

TEST_P(GpuMoeRing, RowsOfManyPieces) {
  run_through_ring(in_every_layout(rows_of_many_pieces(GetParam()), GetParam()), GetParam());
}

TEST_P(GpuMoeRing, RowsWithoutRoomAreDropped) {
  run_through_ring(rows_without_room(), GetParam());
}

TEST_P(GpuMoeRing, ManyTokensFlowThroughFewPlaces) {
  run_through_ring(in_every_layout({more_tokens_than_places(GetParam())}, GetParam()), GetParam());
}

TEST_P(GpuMoeRing, FewTokensTakeSlots) {
  const std::vector<Batch> batches = in_every_layout({few_and_many_tokens(GetParam())}, GetParam());
  for (const Batch& batch : batches) expect_right(lasting_gpu_world(static_cast<int>(GetParam())), batch);
  for (const Batch& batch : weighed_late(batches)) {
    expect_right(lasting_gpu_world(static_cast<int>(GetParam())), batch);
  }
}

TEST_P(GpuMoeRing, SendsAndWaitsOfOtherGrids) {
  const Batch batch = on_ring(every_kind_of_routing(GetParam()))[0];
  expect_right_apart(lasting_gpu_world(static_cast<int>(GetParam())), batch);
}

// A ring serves any grids, which may differ from rank to rank. Few blocks make many rounds.
TEST_P(GpuMoeRing, GridsDifferFromRankToRank) {
  const std::uint32_t ranks = GetParam();
  const Batch batch = on_ring({more_tokens_than_places(ranks)})[0];
  const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    MoeExchange exchange = MoeExchange::create(communicator, batch[0].args);
    std::mt19937 own(static_cast<std::uint32_t>(rank));
    constexpr int kThreads[] = {32, 64, 128, 256, 384, 512};
    for (int round = 0; round < 20; ++round) {
      gpu.reset();
      const PreparedMoe& p = prepared[static_cast<std::size_t>(round) % prepared.size()];
      GpuMoe moe(gpu, communicator, exchange,
                 {.blocks = 2 + static_cast<int>(own() % 5), .threads = kThreads[own() % std::size(kThreads)]});
      moe.fill(p);
      run_on_gpu_rank(moe, gpu, p);
    }
    free_together(gpu, exchange);
  }));
}

TEST_P(GpuMoeRing, GraphsReplayedWithOtherRoutings) {
  for (const Batch& batch : on_ring(routings_for_two_graphs(GetParam()))) {
    replay_other_routings(lasting_gpu_world(static_cast<int>(GetParam())), batch);
  }
}

// Dispatches are made again for other rows, eagerly and in a graph that has the dispatch, too.
TEST_P(GpuMoeRing, DispatchesMadeAgain) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  std::vector<Batch> batches = in_every_layout({more_tokens_than_places(ranks)}, ranks);
  std::ranges::copy(with_payloads(batches), std::back_inserter(batches));
  for (const Batch& batch : repeatable(batches)) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    std::vector<PreparedMoe> others;
    for (const PreparedMoe& p : prepared) others.push_back(with_other_rows(p));
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      GpuMoe moe(gpu, communicator, exchange, world.launch());
      const auto again = [&](const PreparedMoe& p, DispatchHandle handle) {
        DispatchArgs args = moe.dispatch_args(p, gpu.stream());
        args.again = handle;
        EXPECT_EQ(exchange.dispatch(args), handle);
      };
      for (std::size_t i = 0; i < prepared.size(); ++i) {
        moe.fill(prepared[i]);
        const DispatchHandle handle = moe.dispatch(prepared[i], gpu.stream());
        moe.combine(prepared[i], handle, gpu.stream());
        moe.check_dispatch(prepared[i]);
        for (int time = 0; time < 2; ++time) {
          moe.fill_again(others[i]);
          again(others[i], handle);
          moe.check_dispatch(others[i]);
          moe.combine(others[i], handle, gpu.stream());
          moe.check_combine(others[i]);
        }
      }
      const PreparedMoe& p = prepared[0];
      moe.fill(p);
      const Graph graph(gpu, [&] {
        const DispatchHandle handle = moe.dispatch(p, gpu.stream());
        moe.combine(p, handle, gpu.stream());
        again(p, handle);
        moe.combine(p, handle, gpu.stream());
      });
      for (int replay = 0; replay < 3; ++replay) {
        moe.fill(p);
        graph.launch(gpu.stream());
        moe.check_dispatch(p);
        moe.check_combine(p);
      }
      free_together(gpu, exchange);
    }));
  }
}

// One graph of an engine decodes, the other one prefills.
TEST_P(GpuMoeRing, GraphsBySlotsAndByTheRing) {
  for (const Batch& batch : with_slots(on_ring(routings_for_two_graphs(GetParam())))) {
    replay_other_routings(lasting_gpu_world(static_cast<int>(GetParam())), batch);
  }
}

// A prefill of DeepSeek-V3's experts, in every layout.
TEST(GpuMoeRingPrefill, OfThousandsOfTokens) {
  MoeExchangeArgs args{.tokens = 1500, .hidden = 256, .experts = 256, .top_k = 8, .cast = RowCast::fp8};
  args.scale_order = ScaleOrder::columns;
  args.capacity = 200;  // an expert has 94 rows on average
  args.overflow = Overflow::drop;
  for (const Batch& batch : in_every_layout({{{.args = args, .tokens = {1500, 1200}, .residual = true}}}, 2)) {
    expect_right(lasting_gpu_world(2), batch);
  }
}

}  // namespace
}  // namespace weft::test
