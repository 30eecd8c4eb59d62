// Slow, stopping and different ranks: the others end, in bounded steps, with an error that names who is to blame.
#include <gtest/gtest.h>

#include "inject.hpp"
#include "telling.hpp"

namespace weft::sim {
namespace {

std::string case_name(const testing::TestParamInfo<FaultArgs>& info) {
  const FaultArgs& c = info.param;
  return identifier(c.kind + "_" + c.protocol + "_ranks" + std::to_string(c.ranks) + (c.one_thread ? "_cpu" : "") +
                    (c.first ? "_first" : ""));
}

std::vector<FaultArgs> cases() {
  std::vector<FaultArgs> all;
  for (const char* kind : {"stops", "dies", "aborted", "aborts", "mismatch", "ahead", "host reads", "overlap"}) {
    for (const std::string& protocol : fault_protocols()) {
      // What overlaps are calls of one group, and those of an exchange are of two.
      if (protocol == "moe" && kind == std::string("overlap")) continue;
      for (const unsigned ranks : {2u, 3u, 4u}) {
        if (ranks < 4 || protocol != "moe") all.push_back({.kind = kind, .protocol = protocol, .ranks = ranks});
      }
      all.push_back({.kind = kind, .protocol = protocol, .ranks = 3, .one_thread = true});
      const bool anybody =
          kind == std::string("stops") || kind == std::string("dies") || kind == std::string("mismatch");
      if (anybody) all.push_back({.kind = kind, .protocol = protocol, .ranks = 3, .first = true});
    }
  }
  return all;
}

class Faults : public testing::TestWithParam<FaultArgs> {
 protected:
  void inject_and_check(const sim::Setup& setup, unsigned schedules, std::uint64_t until = 0) {
    AllReduceProgram program(setup);
    const Injection result = inject(program, schedules, 11, until);
    RecordProperty("setup", setup.name);
    RecordProperty("strategy", "fault");
    RecordProperty("executions", std::to_string(result.executions));
    RecordProperty("steps", std::to_string(result.steps));
    EXPECT_EQ(result.wrong, "") << fmt::format("{}", fmt::join(result.trace, "\n"));
  }
};

TEST_P(Faults, EndWithTheRightError) {
  const FaultArgs& c = GetParam();
  const sim::Setup setup = fault_setup(c);
  inject_and_check(setup, setup.faults.stopping_rank < 0 ? 2'000 : 8);
}
INSTANTIATE_TEST_SUITE_P(Sim, Faults, testing::ValuesIn(cases()), case_name);

// The last rank makes a call of another size, or of another operation, at each place in the sequence: what it sends
// lands where peers expect something else.
class OtherCall : public Faults {};
TEST_P(OtherCall, IsNamedByAll) {
  FaultArgs c = GetParam();
  for (c.odd_call = 0; c.odd_call < 3; ++c.odd_call) inject_and_check(fault_setup(c), 1'000);
}
std::vector<FaultArgs> other_calls() {
  std::vector<FaultArgs> all;
  for (const char* kind : {"other count", "other operation"}) {
    for (const char* protocol : {"one-shot", "two-shot", "bulk", "moves", "ragged"}) {
      for (const unsigned ranks : {2u, 3u}) all.push_back({.kind = kind, .protocol = protocol, .ranks = ranks});
      all.push_back({.kind = kind, .protocol = protocol, .ranks = 3, .one_thread = true});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Sim, OtherCall, testing::ValuesIn(other_calls()), case_name);

// A rank that sleeps for less than the deadline is only slow: all results are right, and nobody has failed.
class SlowRank : public Faults {};
TEST_P(SlowRank, IsOnlySlow) {
  const FaultArgs& c = GetParam();
  sim::Setup setup = fault_setup(c);
  setup.faults.harmless = true;
  inject_and_check(setup, 8, kDeadline / 2);
}

// One that sleeps for longer finds the communicator ended when it wakes, and ends too.
class LateRank : public Faults {};
TEST_P(LateRank, EndsToo) {
  const FaultArgs& c = GetParam();
  inject_and_check(fault_setup(c), 8, kDeadline * 2);
}

std::vector<FaultArgs> stops() {
  std::vector<FaultArgs> all;
  for (const FaultArgs& c : cases()) {
    if (c.kind == "stops") all.push_back(c);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Sim, SlowRank, testing::ValuesIn(stops()), case_name);
INSTANTIATE_TEST_SUITE_P(Sim, LateRank, testing::ValuesIn(stops()), case_name);

}  // namespace
}  // namespace weft::sim
