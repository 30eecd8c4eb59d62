// Warps of the simulator: exchanges between lanes, and errors that every schedule shows.
#include <gtest/gtest.h>

#include <functional>
#include <string_view>

#include "sim/team.hpp"

namespace weft::sim {
namespace {

// One block of four threads, which are two warps.
class Block final : public Program {
 public:
  using Team = SimTeam<16, 2>;
  using Body = std::function<void(const Team&)>;
  explicit Block(Body body) : body_(std::move(body)) {
    machine_.memory().add_area(
        {.begin = 0, .end = 64, .owner = 0, .kind = AreaKind::word, .name = [](std::size_t) { return "word"; }});
  }
  std::uint32_t* word() { return reinterpret_cast<std::uint32_t*>(machine_.memory().data()); }
  void run(unsigned thread, unsigned) override {
    body_(Team(machine_, {.block = 0, .blocks = 1, .thread = thread, .threads = 4, .host_epoch = 0}));
  }
  std::string check() override { return {}; }
  Failure explore(unsigned bound) {
    Scheduler scheduler = Scheduler::exhaustive(bound);
    Failure failure;
    while (!failure && scheduler.begin()) failure = machine_.run(*this, scheduler);
    return failure;
  }

 private:
  Machine machine_{{.bytes = 64, .rank_of = {0, 0, 0, 0}, .streams = {{{0b1111}}}, .lanes = 2}};
  Body body_;
};

TEST(Lanes, TellTheirWarpAndNobodyElse) {
  Block block([](const Block::Team& team) {
    const std::uint32_t own = 1u << team.thread_rank(), warp = team.thread_rank() / 2;
    EXPECT_EQ(team.sum_of(own, 2), warp == 0 ? 3u : 12u);
    EXPECT_EQ(team.sum_of(own, 1), own);
    EXPECT_EQ(team.or_of(own | 1), warp == 0 ? 3u : 13u);
    EXPECT_EQ(team.from_lane(own, 1), warp == 0 ? 2u : 8u);
    EXPECT_EQ(team.max_of(-static_cast<float>(own), 2), warp == 0 ? -1.0f : -4.0f);
    EXPECT_EQ(team.all_lanes(team.thread_rank() != 2), warp == 0);
  });
  EXPECT_EQ(block.explore(2).what, "");
}

TEST(Lanes, ThatNeverComeAreADeadlockByName) {
  Block block([](const Block::Team& team) { team.thread_rank() == 3 ? team.sync() : (void)team.or_of(1); });
  const Failure failure = block.explore(1);
  EXPECT_EQ(failure.kind, FailureKind::deadlock);
  EXPECT_EQ(failure.what, "nobody can go on: thread 3 does not come to or_of among 2 of its warp");
}

TEST(Lanes, ThatLeaveTheirWarpAreFound) {
  Block block([](const Block::Team& team) {
    if (team.thread_rank() != 1) static_cast<void>(team.or_of(1));
  });
  EXPECT_EQ(block.explore(1).what, "thread 1 leaves its warp, whose other lanes make or_of among 2");
}

TEST(Lanes, ThatAskForDifferentThingsAreFound) {
  Block block([](const Block::Team& team) { static_cast<void>(team.sum_of(1u, team.thread_rank() == 1 ? 1 : 2)); });
  EXPECT_EQ(block.explore(1).what, "thread 1: sum_of among 1 where other lanes of its warp make sum_of among 2");
}

// A lane need not see another lane's stores because they have met. Behind a barrier, of the warp or the block, it must.
TEST(Lanes, OrderNoMemoryWhenTheyMeet) {
  for (const std::string_view barrier : {"none", "warp", "block"}) {
    bool late = false;
    Block* self = nullptr;
    Block block([&](const Block::Team& team) {
      if (team.thread_rank() == 0) team.store(self->word(), 1u);
      static_cast<void>(team.or_of(0));
      if (barrier == "warp") team.sync_lanes();
      if (barrier == "block") team.sync();
      if (team.thread_rank() == 1) late |= team.load(self->word()) == 0;
    });
    self = &block;
    EXPECT_EQ(block.explore(1).what, "");
    EXPECT_EQ(late, barrier == "none") << barrier;
  }
}

// A lane sleeps in a waiting loop until news comes for it. It wakes when its warp waits for it.
TEST(Lanes, WakeWhenTheirWarpWaitsForThem) {
  Block* self = nullptr;
  Block block([&](const Block::Team& team) {
    if (team.thread_rank() == 2) team.store(self->word(), 1u);
    if (team.thread_rank() > 1) return;
    const auto look = [&] { return team.thread_rank() == 1 || team.load(self->word()) == 1; };
    while (!team.all_lanes(look())) team.relax(1);
  });
  self = &block;
  EXPECT_EQ(block.explore(3).what, "");
}

}  // namespace
}  // namespace weft::sim
