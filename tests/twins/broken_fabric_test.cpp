// A machine on which data arrives wrong, or whose ranks differ, and the errors of the ranks.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "comm/state.hpp"
#include "support/cases.hpp"
#include "support/moe_cases.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "twins/breakable_fabric.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

using detail::broken;

TEST(BrokenFabric, IsFoundBetweenAnyTwoRanks) {
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      for (const std::size_t pack : {std::size_t{0}, std::size_t{100}, std::size_t{255}}) {
        broken.from = from;
        broken.to = to;
        broken.pack = pack;
        const std::string error = error_of([] { Communicator::local(kRanks, cpu_config()); });
        expect_says(error, fmt::format("data that rank {} wrote to rank {} arrived wrong", from, to));
      }
    }
  }
  broken.from = -1;
}

// Without the break there is no fault: the control of the other tests.
TEST(BrokenFabric, WhenSoundWorks) {
  broken.from = -1;
  const Prepared prepared = prepare({.count = 500}, kRanks);
  expect_all_well(run_world(kRanks, cpu_config(), [&](Communicator& communicator, int rank) {
    run_on_cpu_rank(communicator, prepared, rank);
  }));
}

// Memory is tested again after acquire().
TEST(BrokenFabric, IsFoundByAcquire) {
  auto communicators = Communicator::local(kRanks, cpu_config());
  const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
    communicator.release();
    if (rank == 0) {
      broken.pack = 7;
      broken.to = 1;
      broken.from = 2;
    }
    communicator.acquire();
  });
  broken.from = -1;
  for (const Ending& ending : endings) expect_says(ending.what, "data that rank 2 wrote to rank 1 arrived wrong");
  // Memory that was taken before the failure is freed, so the next attempt finds as much.
  const Prepared prepared = prepare({.count = 500}, kRanks);
  expect_all_well(run_world(communicators, [&](Communicator& communicator, int rank) {
    EXPECT_EQ(communicator.world().state().communicator().fabric().window(0, rank), nullptr);
    communicator.acquire();
    run_on_cpu_rank(communicator, prepared, rank);
  }));
}

// No memory is freed while calls may still use it. A rank that is told so works on.
TEST(BrokenFabric, NothingIsGivenBackBesideAGpuThatDoesNotComeToRest) {
  const Prepared prepared = prepare({.count = 500}, kRanks);
  auto communicators = Communicator::local(kRanks, cpu_config());
  std::vector<std::optional<SymmetricMemory>> memories(kRanks);
  std::vector<std::optional<MoeExchange>> exchanges(kRanks);
  expect_all_well(run_world(communicators, [&](Communicator& communicator, int rank) {
    memories[index(rank)] = SymmetricMemory::allocate(communicator, 4096);
    exchanges[index(rank)] = MoeExchange::create(communicator, {.tokens = 1, .hidden = 8, .experts = 3, .top_k = 1});
  }));
  const auto expect_refused = [&](const std::function<void(Communicator&, int)>& give_back) {
    broken.restless = 1;
    const auto endings = run_world(communicators, give_back);
    broken.restless = -1;
    for (int rank = 0; rank < kRanks; ++rank) {
      const Ending& ending = endings[index(rank)];
      ASSERT_TRUE(ending.error) << ending.what;
      EXPECT_EQ(ending.error->code(), rank == 1 ? Errc::timeout : Errc::rendezvous);
      expect_says(ending.what, "the GPU has not come to rest");
    }
    expect_all_well(run_world(communicators, [&](Communicator& communicator, int rank) {
      run_on_cpu_rank(communicator, prepared, rank);
      EXPECT_NE(memories[index(rank)]->data(), nullptr);
    }));
  };
  expect_refused([](Communicator& communicator, int) { communicator.release(); });
  expect_refused([&](Communicator&, int rank) { memories[index(rank)]->free(); });
  expect_refused([&](Communicator&, int rank) { exchanges[index(rank)]->free(); });
  expect_all_well(run_world(communicators, [&](Communicator& communicator, int rank) {
    exchanges[index(rank)]->free();
    memories[index(rank)]->free();
    communicator.release();
    communicator.acquire();
    run_on_cpu_rank(communicator, prepared, rank);
  }));
  // An abort still arrives: nothing was released.
  broken.restless = 0;
  run_world(communicators, [](Communicator& communicator, int) { communicator.release(); });
  broken.restless = -1;
  communicators.front().abort();
  const auto endings = run_world(
      communicators, [&](Communicator& communicator, int rank) { run_on_cpu_rank(communicator, prepared, rank); });
  for (const Ending& ending : endings) expect_fault(ending, {Errc::aborted, Errc::peer_failed}, "after an abort");
}

