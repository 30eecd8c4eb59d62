// Maps of experts that cannot be, and ranks that give different ones: the old maps stay in force.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/moving_experts.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

struct RejectedMaps {
  std::string part;  // behind "MoeExchangeArgs::"
  std::function<void(MoeExchangeArgs&)> spoil;
};
// Of two ranks: eight experts, of which each has one place.
std::vector<std::int32_t> one_place_each(std::size_t places) {
  std::vector<std::int32_t> map(places, -1);
  for (std::int32_t expert = 0; expert < 8; ++expert) map[static_cast<std::size_t>(expert)] = expert;
  return map;
}
const std::vector<RejectedMaps>& rejected_definitions() {
  static const std::vector<RejectedMaps> all{
      {"experts_of_rank's length: 8 is not 0, and ranks_of_expert is given",
       [](auto& a) {
         a.ranks_of_expert.assign(8, {0, 1});
       }},
      {"experts_of_rank's length: 8 is not 0, and rank_of_expert is given",
       [](auto& a) { a.rank_of_expert.assign(8, 0); }},
      {"experts_of_rank's length: 9 is not a multiple of maps · ranks, 2",
       [](auto& a) { a.experts_of_rank = one_place_each(9); }},
      {"experts_of_rank's length: 18 is not a multiple of maps · ranks, 4",
       [](auto& a) { a.experts_of_rank = one_place_each(18), a.maps = 2; }},
      {"experts_of_rank: 8 is not between −1 and 7", [](auto& a) { a.experts_of_rank[3] = 8; }},
      {"experts_of_rank: -2 is not between −1 and 7", [](auto& a) { a.experts_of_rank[3] = -2; }},
      {"experts_of_rank: expert 3 has no place in map 0", [](auto& a) { a.experts_of_rank[3] = 4; }},
      {"experts_of_rank: expert 0 has no place in map 1",
       [](auto& a) { a.experts_of_rank = one_place_each(16), a.maps = 2; }},
      {"experts_of_rank: places: 4098 is not 4096 at most", [](auto& a) { a.experts_of_rank = one_place_each(4098); }},
      {"experts with all replicas: 1026 is not 1024 at most",
       [](auto& a) { a.experts_of_rank = one_place_each(1026), a.path = RowPath::ring; }},
      {"maps: 0 is not between 1 and 1024", [](auto& a) { a.maps = 0; }},
      {"maps: 1025 is not between 1 and 1024", [](auto& a) { a.maps = 1025; }},
      {"maps: 2 is not 1, and experts_of_rank is empty", [](auto& a) { a.experts_of_rank.clear(), a.maps = 2; }},
  };
  return all;
}

TEST(MoeMovingMaps, DefinitionsThatCannotBe) {
  for (const RejectedMaps& rejected : rejected_definitions()) {
    MoeExchangeArgs args = small_exchange();
    args.experts_of_rank = one_place_each(8);
    moe_exchange_memory(2, args);
    rejected.spoil(args);
    expect_code([&] { moe_exchange_memory(2, args); }, Errc::invalid_argument, "MoeExchangeArgs::" + rejected.part);
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int) {
      expect_code([&] { MoeExchange::create(communicator, args); }, Errc::invalid_argument,
                  "MoeExchangeArgs::" + rejected.part);
    }));
  }
}

struct RejectedMap {
  std::string part;
  std::function<void(ExpertPlaces&, std::uint32_t& first_map)> spoil;
};
const std::vector<RejectedMap>& rejected_maps() {
  static const std::vector<RejectedMap> all{
      {"first_map: 2 is not between 0 and 1", [](auto&, auto& first) { first = 2; }},
      {"experts_of_rank's length: 11 is not a multiple of 12 up to 24", [](auto& map, auto&) { map.pop_back(); }},
      {"experts_of_rank's length: 0 is not a multiple of 12 up to 24", [](auto& map, auto&) { map.clear(); }},
      {"experts_of_rank's length: 24 is not a multiple of 12 up to 12",
       [](auto& map, auto& first) { map.resize(24, 0), first = 1; }},
      {"experts_of_rank: 8 is not between −1 and 7", [](auto& map, auto&) { map[3] = 8; }},
      {"experts_of_rank: -2 is not between −1 and 7", [](auto& map, auto&) { map[3] = -2; }},
      {"experts_of_rank: expert 6 has no place in map 0", [](auto& map, auto&) { std::ranges::replace(map, 6, -1); }},
      {"experts_of_rank: expert 0 has no place in map 1", [](auto& map, auto&) { map.resize(24, -1); }},
  };
  return all;
}

