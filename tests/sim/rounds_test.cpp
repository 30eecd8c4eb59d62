// Rounds of experts send nothing twice. By slots they send nothing more than one round, and by a ring one word a row.
#include <gtest/gtest.h>

#include "sim/all_reduce.hpp"
#include "sim/schedule.hpp"
#include "sim/setup.hpp"

namespace weft::sim {
namespace {

// Stores of each rank to the others' memory in the ordinary execution.
std::vector<std::uint64_t> sent_in(const std::string& name, const Division& division, unsigned ranks) {
  Setup setup = find_setup(name + "-ranks" + std::to_string(ranks));
  std::vector<Routing> routings;
  for (const CallSetup& call : setup.calls) {
    if (!call.ids.empty()) routings.push_back(call.ids);
  }
  setup.calls = moe_in_rounds(routings, division, {2, 1}, {2, 1});
  AllReduceProgram program(setup);
  Scheduler ordinary = Scheduler::replay({});
  ordinary.begin();
  const Failure failure = program.run(ordinary);
  EXPECT_FALSE(failure) << failure.what;
  std::vector<std::uint64_t> sent;
  for (unsigned rank = 0; rank < ranks; ++rank) sent.push_back(program.machine().memory().sent(rank));
  return sent;
}

TEST(Rounds, SendAsMuchAsOneRound) {
  for (const unsigned ranks : {2u, 3u, 4u}) {
    const std::string slots = "moe-rounds-each";
    const std::vector<std::uint64_t> once = sent_in(slots, {3}, ranks);
    for (const std::uint64_t stores : once) EXPECT_GT(stores, 0u);
    for (const Division& division : {Division{1, 1, 1}, Division{0, 2, 1}, Division{2, 1}, Division{3, 0, 0, 0}})
      EXPECT_EQ(sent_in(slots, division, ranks), once) << division.size() << " rounds of " << ranks << " ranks";
  }
}

TEST(Rounds, SendOneWordMoreForEachRowOfARing) {
  // Rows of each of two ranks that the other one gets, from the routings of the set-up: rank 0 has the experts 0 to 2.
  const std::string ring = "moe-ring-rounds-each";
  std::vector<std::uint64_t> wanted = sent_in(ring, {3}, 2);
  wanted[0] += 1 + 1;  // {4, 2}; {4, 0}
  wanted[1] += 1 + 2;  // {1, −1}; {−1, 1}, {2, 0}
  for (const Division& division : {Division{1, 1, 1}, Division{0, 2, 1}, Division{2, 1}, Division{3, 0, 0, 0}})
    EXPECT_EQ(sent_in(ring, division, 2), wanted) << division.size() << " rounds";
}

}  // namespace
}  // namespace weft::sim
