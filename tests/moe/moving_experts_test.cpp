// Experts that move while an exchange serves: maps that follow each other, handles in flight meanwhile, and ranks that
// give different maps.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/moe_layers.hpp"
#include "support/moving_experts.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

class MoeMovingExperts : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeMovingExperts, testing::Values(1, 2, 3, 4));

// The numbers that experts() should give: of a rank's places.
std::vector<std::uint32_t> own_experts(const MovingExperts& of, std::uint32_t number, std::uint32_t rank) {
  const ExpertPlaces places = of.map(number);
  const std::size_t own = places.size() / of.ranks;
  return {places.begin() + static_cast<std::ptrdiff_t>(rank * own),
          places.begin() + static_cast<std::ptrdiff_t>((rank + 1) * own)};
}

TEST_P(MoeMovingExperts, MapsFollowEachOther) {
  for (const MovingExperts& of : moving_experts(GetParam())) {
    std::vector<PreparedMoe> prepared;
    for (std::uint32_t number = 0; number < 5; ++number) prepared.push_back(of.prepared(number, number));
    on_moving_exchanges(of, [&](MoeExchange& moving, const MoeExchange& of_places, std::uint32_t rank) {
      EXPECT_EQ(moving.local_experts(), of_places.local_experts());
      EXPECT_EQ(moving.output_rows(), of_places.output_rows());
      const auto* const experts = moving.experts(1).data();
      const auto* const maps = moving.args().experts_of_rank.data();
      MovingSide side(of_places, prepared[0], rank);
      const auto use = [&](std::uint32_t map, std::uint32_t number) {
        side.fill(prepared[number]);
        exchange_and_check(moving, side, map);
        EXPECT_TRUE(std::ranges::equal(moving.experts(map), own_experts(of, number, rank)));
      };
      use(0, 0);
      use(1, 1);
      moving.set_experts(of.map(2), 1);
      use(0, 0);
      use(1, 2);
      moving.set_experts(of.maps(3, 4));
      use(1, 4);
      use(0, 3);
      moving.set_experts(of.map(1));
      use(0, 1);
      use(1, 4);
      EXPECT_EQ(moving.args().experts_of_rank, of.maps(1, 4));
      EXPECT_EQ(moving.args().experts_of_rank.data(), maps);
      EXPECT_EQ(moving.experts(1).data(), experts);
    });
  }
}

// Dispatches, their waits and combines belong to the map of their dispatch.
TEST_P(MoeMovingExperts, HandlesInFlightKeepTheirMap) {
  for (const MovingExperts& of : moving_experts(GetParam())) {
    const std::vector<PreparedMoe> prepared{of.prepared(0, 5), of.prepared(1, 6), of.prepared(2, 7)};
    on_moving_exchanges(of, [&](MoeExchange& moving, const MoeExchange& of_places, std::uint32_t rank) {
      MovingSide first(of_places, prepared[0], rank), second(of_places, prepared[2], rank);
      const DispatchHandle early = moving.dispatch(first.dispatch(0));
      first.check_dispatch();
      moving.set_experts(of.map(2));
      const DispatchHandle late = moving.dispatch_send(second.dispatch(0));
      moving.set_experts(of.map(1));
      moving.combine(first.combine(early));
      first.check_combine();
      moving.dispatch_wait(late, second.dispatch(0));
      second.check_dispatch();
      moving.combine_send(second.combine(late));
      moving.set_experts(of.map(0));
      moving.combine_wait(second.combine(late));
      second.check_combine();
      first.fill(prepared[0]);
      exchange_and_check(moving, first, 0);
    });
  }
}

