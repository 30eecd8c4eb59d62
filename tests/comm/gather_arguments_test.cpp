// Impossible gathers and scatters are rejected with the argument's name before anything is sent, and the communicator
// works on as before. Calls that differ between ranks are found.
#include <gtest/gtest.h>

#include "support/move_faults.hpp"
#include "support/ranks.hpp"
#include "support/rejections.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

TEST(GatherArguments, MistakesAreRejectedByNameAndLeaveNoTrace) {
  constexpr int ranks = 3;
  alignas(64) static std::byte memory[8192];
  static const std::int32_t counts[4] = {1, 1, 1, 1};
  const std::vector<RejectedMove> all = rejected_moves(memory, counts, Device::cpu);
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      try {
        all[i].call(communicator);
        ADD_FAILURE() << "not rejected: " << all[i].part;
        return;  // the other ranks would wait
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument) << error.what();
        expect_says(error.what(), all[i].part);
      }
      ASSERT_FALSE(communicator.status().has_value());
    }
    EXPECT_TRUE(communicator.world().recent_calls().empty());  // rejected calls are not recorded
    run_on_cpu_rank(communicator, {.rows = 3, .widths = {20}});
  }));
}

std::vector<std::string> messages_of(const Move& first, const Move& second) {
  const std::string where = describe(first) + " beside " + describe(second);
  std::vector<std::string> messages;
  for (const Ending& ending : run_world(2, cpu_config(), [&](Communicator&communicator, int rank) {
         const RankMove prepared = prepare(rank == 0 ? first : second, 2, rank);
         HostMove host(prepared);
         host.call(communicator);
       })) {
    expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, where);
    messages.push_back(ending.what);
  }
  return messages;
}

// Everything that defines an exchange is compared.
TEST(GatherArguments, DifferentCallsAreFound) {
  for (const auto& [first, second] : differing_moves(2)) messages_of(first, second);
}

TEST(GatherArguments, OtherCountsAreCalledThat) {
  for (const auto& [first, second] : differing_moves(2)) {
    if (first.counts == second.counts || first.counts.size() != second.counts.size()) continue;
    const auto messages = messages_of(first, second);
    expect_says(messages[0] + messages[1], ", with other counts, in epoch ");
  }
}

// Slot rows matter for aligned and fixed slots. For other slots, ranks may pass any number.
TEST(GatherArguments, SlotRowsAreComparedWhereTheyMeanSomething) {
  for (const Kind kind : {Kind::all_gather_v, Kind::reduce_scatter_v}) {
    for (const Padding padding : {Padding::none, Padding::max}) {
      expect_all_well(run_world(2, cpu_config(), [&](Communicator& communicator, int rank) {
        run_on_cpu_rank(communicator, {.kind = kind,
                                       .widths = {40},
                                       .counts = {2, 1},
                                       .padding = padding,
                                       .slot_rows = rank == 0 ? 0 : std::size_t{1} << 40});
      }));
    }
    const Move aligned{.kind = kind, .widths = {40}, .counts = {2, 1}, .padding = Padding::aligned, .slot_rows = 2};
    Move by_four = aligned;
    by_four.slot_rows = 4;
    const auto messages = messages_of(aligned, by_four);
    // Each message names its own rank's call, so the difference is visible.
    expect_says(messages[0], "padding aligned of 2");
    expect_says(messages[1], "padding aligned of 4");
  }
}

TEST(GatherArguments, ReleasedMemoryIsNamed) {
  auto communicators = Communicator::local(1, cpu_config());
  communicators[0].release();
  expect_says(error_of([&] { barrier(communicators[0], {}); }), "barrier: the communicator's memory is released");
  communicators[0].acquire();
  run_on_cpu_rank(communicators[0], {.rows = 2, .widths = {9}});
}

}  // namespace
}  // namespace weft::test
