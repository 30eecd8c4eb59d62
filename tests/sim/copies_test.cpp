// Copies in bulk of the simulator: what they promise, and which bugs of their users are found in some schedule.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string_view>

#include "copying.hpp"

namespace weft::sim {
namespace {

TEST(Copies, BringMemoryToAPlaceAndAPlaceToMemory) {
  Warp warp([](Warp& self, const Warp::Team& team, unsigned) {
    team.begin_stage();
    team.load_bulk(0, self.pack(0), 32);
    team.load_bulk(1, self.pack(2), 16);
    team.await_load(1);
    team.await_load(0);
    self.expect(all_are(staged(team, 0), 16) && all_are(team.staged<Pack>(0, 1), 17), "place 0 is wrong");
    self.expect(all_are(staged(team, 1), 18), "place 1 is wrong");
    team.sync_lanes();
    team.stage(0, 1 + team.thread_rank(), 100 + team.thread_rank());  // two words of its first pack
    team.fence_stage();
    team.sync_lanes();
    if (team.thread_rank() == 1) {
      team.store_bulk(self.pack(4), 0, 32);
      team.store_bulk(self.pack(6), 1, 16);
      team.commit_stores();
      team.await_reads<0>();
    }
    team.sync_lanes();
    team.load_bulk(0, self.pack(3), 16);
    team.end_stage();
    if (team.thread_rank() == 0) return;
    self.expect(same(team.get(self.pack(4)), {{16, 100, 101, 16}}) && all_are(team.get(self.pack(5)), 17) &&
                    all_are(team.get(self.pack(6)), 18),
                "the packs that were stored are wrong");
  });
  for (const unsigned bound : {0u, 8u}) EXPECT_EQ(warp.explore(bound).what, "") << bound;
}

// A load is made at once or when it is awaited: both are seen. Memory of one rank alone has no places.
TEST(Copies, AreMadeAtOnceOrLate) {
  const auto seen = [](Scheduler scheduler, unsigned executions) {
    alignas(16) Pack own{};
    std::set<std::uint32_t> values;
    Warp warp([&](Warp&, const Warp::Team& team, unsigned) {
      if (team.thread_rank() == 0) own = {{1, 1, 1, 1}};
      team.begin_stage();
      team.load_bulk(0, &own, 16);
      if (team.thread_rank() == 0) own.word[0] = 2;
      team.await_load(0);
      if (team.thread_rank() == 0) values.insert(staged(team, 0).word[0]);
      team.end_stage();
    });
    for (unsigned i = 0; i < executions && scheduler.begin(); ++i) {
      const Failure failure = warp.once(scheduler);
      EXPECT_EQ(failure.what, "");
    }
    return values;
  };
  const std::set<std::uint32_t> early{1}, both{1, 2};
  EXPECT_EQ(seen(Scheduler::exhaustive(0), 10), early);
  EXPECT_EQ(seen(Scheduler::exhaustive(1), 1000), both);
  EXPECT_EQ(seen(Scheduler::random(1), 30), both);
  EXPECT_EQ(seen(Scheduler::pct(1, 2), 30), both);
}

TEST(Copies, AreInTraces) {
  Warp warp([](Warp& self, const Warp::Team& team, unsigned) {
    team.begin_stage();
    team.fence_bulk();
    team.load_bulk(0, self.pack(0), 16);
    team.await_load(0);
    if (team.thread_rank() == 0) team.store_bulk(self.pack(1), 0, 16);
    team.commit_stores();
    team.end_stage();
  });
  std::vector<std::string> lines;
  warp.machine().trace_into(&lines, {"lane 0", "lane 1"});
  Scheduler scheduler = Scheduler::replay({});
  scheduler.begin();
  EXPECT_FALSE(warp.once(scheduler));
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  for (const char* part : {"lane 0 fence_bulk", "lane 0 load_bulk to place 0, 16 bytes\n", "load.bulk     pack 0 =",
                           "lane 0 store_bulk from place 0, 16 bytes\n", "store.bulk    pack 1 ="}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(Copies, ThatOneLaneDoesNotCallAreFound) {
  Warp leaves([](Warp& self, const Warp::Team& team, unsigned) {
    team.begin_stage();
    if (team.thread_rank() == 0) return;
    team.load_bulk(0, self.pack(0), 16);
    team.await_load(0);
  });
  const std::set<std::string> both{"thread 0: place 0 of its warp's stage is loaded by other lanes only",
                                   "thread 1: place 0 of its warp's stage is loaded when a lane has left its launch"};
  EXPECT_EQ(leaves.failures(2), both);
  Warp waits([](Warp& self, const Warp::Team& team, unsigned) {
    team.begin_stage();
    if (team.thread_rank() == 0) team.sync();
    team.load_bulk(0, self.pack(0), 16);
    team.end_stage();
  });
  EXPECT_EQ(waits.explore(1).what,
            "nobody can go on: thread 1 awaits the load of place 0, which thread 0 does not begin");
}

// A call's copies come behind all of the call before, and before all of the next one, without any fence.
TEST(Copies, AreOrderedByLaunches) {
  Tiny<Shape::two_threads, 8> ranks(
      [](auto& self, const auto& team, unsigned rank) {
        if (rank == 1) return;
        team.begin_stage();
        if (self.launch(rank) == 0) team.put(self.pack(0), {{1, 1, 1, 1}});
        if (self.launch(rank) == 1) {
          team.load_bulk(0, self.pack(0), 16);
          team.await_load(0);
          self.expect(all_are(staged(team, 0), 1), "a load does not see the launch before");
          team.store_bulk(self.pack(1), 0, 16);
          team.commit_stores();
        }
        if (self.launch(rank) == 2) {
          self.expect(all_are(team.get(self.pack(1)), 1), "a store is not seen by the next launch");
        }
        team.end_stage();
      },
      3);
  EXPECT_EQ(ranks.explore(8).what, "");
}

// A rank sends packs by copies, and then announces them. `wrong` leaves out or moves a step.
using Two = Tiny<Shape::two_threads, 8>;
Two::Body send(std::string_view wrong) {
  return [wrong](Two& self, const Two::Team& team, unsigned rank) {
    if (rank == 1) {
      while (team.load_acquire(self.word(0)) == 0) team.relax(1);
      self.expect(all_are(team.get(self.pack(0)), 1), "the first pack has not come");
      if (team.load_acquire(self.word(1)) != 0) self.expect(all_are(team.get(self.pack(1)), 2), "the second has not");
      return;
    }
    team.begin_stage();
    for (const unsigned i : {0u, 1u}) {
      team.stage(i, 0, Pack{{i + 1, i + 1, i + 1, i + 1}});
      team.fence_stage();
      team.store_bulk(self.pack(i), i, 16);
      if (wrong != "one group" || i == 1) team.commit_stores();
    }
    if (wrong == "release first") team.store_release(self.word(0), std::uint64_t{1});
    if (wrong == "reads") {
      team.await_reads<1>();
    } else if (wrong != "too many pending") {
      team.await_stores<1>();
    } else {
      team.await_stores<2>();
    }
    team.store_release(self.word(0), std::uint64_t{1});
    if (wrong == "second too early") team.store_release(self.word(1), std::uint64_t{1});
    team.end_stage();
    team.store_release(self.word(1), std::uint64_t{1});
  };
}
TEST(Copies, AreReleasedBehindTheAwait) {
  EXPECT_EQ(Two(send("")).explore(8).what, "");
  for (const std::string_view wrong : {"release first", "reads", "too many pending", "one group"}) {
    EXPECT_EQ(Two(send(wrong)).explore(2).what, "the first pack has not come") << wrong;
  }
  EXPECT_EQ(Two(send("second too early")).explore(2).what, "the second has not");
}

// A lane publishes what another one has copied, behind a barrier.
TEST(Copies, OfOneLaneAreReleasedByAnotherBehindABarrier) {
  using Warps = Tiny<Shape::two_warps>;
  for (const bool barrier : {true, false}) {
    Warps warps([barrier](Warps& self, const Warps::Team& team, unsigned rank) {
      if (rank == 1) {
        if (team.thread_rank() == 1) return;
        while (team.load_acquire(self.word(0)) == 0) team.relax(1);
        return self.expect(all_are(team.get(self.pack(0)), 0xdeadc0de), "nothing has come");
      }
      team.begin_stage();
      if (team.thread_rank() == 0) {
        team.store_bulk(self.pack(0), 0, 16);
        team.commit_stores();
        team.template await_stores<0>();
      }
      barrier ? team.sync_lanes() : (void)team.or_of(1);
      if (team.thread_rank() == 1) team.store_release(self.word(0), std::uint64_t{1});
      team.end_stage();
    });
    EXPECT_EQ(warps.explore(4).what, barrier ? "" : "nothing has come");
  }
}

// A load of what an acquire has made known needs fence_bulk in between, by the lane that begins the load. A lane that
// another one's acquire has told needs a barrier before its fence.
TEST(Copies, SeeWhatWasAcquiredBehindAFence) {
  using Warps = Tiny<Shape::two_warps>;
  for (const std::string_view how : {"right", "no fence", "fence first", "fence of the other lane", "no barrier"}) {
    Warps warps([how](Warps& self, const Warps::Team& team, unsigned rank) {
      if (rank == 0) {
        if (team.thread_rank() == 1) return;
        team.put(self.pack(0), {{1, 1, 1, 1}});
        return team.store_release(self.word(0), std::uint64_t{1});
      }
      team.begin_stage();
      if (how == "fence first") team.fence_bulk();
      // Lane 1 acquires, and lane 0 begins the load.
      const auto look = [&] { return team.thread_rank() == 0 || team.load_acquire(self.word(0)) == 1; };
      while (!team.all_lanes(look())) team.relax(1);
      if (how != "no barrier") team.sync_lanes();
      if (how == "right" || how == "no barrier") team.fence_bulk();
      if (how == "fence of the other lane" && team.thread_rank() == 1) team.fence_bulk();
      team.load_bulk(0, self.pack(0), 16);
      team.await_load(0);
      self.expect(all_are(staged(team, 0), 1), "an old pack was loaded");
      team.end_stage();
    });
    EXPECT_EQ(warps.explore(4).what, how == "right" ? "" : "an old pack was loaded") << how;
  }
}

// A ring of one place. The sender copies a pack into it, and waits for a credit before the next one. The receiver
// copies it out, and frees the place.
Two::Body ring(std::string_view wrong, bool rests) {
  return [wrong, rests](Two& self, const Two::Team& team, unsigned rank) {
    constexpr std::uint64_t kMessages = 2;
    team.begin_stage();
    for (std::uint64_t i = 1; i <= kMessages; ++i) {
      const auto number = static_cast<std::uint32_t>(i);
      if (rank == 0) {
        team.stage(0, 0, Pack{{number, number, number, number}});
        team.fence_stage();
        while (team.load_acquire(self.word(1)) != i - 1) team.relax(1);
        if (wrong != "no fence behind the credit") team.fence_bulk();
        team.store_bulk(self.pack(0), 0, 16);
        team.commit_stores();
        team.await_stores<0>();
        team.store_release(self.word(0), i);
        continue;
      }
      while (team.load_acquire(self.word(0)) != i) team.relax(1);
      if (wrong != "no fence behind the signal") team.fence_bulk();
      team.load_bulk(0, self.pack(0), 16);
      if (wrong == "credit before the load") team.store_release(self.word(1), i);
      team.await_load(0);
      self.expect(all_are(staged(team, 0), number), "another pack was loaded");
      if (rests) team.put(self.pack(0), detail::kRestPack);
      if (wrong != "credit before the load") team.store_release(self.word(1), i);
    }
    team.end_stage();
  };
}
TEST(Copies, ThroughARingOfOnePlace) {
  for (const bool rests : {false, true}) {
    const AreaKind kind = rests ? AreaKind::slot : AreaKind::word;
    const auto found = [&](std::string_view wrong) {
      return Two(ring(wrong, rests), 1, kind).explore(wrong.empty() ? 6 : 2).what;
    };
    EXPECT_EQ(found(""), "") << rests;
    EXPECT_NE(found("no fence behind the signal"), "") << rests;
    EXPECT_NE(found("credit before the load"), "") << rests;
    // Behind such a load nobody has stored what the next copy might come before.
    EXPECT_EQ(found("no fence behind the credit").empty(), !rests);
  }
  EXPECT_EQ(Two(ring("credit before the load", false)).explore(2).what, "another pack was loaded");
}

// A wait that looks at memory by copies sleeps, and wakes for news.
TEST(Copies, WakeAWaitThatReadsByThem) {
  Two ranks([](Two& self, const Two::Team& team, unsigned rank) {
    if (rank == 0) return team.put(self.pack(0), {{1, 1, 1, 1}});
    team.begin_stage();
    for (;;) {
      team.load_bulk(0, self.pack(0), 16);
      team.await_load(0);
      if (all_are(staged(team, 0), 1)) break;
      team.relax(1);
    }
    team.end_stage();
  });
  EXPECT_EQ(ranks.explore(8).what, "");
}

// The lane that begins a load need not be the first one that awaits it.
TEST(Copies, WakeTheLanesThatAwaitThem) {
  Warp warp([](Warp& self, const Warp::Team& team, unsigned) {
    team.begin_stage();
    team.load_bulk(0, self.pack(0), 16);
    if (team.thread_rank() == 1) team.await_load(0);
    team.sync();
    team.end_stage();
  });
  EXPECT_EQ(warp.explore(8).what, "");
}

// A rank stops at each of its steps. Its late copies are not made then, nor in the next execution.
TEST(Copies, OfARankThatStopsAreNotMadeLater) {
  unsigned half = 0, lost = 0;
  Two ranks([&](Two& self, const Two::Team& team, unsigned rank) {
    if (rank == 0) {
      team.begin_stage();
      team.stage(0, 0, Pack{{1, 1, 1, 1}});
      team.fence_stage();
      team.store_bulk(self.pack(0), 0, 16);
      team.commit_stores();
      team.store(self.word(0), std::uint64_t{1});
      return team.end_stage();
    }
    if (team.dead_peer() != 0) return;
    const Pack pack = team.get(self.pack(0));
    self.expect(same(pack, self.newest(0)), "a store from before the death is not seen");
    half += pack.word[0] != pack.word[2];
    lost += pack.word[0] == 16 && team.load(self.word(0)) == 1;
  });
  for (std::uint64_t step = 1; step <= 4; ++step) {
    EXPECT_EQ(ranks.explore(2, Stop{.stream = 0, .step = step, .dead_rank = 0}).what, "") << step;
    EXPECT_EQ(ranks.explore(1).what, "") << step;
  }
  EXPECT_GT(half, 0u);
  EXPECT_GT(lost, 0u);
}

TEST(Copies, NeedAMachineForThem) {
  Machine machine({.bytes = 64, .rank_of = {0}, .streams = {{{1}}}});
  EXPECT_THROW(machine.copies(), std::logic_error);
}

}  // namespace
}  // namespace weft::sim
