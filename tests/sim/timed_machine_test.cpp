// The machine with clocks: when stores land, what ports carry, and in which order threads go on.
#include "sim/timed_machine.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace weft::sim {
namespace {

using Word = std::uint64_t;

struct TwoRanks {
  TimedMachine machine{2, 4096, 2};
  Word* word(unsigned rank, unsigned i = 0) {
    return reinterpret_cast<Word*>(machine.memory().window(rank)) + std::size_t{2} * i;
  }
  void launch(unsigned rank, unsigned stream, std::function<void()> run) {
    machine.launch(
        stream, {.what = "a part", .rank = rank, .processors = 1, .blocks = 1, .run = [run = std::move(run)](unsigned) {
                   run();
                 }});
  }
  void store(unsigned rank, Word value, bool release = false) {
    machine.store(word(rank), &value, sizeof(value), release);
  }
  Word load(unsigned rank) {
    Word value = 0;
    machine.load(word(rank), &value, sizeof(value));
    return value;
  }
  void wait_for(unsigned rank, Word value) {
    while (load(rank) != value) machine.relax();
  }
};

TEST(TimedMachine, LetsAStoreToAPeerLandLater) {
  for (const bool release : {false, true}) {
    TwoRanks ranks;
    double sent = 0, seen = 0;
    ranks.launch(0, 0, [&] {
      ranks.machine.pass(100);
      sent = ranks.machine.now();
      ranks.store(1, 7, release);
    });
    ranks.launch(1, 0, [&] {
      ranks.wait_for(1, 7);
      seen = ranks.machine.now();
    });
    ranks.machine.run();
    EXPECT_NEAR(seen - sent, release ? kCosts.release : kCosts.flag, 1);
  }
}

TEST(TimedMachine, LetsThePortOfARankCarryOneStoreAfterTheOther) {
  constexpr double kBytes = 33'800;
  TwoRanks ranks;
  ranks.machine.memory().add({.begin = 0, .end = 4096, .weight = kBytes / sizeof(Word)});
  for (const unsigned stream : {0u, 1u}) {
    ranks.launch(0, stream, [&ranks, stream] {
      const Word value = 1;
      ranks.machine.store(ranks.word(1, stream), &value, sizeof(value));
    });
  }
  double seen = 0;
  ranks.launch(1, 0, [&] {
    const auto is_there = [&](unsigned i) {
      Word value = 0;
      ranks.machine.load(ranks.word(1, i), &value, sizeof(value));
      return value != 0;
    };
    while (!is_there(0) || !is_there(1)) ranks.machine.relax();
    seen = ranks.machine.now();
  });
  ranks.machine.run();
  const double looks = 4 * kBytes / kCosts.sm_local;  // those of the reader, at most
  EXPECT_GE(seen - kCosts.launch, 2 * kBytes / kCosts.port + kCosts.flag);
  EXPECT_LE(seen - kCosts.launch, 2 * kBytes / kCosts.port + kCosts.flag + looks);
}

TEST(TimedMachine, LetsTheSmallestClockGoOn) {
  TwoRanks ranks;
  std::vector<unsigned> order;
  const auto pass = [&](unsigned rank, double each) {
    ranks.launch(rank, 0, [&, rank, each] {
      for (int i = 0; i < 3; ++i) {
        ranks.machine.pass(each);
        order.push_back(rank);
      }
    });
  };
  pass(0, 30);
  pass(1, 25);
  ranks.machine.run();
  EXPECT_EQ(order, (std::vector<unsigned>{1, 0, 1, 0, 1, 0}));  // at 25, 30, 50, 60, 75, 90
}

TEST(TimedMachine, OrdersStreams) {
  TwoRanks ranks;
  ranks.launch(0, 0, [&] { ranks.machine.pass(1'000); });
  ranks.launch(0, 1, [&] { ranks.machine.pass(10); });
  ranks.machine.order(0, 0, 1);
  ranks.launch(0, 1, [&] { ranks.machine.pass(10); });
  ranks.machine.run();
  EXPECT_EQ(ranks.machine.begin(1), kCosts.launch);
  EXPECT_EQ(ranks.machine.begin(2), 2 * kCosts.launch + 1'000);
}

TEST(TimedMachine, SaysWhichLaunchDoesNotEnd) {
  TwoRanks ranks;
  ranks.launch(0, 0, [&] { ranks.wait_for(0, 1); });
  EXPECT_THROW(ranks.machine.run(), std::logic_error);
}

}  // namespace
}  // namespace weft::sim
