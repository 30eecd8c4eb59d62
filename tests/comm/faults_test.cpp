// Ranks are late, call something else, call twice at once, or give up. Every rank ends with an error that names the
// rank and the cause, and none waits for ever.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "support/cases.hpp"
#include "support/ranks.hpp"
#include "support/verdicts.hpp"
#include "support/world.hpp"
#include "tuning/tuning.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

// A call of `count` elements whose result nobody looks at.
void call(const Group& group, Case c) {
  Tensors tensors(c, input_of(c, group.rank()));
  all_reduce(group, arguments(c, tensors.input.content().data(), tensors.output.content().data()));
}

// All later calls of a rank report its first fault.
void expect_stays_dead(Communicator& communicator, const Fault& fault, const std::string& where) {
  for (int again = 0; again < 20; ++again) {
    try {
      call(communicator, {.count = 5});
      ADD_FAILURE() << where << ": a call after a fault succeeded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), fault.code) << where;
      EXPECT_EQ(error.fault().peer, fault.peer) << where;
      EXPECT_EQ(error.fault().epoch_wanted, fault.epoch_wanted) << where;
    }
  }
  const std::optional<Fault> status = communicator.status();
  ASSERT_TRUE(status.has_value()) << where;
  EXPECT_EQ(status->code, fault.code) << where;
  EXPECT_NE(error_of([&] { communicator.check(); }), "") << where;
}

// Runs with every algorithm, including those of switches.
class Faults : public testing::TestWithParam<Algorithm> {
 protected:
  static Config config(std::chrono::nanoseconds deadline) {
    Config config = cpu_config(deadline);
    config.multicast = detail::is_multimem(GetParam());
    return config;
  }
};
INSTANTIATE_TEST_SUITE_P(Algorithms, Faults,
                         testing::Values(Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined,
                                         Algorithm::multimem_one_shot, Algorithm::multimem_two_shot),
                         [](const auto& param) { return test_name(param.param); });

TEST_P(Faults, ALateRankIsNamedByTheOthersAndLearnsItToo) {
  constexpr int ranks = 3, late = 1;
  const Case c{.count = 200, .algorithm = GetParam(), .tag = 42};
  const Prepared prepared = prepare(c, ranks);
  auto communicators = Communicator::local(ranks, config(short_deadline));
  std::latch others_ended(ranks - 1);
  const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
    for (int i = 0; i < 5; ++i) run_on_cpu_rank(communicator, prepared, rank);
    if (rank == late) {
      others_ended.wait();
      call(communicator, c);
      return;
    }
    try {
      call(communicator, c);
      ADD_FAILURE() << "rank " << rank << " did not miss rank " << late;
    } catch (...) {
      others_ended.count_down();
      throw;
    }
    others_ended.count_down();
  });
  expect_late_rank_named(endings, late, 6, [&](int rank, const Error& error, const std::string& where) {
    const Fault& fault = error.fault();
    expect_blame(rank, late, error, where);
    expect_says(fault.operation, "all_reduce sum bf16[200]");
    expect_says(fault.operation, "tag 42");
    expect_says(error.what(), "last calls of this rank");
    if (fault.code == Errc::timeout) {
      expect_says(error.what(), "deadline " + std::to_string(short_deadline.count()) + " ms");
    } else {
      expect_says(error.what(), rank == late ? "reported: timeout of this rank" : "reported: timeout of rank 1");
    }
    expect_stays_dead(communicators[static_cast<std::size_t>(rank)], fault, where);
  });
}

TEST_P(Faults, EveryKindOfMismatchIsFoundByEveryRank) {
  constexpr int ranks = 3;
  for (const Mismatch& kind : every_mismatch(GetParam())) {
    for (int odd = 0; odd < ranks; ++odd) {
      Config small = config(short_deadline);
      small.one_shot_bytes = small.two_shot_bytes = 1024;
      const auto endings = run_world(ranks, small, [&](Communicator& communicator, int rank) {
        Case c{.count = 700, .algorithm = GetParam(), .tag = 8};
        call(communicator, c);
        if (rank == odd) kind.change(c);
        call(communicator, c);
      });
      expect_mismatch_found(endings, odd, kind.name, [](int, const Error& error, const std::string& where) {
        if (error.code() != Errc::mismatch) return;
        // In words, also what this rank has never called.
        expect_says(error.fault().theirs, "all_reduce ");
        EXPECT_EQ(std::string(error.what()).find("fingerprint"), std::string::npos) << where << ": " << error.what();
      });
    }
  }
}