// One rank gives what cannot be. All go on with the old map.
TEST(MoeMovingMaps, WhatCannotBeIsRejected) {
  const MovingExperts of = moving_experts(2)[0];
  const PreparedMoe p = of.prepared(0, 5), q = of.prepared(3, 6);
  on_moving_exchanges(of, [&](MoeExchange& moving, const MoeExchange& of_places, std::uint32_t rank) {
    MovingSide side(of_places, p, rank);
    for (const RejectedMap& rejected : rejected_maps()) {
      ExpertPlaces map = of.map(3);
      std::uint32_t first = 0;
      if (rank == 1) rejected.spoil(map, first);
      expect_code([&] { moving.set_experts(map, first); }, rank == 1 ? Errc::invalid_argument : Errc::rendezvous,
                  rejected.part);
      side.fill(p);
      exchange_and_check(moving, side, 0);
    }
    MoeExchange other = of_places;
    expect_code([&] { other.set_experts(of.map(0)); }, Errc::invalid_argument,
                "made without MoeExchangeArgs::experts_of_rank");
    expect_code([&] { static_cast<void>(moving.experts(2)); }, Errc::invalid_argument, "map: 2 is not between 0 and 1");
    DispatchArgs args = side.dispatch(2);
    expect_code([&] { moving.dispatch(args); }, Errc::invalid_argument, "map: 2 is not between 0 and 1");
    moving.set_experts(of.map(3));
    side.fill(q);
    exchange_and_check(moving, side, 0);
    moving.free();
    expect_code([&] { moving.set_experts(of.map(0)); }, Errc::released, "has been freed");
  });
}

TEST(MoeMovingMaps, IsNotRecorded) {
  const MovingExperts of = moving_experts(2)[0];
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int) {
    MoeExchange moving = MoeExchange::create(communicator, of.with);
    expect_code([&] { Recording::capture(communicator, [&] { moving.set_experts(of.map(2)); }); },
                Errc::invalid_argument, "recorded or captured");
  }));
}

// Throws unless ranks find that they disagree: in a child process nobody sees an expectation that fails.
void ensure_mismatch(MoeExchange& exchange, const ExpertPlaces& map, std::uint32_t first, const std::string& part) {
  try {
    exchange.set_experts(map, first);
  } catch (const Error& error) {
    ensure(error.code() == Errc::mismatch && std::string(error.what()).find(part) != std::string::npos, error.what());
    return;
  }
  throw std::runtime_error("no error; expected one with " + part);
}

// Ranks that give different maps, or name different exchanges, go on with the old ones.
void disagree_and_go_on(Communicator& communicator, const MovingExperts& of, const PreparedMoe& p) {
  const auto rank = static_cast<std::uint32_t>(communicator.rank());
  MoeExchange moving = MoeExchange::create(communicator, of.with), other = MoeExchange::create(communicator, of.with);
  const MoeExchange of_places = MoeExchange::create(communicator, of.of_places.args);
  MovingSide side(of_places, p, rank);
  const auto go_on = [&] {
    for (MoeExchange* const exchange : {&moving, &other}) {
      ensure(exchange->args().experts_of_rank == of.with.experts_of_rank, "the maps have changed");
      side.fill(p);
      exchange_and_check(*exchange, side, 0);
    }
  };
  const bool odd = rank == 1;
  ExpertPlaces map = of.map(2);
  const std::string apart = "element 0 is " + std::to_string(map[0]) + " on rank 0 and " + std::to_string(map[5]);
  if (odd) std::swap(map[0], map[5]);
  ensure_mismatch(moving, map, 0, "ranks disagree about experts_of_rank: " + apart + " on rank 1");
  go_on();
  ensure_mismatch(moving, of.map(2), odd ? 1 : 0,
                  "rank 0 sets maps 0 to 0 of exchange 1 of those that were ever created, rank 1 maps 1 to 1 of ");
  go_on();
  ensure_mismatch(odd ? other : moving, of.map(2), 0, "rank 1 maps 0 to 0 of exchange 2 of those");
  go_on();
}

