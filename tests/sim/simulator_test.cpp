// The simulator: its failures can be repeated, are small, and are described in words.
#include "sim/explore.hpp"

#include <gtest/gtest.h>

#include "mutant_number.hpp"
#include "sim/fault_setups.hpp"
#include "telling.hpp"
#include "weft/error.hpp"

namespace weft::sim {
namespace {

TEST(Schedules, AreReadAsTheyAreWritten) {
  const Schedule schedule{{2, 17, 1}, {0, 4, 3}, {63, 0, 9}};
  EXPECT_EQ(to_string(schedule), "2.17=1,0.4=3,63.0=9");
  EXPECT_EQ(parse_schedule(to_string(schedule)), schedule);
  EXPECT_TRUE(parse_schedule("").empty());
  for (const char* bad : {"1", "1.2", "1.2=", "1.2=3,", "a.2=3", "64.1=1", "1.2=3;1.3=1"}) {
    EXPECT_THROW(parse_schedule(bad), Error) << bad;
  }
}

TEST(Simulator, SameSeedSameExecutions) {
  const sim::Setup& setup = find_setup("two-shot-f32-torn4-grids-ranks3");
  const ExploreArgs args{.strategy = Strategy::random, .seed = 5, .executions = 200};
  AllReduceProgram program(setup), another(setup);
  const std::uint64_t first = explore(program, args).steps;
  EXPECT_EQ(explore(program, args).steps, first);
  EXPECT_EQ(explore(another, args).steps, first);
  EXPECT_NE(explore(program, {.strategy = Strategy::random, .seed = 6, .executions = 200}).steps, first);
}

TEST_F(WithMutant, FailureIsShrunkAndRepeatsWithATrace) {
  const sim::Setup& setup = find_setup("one-shot-bf16");
  detail::active_mutant = mutant_number("one bank");
  AllReduceProgram program(setup);
  const Report report = explore(program, {.strategy = Strategy::random, .seed = 1, .executions = 10'000});
  ASSERT_TRUE(report.failure);
  EXPECT_EQ(report.failure.kind, FailureKind::broken_rule) << report.failure.what;
  EXPECT_LE(report.schedule.size(), 4u) << to_string(report.schedule);
  const Report again = replay(program, parse_schedule(to_string(report.schedule)));
  EXPECT_EQ(again.failure.what, report.failure.what);
  EXPECT_EQ(again.trace, report.trace);
  EXPECT_NE(again.trace.back().find("one_shot[bank 0]"), std::string::npos) << again.trace.back();
}

// A bug that every schedule shows shrinks to the ordinary schedule, an empty list of choices.
TEST_F(WithMutant, FailureIsToldWithTheSeedAndTheCommandThatRepeatsIt) {
  detail::active_mutant = mutant_number("header after waiting");
  AllReduceProgram program(find_setup("one-shot-bf16"));
  const ExploreArgs args{.strategy = Strategy::random, .seed = 5, .executions = 10'000};
  const Report report = explore(program, args);
  EXPECT_TRUE(report.schedule.empty()) << to_string(report.schedule);
  const std::string text = story("one-shot-bf16", args, report);
  EXPECT_NE(text.find("found in execution 1 of --scheduler random --seed 5\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  weft simulate --protocol one-shot-bf16 --replay ''\n"), std::string::npos) << text;
  EXPECT_EQ(replay(program, {}).failure.what, report.failure.what);
}

// The same if a rank stops: the step at which it stops is part of the failure.
TEST_F(WithMutant, FailureAfterADeathIsShrunkAndRepeats) {
  detail::active_mutant = mutant_number("no second look at the dead");
  const sim::Setup& setup = find_setup("dies-one-shot-ranks2");
  AllReduceProgram program(setup);
  const ExploreArgs args{.strategy = Strategy::random, .seed = 11, .executions = 8};
  const Report report = explore(program, args);
  ASSERT_TRUE(report.failure);
  EXPECT_NE(report.stop, 0u);
  EXPECT_LE(report.schedule.size(), 4u) << to_string(report.schedule);
  const Report again = replay(program, report.schedule, report.stop);
  EXPECT_EQ(again.failure.what, report.failure.what);
  EXPECT_EQ(again.trace, report.trace);
  const std::string text = story(setup.name, args, report), places = fmt::format("--stop {} --replay '", report.stop);
  EXPECT_NE(text.find("weft simulate --protocol dies-one-shot-ranks2 " + places), std::string::npos) << text;
  EXPECT_NE(text.find("is told that rank 1 is gone"), std::string::npos) << text;
}

TEST(Simulator, StopsOnlyWhoStopsInTheSetup) {
  AllReduceProgram program(find_setup("one-shot-bf16"));
  EXPECT_THROW(replay(program, {}, 3), Error);
}

TEST(Simulator, ReplayNamesChoicesThatItNeverCameTo) {
  AllReduceProgram program(find_setup("one-shot-bf16"));
  const Report report = replay(program, parse_schedule("9.1=1,0.0=1,63.5=2,0.1000000=1"));
  EXPECT_EQ(to_string(report.schedule), "0.0=1");
  EXPECT_EQ(to_string(report.unused), "9.1=1,63.5=2,0.1000000=1");
  EXPECT_FALSE(report.failure) << report.failure.what;
}

// A torn pack needs a load that reads one unit late, which the ordinary schedule does not have.
TEST_F(WithMutant, ExhaustiveSearchFindsWhatNeedsAFewChoices) {
  detail::active_mutant = mutant_number("arrival of one unit only");
  AllReduceProgram program(find_setup("one-shot-bf16-torn8"));
  const Report none = explore(program, {.strategy = Strategy::exhaustive, .executions = 1'000'000, .bound = 0});
  EXPECT_TRUE(none.complete);
  EXPECT_FALSE(none.failure) << none.failure.what;
  EXPECT_EQ(none.executions, 1u);
  const Report found = explore(program, {.strategy = Strategy::exhaustive, .executions = 1'000'000, .bound = 2});
  EXPECT_TRUE(found.failure);
}

TEST_F(WithMutant, DeadlockIsFoundAtOnce) {
  detail::active_mutant = mutant_number("header after waiting");
  AllReduceProgram program(find_setup("one-shot-bf16"));
  const Report report = explore(program, {.strategy = Strategy::random, .seed = 1, .executions = 1});
  EXPECT_EQ(report.failure.kind, FailureKind::deadlock);
  EXPECT_LT(report.steps, 1'000u);
}

// Two threads that wake each other. Each stores a number when it has seen the other's last one, up to `last`.
class Talk final : public Program {
 public:
  Talk(Machine& machine, std::uint32_t last) : machine_(machine), last_(last) {
    machine.memory().add_area(
        {.begin = 0, .end = 64, .owner = 0, .kind = AreaKind::word, .name = [](std::size_t) { return "word"; }});
  }
  void run(unsigned thread, unsigned) override {
    auto* const words = reinterpret_cast<std::uint32_t*>(machine_.memory().data());
    for (std::uint32_t number = 1; number <= last_; ++number) {
      machine_.store(words + thread * 8, number);
      while (machine_.load(words + (1 - thread) * 8) < number) machine_.relax();
    }
  }
  std::string check() override { return {}; }

 private:
  Machine& machine_;
  std::uint32_t last_;
};

TEST(Simulator, ThreadsThatWakeEachOtherForEverAreALivelock) {
  Machine machine({.bytes = 64, .rank_of = {0, 0}, .streams = {{{bit(0)}}, {{bit(1)}}}});
  Talk endless(machine, ~0u), short_one(machine, 1'000);
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Scheduler scheduler = Scheduler::random(seed);
    scheduler.begin();
    const Failure failure = machine.run(endless, scheduler);
    EXPECT_EQ(failure.kind, FailureKind::livelock) << failure.what;
    scheduler.begin();
    EXPECT_FALSE(machine.run(short_one, scheduler));
  }
}

// Reads memory outside every area.
class Astray final : public Program {
 public:
  explicit Astray(Machine& machine) : machine_(machine) {}
  void run(unsigned, unsigned) override {
    machine_.load(reinterpret_cast<const std::uint32_t*>(machine_.memory().data()));
  }
  std::string check() override { return {}; }

 private:
  Machine& machine_;
};

TEST(Simulator, ItsOwnFailureIsNoFind) {
  Machine machine({.bytes = 64, .rank_of = {0}, .streams = {{{bit(0)}}}});
  Astray program(machine);
  Scheduler scheduler = Scheduler::random(1);
  scheduler.begin();
  const Failure failure = machine.run(program, scheduler);
  EXPECT_EQ(failure.kind, FailureKind::internal) << failure.what;
  EXPECT_FALSE(is_find(failure));
  EXPECT_TRUE(is_find({FailureKind::deadlock, "nobody can go on"}));
  EXPECT_FALSE(is_find({}));
}

// Some torn packs show the bug: the count equals the failures of single runs.
TEST_F(WithMutant, FailuresAreCounted) {
  const sim::Setup& setup = find_setup("one-shot-bf16-torn8");
  detail::active_mutant = mutant_number("arrival of one unit only");
  AllReduceProgram program(setup);
  ExploreArgs args{.strategy = Strategy::random, .seed = 1, .executions = 300};
  const Report first = explore(program, args);
  args.counts = true;
  const Report all = explore(program, args);
  EXPECT_EQ(all.executions, 300u);
  EXPECT_EQ(all.first, first.executions);
  EXPECT_GT(all.failures, 1u);
  EXPECT_LT(all.failures, all.executions);
}

// One rank sends a number and stops. Its peer looks for the number, asks whether the rank is dead, and looks again.
class Farewell final : public Program {
 public:
  explicit Farewell(Machine& machine) : machine_(machine) {
    machine.memory().add_area(
        {.begin = 0, .end = 64, .owner = 1, .kind = AreaKind::word, .name = [](std::size_t) { return "word"; }});
  }
  void run(unsigned thread, unsigned) override {
    auto* const word = reinterpret_cast<std::uint32_t*>(machine_.memory().data());
    if (thread == 0) {
      machine_.store(word, 1u);
      machine_.load(word);
      return;
    }
    const bool before = machine_.load(word) != 0, gone = machine_.dead_peer() == 0;
    const bool after = machine_.load(word) != 0;
    lost_ = gone && !after;
    late_ = late_ || (gone && !before && after);
    none_ = none_ || (!gone && !after);
  }
  std::string check() override { return lost_ ? "what a rank sent before it was gone is not there" : ""; }
  bool saw_all() const { return late_ && none_; }

 private:
  Machine& machine_;
  bool lost_ = false, late_ = false, none_ = false;
};

TEST(Simulator, WhatWasSentBeforeADeathIsThereAfterTheNotice) {
  Machine machine({.bytes = 64, .rank_of = {0, 1}, .streams = {{{bit(0)}}, {{bit(1)}}}});
  Farewell program(machine);
  Scheduler scheduler = Scheduler::exhaustive(64);
  while (scheduler.begin()) {
    // The second step never runs.
    const Failure failure = machine.run(program, scheduler, Stop{.stream = 0, .step = 2, .dead_rank = 0});
    ASSERT_FALSE(failure) << failure.what;
  }
  EXPECT_TRUE(program.saw_all());
}

TEST_F(WithMutant, AMutantThatIsOffChangesNothing) {
  AllReduceProgram program(find_setup("two-shot-i32-torn8"));
  EXPECT_FALSE(explore(program, {.strategy = Strategy::random, .seed = 1, .executions = 500}).failure);
}

// A line needs units of 8 bytes. Smaller units are not promised, and the simulator shows why.
TEST(Simulator, ShowsThatALineNeedsItsGranularity) {
  sim::Setup setup = find_setup("one-shot-i32");
  setup.atomic_bytes = 4;
  AllReduceProgram program(setup);
  EXPECT_TRUE(explore(program, {.strategy = Strategy::random, .seed = 1, .executions = 10'000}).failure);
}

// Calls surely overlap while their control blocks do. A call that only overlaps with data blocks of the call before may
// go unnoticed, and the simulator shows it (docs/reliability.md).
TEST(Simulator, ShowsThatOverlapOfDataBlocksAloneIsNotNoticed) {
  AllReduceProgram program(unordered_setup());
  const Report report = explore(program, {.strategy = Strategy::pct, .seed = 1, .executions = 20'000});
  EXPECT_NE(report.failure.what.find("nobody has noticed that calls overlap"), std::string::npos)
      << report.executions << ": " << report.failure.what;
}

// Blocks 2 to 255 never run in these set-ups, so only their words reveal the bug. They also do if a rank was slow, and
// if a rank might have stopped but did not.
TEST_F(WithMutant, EpochsOfBlocksThatNeverRunAreLookedAt) {
  detail::active_mutant = mutant_number("epochs of unlaunched blocks stay");
  for (const char* const name : {"one-shot-bf16", "slow-one-shot-ranks2", "stops-one-shot-ranks2"}) {
    AllReduceProgram program(find_setup(name));
    const Report report = replay(program, {});
    EXPECT_NE(report.failure.what.find("epochs[2] is 0x"), std::string::npos) << name << report.failure.what;
  }
}

TEST(Simulator, RefusesUnitsThatAnOperationIsNotFor) {
  for (const char* const name : {"all-gather-one-go", "rms-norm-one-shot-bf16", "moe-exact"}) {
    sim::Setup setup = find_setup(name);
    setup.atomic_bytes = 4;
    EXPECT_THROW(AllReduceProgram{setup}, Error) << name;
  }
  for (const char* const name : {"all-gather-one-go-cpu", "rms-norm-one-shot-cpu", "one-shot-cpu"}) {
    sim::Setup setup = find_setup(name);
    for (const int unit : {3, 4, 16}) {
      setup.atomic_bytes = unit;
      EXPECT_THROW(AllReduceProgram{setup}, Error) << name << unit;
    }
  }
}

TEST(Simulator, NamesUnknownSetups) {
  EXPECT_THROW(find_setup("three-shot"), Error);
}

}  // namespace
}  // namespace weft::sim