TEST_P(Faults, AMissingCallShowsAtTheNextOne) {
  constexpr int ranks = 3, forgetful = 2;
  const auto endings = run_world(ranks, config(short_deadline), [&](Communicator& communicator, int rank) {
    for (std::uint32_t i = 0; i < 6; ++i) {
      if (rank != forgetful || i != 3) call(communicator, {.count = 90, .algorithm = GetParam(), .tag = i});
    }
  });
  for (int rank = 0; rank < ranks; ++rank) {
    const Ending& ending = endings[static_cast<std::size_t>(rank)];
    expect_fault(ending, kEndsOfAMismatch, "rank " + std::to_string(rank));
    if (!ending.error || ending.error->code() != Errc::mismatch || rank == forgetful) continue;
    EXPECT_EQ(ending.error->fault().peer, forgetful);
  }
}

TEST_P(Faults, ALastCallThatOneRankDoesNotMakeIsMissed) {
  const auto endings = run_world(2, config(short_deadline), [&](Communicator& communicator, int rank) {
    call(communicator, {.count = 90, .algorithm = GetParam()});
    if (rank == 0) call(communicator, {.count = 90, .algorithm = GetParam()});
  });
  expect_fault(endings[0], {Errc::timeout}, "rank 0");
  EXPECT_EQ(endings[1].what, "");
}

// Switches only serve the world, so the other rank calls a one-shot of the group.
TEST_P(Faults, GroupsInAnotherOrderEndInTime) {
  const auto endings = run_world(2, config(short_deadline), [&](Communicator& communicator, int rank) {
    const Group group = communicator.split(0);
    const Case of_world{.count = 90, .algorithm = GetParam()};
    Case of_group = of_world;
    if (detail::is_multimem(GetParam())) of_group.algorithm = Algorithm::one_shot;
    if (rank == 0) call(group, of_group);
    call(communicator.world(), of_world);
    if (rank != 0) call(group, of_group);
  });
  for (const Ending& ending : endings) expect_fault(ending, kEndsOfAMismatch, "groups in another order");
}

TEST(FaultsOfGroups, EndTheWorldAndTheOtherGroups) {
  constexpr int ranks = 4;
  auto communicators = Communicator::local(ranks, cpu_config(short_deadline));
  std::latch failed(2);
  const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
    const Group group = communicator.split(rank / 2);
    if (rank < 2) {  // the first group makes different calls and fails
      try {
        call(group, {.count = 50, .tag = static_cast<std::uint32_t>(rank)});
      } catch (...) {
        failed.count_down();
        throw;
      }
      return;
    }
    failed.wait();
    call(group, {.count = 50});
  });
  for (int rank = 0; rank < ranks; ++rank) {
    expect_fault(endings[static_cast<std::size_t>(rank)], rank < 2 ? kEndsOfAMismatch : std::vector{Errc::peer_failed},
                 "rank " + std::to_string(rank));
  }
}

// ----------------------------------------------------------------------------------------------------------------
// abort

TEST_P(Faults, AbortFromAnotherThreadEndsRanksThatWait) {
  constexpr int ranks = 3;
  for (int from = 0; from < ranks; ++from) {
    auto communicators = Communicator::local(ranks, config(0ns));  // no deadline
    std::atomic<int> waiting = 0;
    std::jthread other([&] {
      while (waiting < ranks - 1) std::this_thread::yield();
      std::this_thread::sleep_for(5ms);
      communicators[static_cast<std::size_t>(from)].abort();
    });
    const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
      const Case c{.count = 100, .algorithm = GetParam()};
      call(communicator, c);
      if (rank == 2) {
        other.join();
      } else {
        ++waiting;
      }
      call(communicator, c);
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string where = "abort on rank " + std::to_string(from) + ": rank " + std::to_string(rank);
      const Ending& ending = endings[static_cast<std::size_t>(rank)];
      expect_fault(ending, {Errc::aborted}, where);
      if (!ending.error) continue;
      EXPECT_EQ(ending.error->fault().peer, from) << where;
      expect_stays_dead(communicators[static_cast<std::size_t>(rank)], ending.error->fault(), where);
    }
  }
}

