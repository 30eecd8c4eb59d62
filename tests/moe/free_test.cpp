// Exchanges that are freed before their communicator. Their memory and place are free again, others keep theirs, and
// later uses of a freed exchange get an error.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "support/mapped.hpp"
#include "support/moe_batches.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

// A configuration with room for `exchanges` exchanges.
Config config_for(int exchanges) {
  Config config = smallest_buffers();
  config.max_groups = 63 - 2 * exchanges;
  config.group_one_shot_bytes = config.group_two_shot_bytes = 1024;
  return config;
}

void use(const MoeExchange& exchange, const PreparedMoe& p, int rank) {
  const auto number = static_cast<std::uint32_t>(rank);
  exchange_and_check(exchange, p, number);
}

// An exchange of a size that no other mapping has.
PreparedMoe odd_one(std::uint32_t ranks, std::uint32_t seed) {
  MoeExchangeArgs args = small_exchange();
  args.hidden = 256 + seed % 5 * 64;
  return prepare({.args = args, .tokens = {6, 3}}, ranks, seed);
}
std::size_t pages_of(const MoeExchangeArgs& args, int ranks) {
  return (moe_exchange_memory(ranks, args).window + 4095) / 4096 * 4096;
}

void create_use_and_free(Communicator& communicator, const std::vector<PreparedMoe>& prepared, int rounds) {
  const std::size_t before = communicator.memory().window;
  for (int round = 0; round < rounds; ++round) {
    const PreparedMoe& p = prepared[static_cast<std::size_t>(round) % prepared.size()];
    MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    ensure(communicator.memory().window > before, "no memory was taken");
    ensure(mapped_windows(pages_of(p.call.args, communicator.size())) != 0, "nothing was mapped");
    for (int call = 0; call < round % 3; ++call) use(exchange, p, communicator.rank());
    exchange.free();
    ensure(communicator.memory().window == before, "memory was not given back");
    ensure(mapped_windows(pages_of(p.call.args, communicator.size())) == 0, "something is still mapped");
  }
}

// An odd number of calls, an even one, and none, so that the next exchange at that place begins with either bank.
TEST(MoeFree, GivesMemoryAndPlaceBackTimeAndAgain) {
  std::vector<PreparedMoe> prepared;
  for (const RowLayout layout : {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major}) {
    for (std::uint32_t seed = 0; seed < 2; ++seed) {
      MoeCase c = odd_one(3, seed).call;
      c.args.layout = layout;
      prepared.push_back(prepare(c, 3, seed));
    }
  }
  expect_all_well(run_world(3, config_for(1),
                            [&](Communicator& communicator, int) { create_use_and_free(communicator, prepared, 40); }));
}

// The processes map each other's memory, and must unmap it, too.
TEST(MoeFree, BetweenProcesses) {
  constexpr int kSize = 3;
  const std::vector<PreparedMoe> prepared{odd_one(kSize, 1), odd_one(kSize, 2)};
  const UniqueId id = UniqueId::create();
  Processes processes(kSize, [&](const Child& self) {
    Communicator communicator = Communicator::from_id(id, self.rank(), kSize, config_for(2));
    create_use_and_free(communicator, prepared, 40);
  });
  for (const Outcome& outcome : processes.wait()) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.exit_code, 0) << "signal " << outcome.signal << ", too slow " << outcome.too_slow;
  }
}