TEST(MoeMovingMaps, RanksThatDisagreeFindOut) {
  const MovingExperts of = moving_experts(2)[0];
  const PreparedMoe p = of.prepared(0, 5);
  expect_all_well(run_world(2, smallest_buffers(),
                            [&](Communicator& communicator, int) { disagree_and_go_on(communicator, of, p); }));
}

// Processes share only the memory that they map from each other.
TEST(MoeMovingMaps, BetweenProcesses) {
  const MovingExperts of = moving_experts(2)[0];
  const std::vector<PreparedMoe> prepared{of.prepared(0, 5), of.prepared(1, 6), of.prepared(2, 7)};
  const UniqueId id = UniqueId::create();
  Processes processes(2, [&](const Child& self) {
    Communicator communicator = Communicator::from_id(id, self.rank(), 2, smallest_buffers());
    disagree_and_go_on(communicator, of, prepared[0]);
    MoeExchange moving = MoeExchange::create(communicator, of.with);
    const MoeExchange of_places = MoeExchange::create(communicator, of.of_places.args);
    MovingSide side(of_places, prepared[0], static_cast<std::uint32_t>(self.rank()));
    for (std::uint32_t i = 0; i < 30; ++i) {
      moving.set_experts(of.map(i % 3));
      side.fill(prepared[i % 3]);
      exchange_and_check(moving, side, 0);
    }
  });
  for (const Outcome& outcome : processes.wait()) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.exit_code, 0) << "signal " << outcome.signal << ", too slow " << outcome.too_slow;
  }
}

// Groups have maps of their own, and give them at once. One of them disagrees: nobody has new maps.
TEST(MoeMovingMaps, OfSeveralGroups) {
  const MovingExperts of = moving_experts(2)[0];
  std::vector<PreparedMoe> prepared;
  for (std::uint32_t number = 0; number < 4; ++number) prepared.push_back(of.prepared(number, number));
  Config config = smallest_buffers();
  config.max_groups = 2;
  config.group_one_shot_bytes = config.group_two_shot_bytes = 1024;
  expect_all_well(run_world(4, config, [&](Communicator& communicator, int rank) {
    const Group half = communicator.split(rank / 2);
    const std::uint32_t pair = rank < 2 ? 0 : 1;
    MoeExchange moving = MoeExchange::create(half, of.with);
    const MoeExchange of_places = MoeExchange::create(half, of.of_places.args);
    MovingSide side(of_places, prepared[0], static_cast<std::uint32_t>(half.rank()));
    const auto use = [&](std::uint32_t number) {
      side.fill(prepared[number]);
      exchange_and_check(moving, side, 0);
    };
    moving.set_experts(of.map(pair + 2));
    use(pair + 2);
    const ExpertPlaces map = of.map(rank == 3 ? 1 : 0);
    expect_code([&] { moving.set_experts(map); }, Errc::mismatch, "on rank 2 and ");
    use(pair + 2);
    moving.set_experts(of.map(pair), 0);
    use(pair);
  }));
}

// A dispatch names its map: ranks that name different ones find out.
TEST(MoeMovingMaps, OneRankDispatchesByAnother) {
  const MovingExperts of = moving_experts(2)[0];
  const PreparedMoe p = of.prepared(0, 5);
  const auto endings = run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange moving = MoeExchange::create(communicator, of.with);
    const MoeExchange of_places = MoeExchange::create(communicator, of.of_places.args);
    MovingSide side(of_places, p, static_cast<std::uint32_t>(rank));
    moving.dispatch(side.dispatch(rank == 1 ? 1 : 0));
  });
  for (const Ending& ending : endings) expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "a rank of two");
  expect_says(endings[0].what + endings[1].what, "dispatch tag 0, map 1");
}

}  // namespace
}  // namespace weft::test