TEST_P(MoeMovingExperts, RoundsKeepTheirMap) {
  for (const MovingExperts& of : moving_experts(GetParam())) {
    if (of.with.layout == RowLayout::rank_compact) continue;  // has one round
    const PreparedMoe p = of.prepared(0, 5);
    on_moving_exchanges(of, [&](MoeExchange& moving, const MoeExchange& of_places, std::uint32_t rank) {
      MovingSide side(of_places, p, rank);
      DispatchArgs there = side.dispatch(0);
      there.rounds.count = 3;
      const DispatchHandle handle = moving.dispatch_send(there);
      CombineArgs back = side.combine(handle);
      back.rounds.count = 3;
      for (std::uint32_t round = 0; round < 3; ++round) {
        moving.set_experts(of.map(round + 1));
        there.round = back.round = round;
        moving.dispatch_wait(handle, there);
        moving.combine_send(back);
      }
      side.check_dispatch();
      moving.combine_wait(back);
      side.check_combine();
    });
  }
}

// A recording keeps the number of its map, and finds the experts that are there when it is replayed. Memory that is
// taken again has the newest maps.
TEST_P(MoeMovingExperts, RecordingsAndReleasedMemoryTakeTheNewMap) {
  for (const MovingExperts& of : moving_experts(GetParam())) {
    std::vector<PreparedMoe> prepared;
    for (std::uint32_t number = 0; number < 4; ++number) prepared.push_back(of.prepared(number, number));
    expect_all_well(
        run_world(static_cast<int>(of.ranks), smallest_buffers(), [&](Communicator& communicator, int number) {
          const auto rank = static_cast<std::uint32_t>(number);
          MoeExchange moving = MoeExchange::create(communicator, of.with);
          const MoeExchange of_places = MoeExchange::create(communicator, of.of_places.args);
          MovingSide side(of_places, prepared[1], rank);
          std::vector<std::int32_t> ids(of.with.tokens * of.with.top_k);
          const Recording recording = Recording::capture(communicator, [&] {
            DispatchArgs args = side.dispatch(1);
            args.topk_ids = ids.data();
            moving.combine(side.combine(moving.dispatch(args)));
          });
          const auto replay = [&](std::uint32_t of_map) {
            side.fill(prepared[of_map]);
            std::ranges::copy(prepared[of_map].tokens[rank].given, ids.begin());
            recording.replay();
            side.check_dispatch();
            side.check_combine();
          };
          replay(1);
          moving.set_experts(of.map(2), 1);
          replay(2);
          moving.set_experts(of.maps(2, 3));
          replay(3);
          communicator.release();
          expect_code([&] { moving.set_experts(of.map(0)); }, Errc::released, "set_experts");
          communicator.acquire();
          for (std::uint32_t map = 0; map < 2; ++map) {
            side.fill(prepared[map + 2]);
            exchange_and_check(moving, side, map);
          }
        }));
  }
}

// Layers call by the map that they are given.
TEST_P(MoeMovingExperts, LayersFollow) {
  for (MovingExperts of : moving_experts(GetParam())) {
    if (of.with.layout >= RowLayout::rank_major) continue;  // no layer has it
    of.with.hidden = of.of_places.args.hidden = 128;        // plain loops are slow
    const std::vector<PreparedMoe> prepared{of.prepared(0, 3), of.prepared(2, 4)};
    on_moving_exchanges(of, [&](MoeExchange& moving, const MoeExchange& of_places, std::uint32_t rank) {
      const LayerCase layer{of.of_places, RowCast::none};
      CpuLayer there(of_places, layer, prepared[0], rank), here(moving, layer, prepared[0], rank, of_places);
      for (std::uint32_t number = 0; number < prepared.size(); ++number) {
        const PreparedMoe& p = prepared[number];
        if (number == 1) moving.set_experts(of.map(2), 1);
        for (const LayerOrder& order : every_order(of.of_places.args, of.ranks)) {
          there.fill(p);
          there.layer().run(there.call(order));
          here.fill(p);
          MoeLayerCall call = here.call(order);
          call.topk_ids = p.tokens[rank].given.data();
          call.map = number;
          here.layer().run(call);
          expect_bytes(here.output(), there.output(),
                       std::string("the output of ") + std::string(name(order.schedule)));
        }
      }
    });
  }
}

}  // namespace
}  // namespace weft::test