// The others work on, also over release() and acquire(). The next exchange takes the gap, and there is no more room.
TEST(MoeFree, LeavesAHoleThatTheNextOneFills) {
  const PreparedMoe p[] = {odd_one(2, 1), odd_one(2, 2), odd_one(2, 3), odd_one(2, 4)};
  expect_all_well(run_world(2, config_for(3), [&](Communicator& communicator, int rank) {
    std::vector<MoeExchange> exchanges;
    for (int i = 0; i < 3; ++i) exchanges.push_back(MoeExchange::create(communicator, p[i].call.args));
    const auto use_all = [&] {
      for (const int i : {0, 2}) use(exchanges[static_cast<std::size_t>(i)], p[i], rank);
    };
    use_all();
    const std::size_t with_all = communicator.memory().window;
    exchanges[1].free();
    EXPECT_EQ(with_all - communicator.memory().window, moe_exchange_memory(2, p[1].call.args).window);
    use_all();
    communicator.release();
    EXPECT_EQ(communicator.memory().window, 0u);
    communicator.acquire();
    use_all();
    MoeExchange next = MoeExchange::create(communicator, p[3].call.args);
    expect_says(error_of([&] { MoeExchange::create(communicator, p[3].call.args); }),
                "MoeExchange::create: 3 exchanges exist, and with Config::max_groups 57 there is room for 3");
    use(next, p[3], rank);
    use_all();
    communicator.release();
    communicator.acquire();
    for (MoeExchange* const last : {&exchanges[2], &next, &exchanges[0]}) last->free();
    const MoeExchange again = MoeExchange::create(communicator, p[1].call.args);
    use(again, p[1], rank);
  }));
}

// Every handle of the exchange reports it, and that is no fault.
TEST(MoeFree, RejectsCallsByName) {
  const PreparedMoe p = odd_one(2, 1), q = odd_one(2, 2);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    MoeExchange other_handle = exchange;
    CpuMoe moe(exchange, p, rank);
    const DispatchHandle handle = dispatch_and_check(exchange, p, rank);
    other_handle.free();
    const std::string freed = ": the exchange has been freed";
    expect_code([&] { exchange.dispatch(moe.dispatch()); }, Errc::released, "dispatch" + freed);
    expect_code([&] { exchange.dispatch_send(moe.dispatch()); }, Errc::released, "dispatch" + freed);
    expect_code([&] { exchange.dispatch_wait(handle, moe.dispatch()); }, Errc::released, "dispatch_wait" + freed);
    expect_code([&] { exchange.combine(moe.combine(handle)); }, Errc::released, "combine" + freed);
    expect_code([&] { exchange.combine_send(moe.combine(handle)); }, Errc::released, "combine" + freed);
    expect_code([&] { exchange.combine_wait(moe.combine(handle)); }, Errc::released, "combine_wait" + freed);
    EXPECT_FALSE(communicator.status().has_value());
    const MoeExchange next = MoeExchange::create(communicator, q.call.args);
    expect_code([&] { exchange.dispatch(moe.dispatch()); }, Errc::released, "dispatch" + freed);
    use(next, q, number);
  }));
}

// Unfinished calls do not affect the exchange that takes the same place.
TEST(MoeFree, WhatIsUnderWayIsVoid) {
  MoeExchangeArgs args = small_exchange();
  args.handles = 1;
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, config_for(1), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    for (int round = 0; round < 6; ++round) {
      MoeExchange exchange = MoeExchange::create(communicator, args);
      CpuMoe moe(exchange, p, rank);
      if (round % 3 == 0) exchange.dispatch(moe.dispatch());
      if (round % 3 == 1) exchange.dispatch_send(moe.dispatch());
      if (round % 3 == 2) exchange.combine_send(moe.combine(exchange.dispatch(moe.dispatch())));
      exchange.free();
      MoeExchange next = MoeExchange::create(communicator, args);
      use(next, p, number);
      next.free();
    }
  }));
}