// If one rank cannot prepare an exchange, no rank has it, and the next exchange gets its own window. The next one is
// larger, so its rows would lie outside a window that was left behind.
TEST(BrokenFabric, AnExchangeThatFailsLeavesNothingBehind) {
  const MoeExchangeArgs small{.tokens = 1, .hidden = 8, .experts = kRanks, .top_k = 1};
  MoeExchangeArgs large = small;
  large.tokens = 64;
  large.hidden = 1024;
  const PreparedMoe p = prepare({.args = large, .tokens = {64}}, kRanks, 5);
  expect_all_well(run_world(kRanks, cpu_config(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const std::size_t before = communicator.memory().window;
    barrier(communicator, {});
    if (rank == 1) broken.fills_of = 1;
    barrier(communicator, {});
    expect_says(error_of([&] { MoeExchange::create(communicator, small); }), "the machine fills no memory");
    barrier(communicator, {});
    if (rank == 1) broken.fills_of = -1;
    barrier(communicator, {});
    EXPECT_EQ(communicator.memory().window, before);
    const MoeExchange exchange = MoeExchange::create(communicator, large);
    exchange_and_check(exchange, p, rank);
    communicator.release();
    communicator.acquire();
    exchange_and_check(exchange, p, rank);
  }));
}

// A split that fails on one rank fails on all ranks with its message. Groups of later splits have the same number
// everywhere.
TEST(BrokenFabric, ASplitThatFailsOnOneRankFailsOnAll) {
  auto communicators = Communicator::local(3, cpu_config());
  const auto split = [&] {
    return run_world(communicators, [](Communicator& communicator, int) { communicator.split(0); });
  };
  broken.splits_of = 1;
  for (const Ending& ending : split()) expect_says(ending.what, "the machine splits nothing");
  broken.splits_of = -1;
  expect_all_well(run_world(communicators, [](Communicator& communicator, int rank) {
    const Group group = communicator.split(0);
    EXPECT_EQ(group.state().id(), 2);
    run_on_cpu_rank(group, prepare({.count = 50}, 3), rank);
    run_on_cpu_rank(communicator, prepare({.count = 60}, 3), rank);
  }));
}

// The algorithm for large messages must not depend on the blocks of one rank's GPU.
TEST(BrokenFabric, RanksOfUnlikeGpusAgreeOnTheLeastBlocks) {
  for (int few = 0; few < kRanks; ++few) {
    broken.few_blocks = few;
    const auto endings = run_world(kRanks, cpu_config(), [&](Communicator& communicator, int rank) {
      const auto& state = communicator.world().state().communicator();
      EXPECT_EQ(state.max_blocks(), rank == few ? 100 : 133);
      EXPECT_EQ(state.least_max_blocks(), 100);
      static_cast<void>(communicator.split(0));
      EXPECT_EQ(state.max_blocks(), rank == few ? 25 : 33);
      EXPECT_EQ(state.least_max_blocks(), 25);
    });
    broken.few_blocks = -1;
    expect_all_well(endings);
  }
}

}  // namespace
}  // namespace weft::test