TEST(Abort, BeforeTheFirstCallAndBetweenCalls) {
  for (const int before : {0, 1, 2}) {
    for (const int ranks : {1, 2, 4}) {
      auto communicators = Communicator::local(ranks, cpu_config(0ns));
      run_world(communicators, [&](Communicator& communicator, int) {
        for (int i = 0; i < before; ++i) call(communicator, {.count = 100});
      });
      communicators.back().abort();
      for (const Ending& ending :
           run_world(communicators, [](Communicator&communicator, int) { call(communicator, {.count = 100}); })) {
        expect_fault(ending, {Errc::aborted}, std::to_string(ranks) + " ranks after " + std::to_string(before));
      }
    }
  }
}

TEST(Abort, HoldsOverReleaseAndAcquire) {
  for (const bool asleep : {false, true}) {
    auto communicators = Communicator::local(2, cpu_config(0ns));
    const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
      if (!asleep && rank == 0) communicator.abort();
      communicator.release();
      if (asleep && rank == 0) communicator.abort();
      communicator.acquire();
      call(communicator, {.count = 100});
    });
    for (const Ending& ending : endings) expect_fault(ending, {Errc::aborted}, asleep ? "asleep" : "awake");
  }
}

TEST(Abort, FromManyThreadsAtOnceWhileAllWork) {
  auto communicators = Communicator::local(3, cpu_config(0ns));
  std::atomic<int> calls = 0;
  std::vector<std::jthread> threads;
  for (Communicator& communicator : communicators) {
    threads.emplace_back([&] {
      while (calls < 300) std::this_thread::yield();
      communicator.abort();
    });
  }
  const auto endings = run_world(communicators, [&](Communicator& communicator, int) {
    for (;;) {
      call(communicator, {.count = 40});
      ++calls;
    }
  });
  for (const Ending& ending : endings) expect_fault(ending, {Errc::aborted}, "many threads");
}

// --------------------------------------------------------------------------------------------------------------
// overlap

TEST_P(Faults, TwoThreadsInOneGroupAreFound) {
  auto communicators = Communicator::local(2, config(short_deadline));
  std::latch ended(2);
  const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
    const Case c{.count = 100, .algorithm = GetParam()};
    if (rank == 1) {
      ended.wait();  // the first call of rank 0 is still running when its second begins
      call(communicator, c);
      return;
    }
    const auto errors = run_ranks(2, [&](int) { call(communicator, c); });
    ended.count_down(2);
    for (const std::string& error : errors) expect_says(error, "overlap");
    communicator.check();
  });
  expect_fault(endings[0], {Errc::overlap}, "the rank with two threads");
  expect_fault(endings[1], {Errc::peer_failed}, "its peer");
}

// Status from other threads is safe at any time. It is empty while there is no fault.
TEST(Status, MayBeAskedFromAnyThread) {
  auto communicators = Communicator::local(2, cpu_config());
  std::atomic<bool> done = false;
  std::vector<std::jthread> threads;
  for (Communicator& communicator : communicators) {
    threads.emplace_back([&] {
      while (!done) {
        EXPECT_FALSE(communicator.status().has_value());
        EXPECT_LE(communicator.world().recent_calls().size(), 32u);
        std::this_thread::yield();  // ranks and these threads may share one core
      }
    });
  }
  expect_all_well(run_world(communicators, [](Communicator& communicator, int) {
    for (int i = 0; i < repeated(500); ++i) call(communicator, {.count = 64});
  }));
  done = true;
}

}  // namespace
}  // namespace weft::test