// A replay finds no memory, or another exchange's: it ends with the exchange's name, and touches neither. Its message
// lists the calls of the freed exchange.
TEST(MoeFree, RecordingsThatHoldOneAreTold) {
  const PreparedMoe p = odd_one(2, 1), q = odd_one(2, 2);
  for (const bool replaced : {false, true}) {
    expect_all_well(run_world(2, config_for(1), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
      CpuMoe moe(exchange, p, rank);
      const Recording recording =
          Recording::capture(communicator, [&] { exchange.combine(moe.combine(exchange.dispatch(moe.dispatch()))); });
      recording.replay();
      moe.check_combine();
      exchange.free();
      std::optional<MoeExchange> next;
      if (replaced) next = MoeExchange::create(communicator, q.call.args);
      for (int replay = 0; replay < 2; ++replay) {
        expect_code([&] { recording.replay(); }, Errc::released,
                    replaced ? "released on rank" : "a call of an exchange that was freed");
      }
      EXPECT_EQ(communicator.status()->code, Errc::released);
      communicator.release();  // how to recover
      communicator.acquire();
      if (!replaced) next = MoeExchange::create(communicator, q.call.args);
      use(*next, q, number);
      EXPECT_FALSE(communicator.status().has_value());
    }));
  }
}

// A fault and its history outlive their exchange.
TEST(MoeFree, AFaultKeepsItsHistory) {
  const PreparedMoe p = odd_one(2, 1);
  expect_all_well(run_world(2, cpu_config(short_deadline), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    CpuMoe moe(exchange, p, rank);
    DispatchArgs args = moe.dispatch();
    args.tag = 77 + rank;
    expect_says(error_of([&] { exchange.dispatch(args); }), "dispatch tag 7");
    exchange.free();
    const std::string error = error_of([&] { communicator.check(); });
    expect_says(error, "last calls of this rank on the group that failed:\n  0 dispatch tag 7");
  }));
}

TEST(MoeFree, RanksAgreeOnWhichOrNoneIsFreed) {
  const PreparedMoe p = odd_one(3, 1), q = odd_one(3, 2);
  Config config = config_for(3);
  config.deadline = 5s;  // for calls on an exchange that some rank has freed
  expect_all_well(run_world(3, config, [&](Communicator& communicator, int rank) {
    MoeExchange gone = MoeExchange::create(communicator, p.call.args);
    gone.free();
    MoeExchange first = MoeExchange::create(communicator, p.call.args);  // at the place of the freed exchange
    MoeExchange second = MoeExchange::create(communicator, q.call.args);
    const auto use_both = [&] {
      use(first, p, rank);
      use(second, q, rank);
    };
    expect_code(
        [&] { (rank == 1 ? second : first).free(); }, Errc::invalid_argument,
        "MoeExchange::free: ranks disagree: of those that were ever created, rank 0 frees number 1, rank 1 number 2");
    use_both();
    expect_code([&] { (rank == 2 ? gone : first).free(); }, Errc::released,
                "MoeExchange::free: it has been freed (rank 2 frees number 0");
    use_both();
    communicator.release();
    expect_code([&] { first.free(); }, Errc::released, "MoeExchange::free: the communicator's memory is released");
    communicator.acquire();
    use_both();
    first.free();
    use(second, q, rank);
  }));
}

// The meeting times out for a rank that does not call, and the exchange stays as it was.
TEST(MoeFree, ARankThatDoesNotCallIsMissed) {
  const PreparedMoe p = odd_one(3, 1);
  Config config = smallest_buffers();
  config.rendezvous_deadline = 2s;
  expect_all_well(run_world(3, config, [&](Communicator& communicator, int rank) {
    MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    use(exchange, p, rank);
    if (rank != 1) {
      expect_code([&] { exchange.free(); }, Errc::rendezvous, "free an exchange");
    }
    use(exchange, p, rank);
  }));
}

TEST(MoeFree, GroupsFreeTheirsAtOnce) {
  const PreparedMoe p = odd_one(2, 1);
  expect_all_well(run_world(4, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const Group group = communicator.split(rank % 2);
    for (int round = 0; round < 4; ++round) {
      MoeExchange exchange = MoeExchange::create(group, p.call.args);
      use(exchange, p, group.rank());
      exchange.free();
    }
  }));
}

}  // namespace
}  // namespace weft::test
