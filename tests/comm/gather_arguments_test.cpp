// Gathers and scatters that cannot be: rejected with the argument's name before anything is sent, so that the
// communicator works on as if they had never been made; and calls that differ between ranks, which are found.
#include <gtest/gtest.h>

#include "support/moves.hpp"
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
        return;  // the others would wait
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument) << error.what();
        expect_says(error.what(), all[i].part);
      }
      ASSERT_FALSE(communicator.status().has_value());
    }
    EXPECT_TRUE(communicator.world().recent_calls().empty());  // rejected calls are no calls
    run_on_cpu_rank(communicator, {.rows = 3, .widths = {20}});
  }));
}

// Everything that defines an exchange is compared.
TEST(GatherArguments, DifferentCallsAreFound) {
  const Move base{.kind = Kind::all_gather, .rows = 2, .widths = {40}};
  const auto changed = [&](auto&& change) {
    Move move = base;
    change(move);
    return move;
  };
  const std::pair<Move, Move> pairs[] = {
      {base, changed([](Move& m) { m.kind = Kind::all_to_all; })},
      {base, changed([](Move& m) { m.rows = 3; })},
      {base, changed([](Move& m) { m.widths = {48}; })},
      {base, changed([](Move& m) { m.tag = 1; })},
      {changed([](Move& m) { m.kind = Kind::broadcast; }),
       changed([](Move& m) { m.kind = Kind::broadcast, m.root = 1; })},
      {changed([](Move& m) { m.kind = Kind::reduce_scatter; }),
       changed([](Move& m) { m.kind = Kind::reduce_scatter, m.type = DataType::f16; })},
      {changed([](Move& m) {
         m.kind = Kind::all_gather_v, m.counts = {1, 1};
       }),
       changed([](Move& m) {
         m.kind = Kind::all_gather_v, m.counts = {1, 1}, m.slot = SlotKind::max;
       })},
      {changed([](Move& m) {
         m.kind = Kind::all_gather_v, m.counts = {1, 1};
       }),
       changed([](Move& m) {
         m.kind = Kind::all_gather_v, m.counts = {1, 1}, m.widths = {40, 1};
       })},
  };
  for (const auto& pair : pairs) {
    const auto endings = run_world(2, cpu_config(), [&](Communicator& communicator, int rank) {
      const RankMove prepared = prepare(rank == 0 ? pair.first : pair.second, 2, rank);
      HostMove host(prepared);
      host.call(communicator);
    });
    for (const Ending& ending : endings) {
      expect_fault(ending, {Errc::mismatch, Errc::peer_failed},
                   describe(pair.first) + " beside " + describe(pair.second));
    }
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
