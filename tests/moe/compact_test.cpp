// Compact rows (RowLayout::rank_compact) on CPU ranks, in calls of their own. in_every_layout() has them beside the
// other layouts.
#include <gtest/gtest.h>

#include <vector>

#include "support/first_epoch.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

class MoeCompact : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeCompact, testing::Values(1, 2, 3, 4));

// Calls of up to 100 tokens, which differ from rank to rank. `capacity`: 0: room for all rows.
Batch compact_rows(std::uint32_t ranks, std::uint32_t capacity) {
  Batch batch = more_tokens_than_places(ranks);
  for (MoeCase& c : batch) {
    c.args.layout = RowLayout::rank_compact;
    c.args.capacity = capacity;
    c.args.overflow = capacity != 0 ? Overflow::drop : Overflow::error;
  }
  return batch;
}

// Through few places, and through the ring that the exchange has without being told.
TEST_P(MoeCompact, ComeFromSourcesOfAnyLength) {
  exchange_and_check({compact_rows(GetParam(), 0)}, GetParam());
  exchange_and_check(on_ring({compact_rows(GetParam(), 0)}), GetParam());
}

// Some rows of a source have room and later ones do not. The owners of these get zeros, which wait for credits like
// rows.
TEST_P(MoeCompact, RowsWithoutRoomAreDroppedBetweenOthers) {
  for (const std::uint32_t capacity : {1u, 33u, 90u})
    exchange_and_check(on_ring({compact_rows(GetParam(), capacity)}), GetParam());
}

TEST_P(MoeCompact, EpochsWrap) {
  for (const std::uint32_t first : {0x7ffffffcu, 0xfffffffdu}) {
    const FirstEpoch epoch(first);
    exchange_and_check(on_ring({compact_rows(GetParam(), 0)}), GetParam());
  }
}

// A recording has the numbers of tokens and nothing of the routing: rows, ids and the matrix are those of each replay.
TEST_P(MoeCompact, RecordingsReplayWithOtherRoutings) {
  Batch batch = on_ring({compact_rows(GetParam(), 70)}).front();
  for (MoeCase& c : batch) c.residual = true;  // all have the same tensors
  const std::vector<PreparedMoe> prepared = prepare_all({batch[0], batch[2], batch[4], batch[6]}, GetParam());
  expect_all_well(
      run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
        const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
        CpuMoe moe(exchange, prepared[0], static_cast<std::uint32_t>(number));
        const Recording recording =
            Recording::capture(communicator, [&] { exchange.combine(moe.combine(exchange.dispatch(moe.dispatch()))); });
        for (std::size_t turn = 0; turn < 8; ++turn) {
          moe.fill(prepared[turn % prepared.size()]);
          recording.replay();
          moe.check_dispatch();
          moe.check_combine();
        }
      }));
}

// An exchange of few tokens has a ring and no slots. A bank has 8 bytes more than that of rank_major for each two
// ranks. Outputs are as large, if all tokens may come.
TEST(MoeCompactRows, HaveTheRingAlone) {
  MoeExchangeArgs args = small_exchange();
  args.layout = RowLayout::rank_compact;
  const MoeExchangeMemory memory = moe_exchange_memory(8, args);
  EXPECT_EQ(memory.ring_rows, 32u);
  EXPECT_EQ(memory.half_tokens, 6u);
  args.layout = RowLayout::rank_major;
  args.path = RowPath::ring;
  const MoeExchangeMemory by_rank = moe_exchange_memory(8, args);
  EXPECT_EQ(memory.dispatch, by_rank.dispatch + 8u * 8 * 8);
  EXPECT_EQ(memory.combine, by_rank.combine);
  EXPECT_EQ(memory.output, by_rank.output);
}

}  // namespace
}  // namespace weft::test
