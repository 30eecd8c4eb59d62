// The duties of a pipelined all-reduce's blocks (ops/all_reduce/pipelined_all_reduce.hpp), for any number of blocks,
// slots and chunks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "ops/all_reduce/pipelined_all_reduce.hpp"

namespace weft::detail {
namespace {

using Pipelined = PipelinedAllReduce<Reduction<DataType::f32, Ops::sum, Plain>, 0, false>;

// One block moves and one block reduces each chunk, in ascending order. One block moves all chunks of a slot, so the
// block that scatters knows by itself which chunks it has gathered.
void expect_all_served(std::uint32_t blocks, std::uint32_t slots, std::uint32_t chunks, bool apart) {
  SCOPED_TRACE(fmt::format("{} blocks, {} slots, {} chunks, apart {}", blocks, slots, chunks, apart));
  constexpr std::uint32_t kNobody = 0xffffffff;
  Call call{};
  call.layout.pipeline_slots = slots;
  call.layout.pipeline_packs = 1;
  const Session session{
      .call = &call, .epoch_word = nullptr, .admitted_word = nullptr, .epoch = 0, .overlapped = false};
  std::vector<std::uint32_t> mover(chunks, kNobody), reducer(chunks, kNobody), of_slot(slots, kNobody);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    Pipelined::ThreadPlan p{};
    p.shard = p.chunks = chunks;
    Pipelined::find_duty(p, block, blocks, slots, apart);
    for (std::uint32_t turn = 0, last = 0; turn < p.mine; ++turn) {
      const std::uint32_t chunk = Pipelined::chunk_of(session, p, turn).number;
      ASSERT_LT(chunk, chunks);
      ASSERT_TRUE(turn == 0 || chunk > last);
      last = chunk;
      if (p.duty != Pipelined::Duty::reduce) {
        ASSERT_EQ(std::exchange(mover[chunk], block), kNobody);
        ASSERT_TRUE(of_slot[chunk % slots] == kNobody || of_slot[chunk % slots] == block);
        of_slot[chunk % slots] = block;
        // The slot's previous chunk is gathered in the turn that scatters this one.
        if (chunk >= slots) {
          ASSERT_EQ(Pipelined::chunk_of(session, p, turn - p.depth).number, chunk - slots);
        }
      }
      if (p.duty != Pipelined::Duty::move) {
        ASSERT_EQ(std::exchange(reducer[chunk], block), kNobody);
      }
    }
  }
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    ASSERT_NE(mover[chunk], kNobody) << chunk;
    ASSERT_NE(reducer[chunk], kNobody) << chunk;
  }
}

TEST(PipelinedDuties, EveryChunkIsMovedByOneBlockAndReducedByOne) {
  for (const std::uint32_t slots : {2u, 3u, 8u, 32u, 256u}) {
    for (const std::uint32_t chunks : {0u, 1u, slots - 1, slots, slots + 1, 2 * slots, 7 * slots / 2}) {
      for (const std::uint32_t blocks : {2u, 3u, 5u, 15u, 31u, 71u, 127u, 135u, 263u, 511u}) {
        expect_all_served(blocks, slots, chunks, true);
      }
      for (std::uint32_t blocks = 1; blocks <= slots / 2; blocks *= 2) {
        if (slots % blocks == 0) expect_all_served(blocks, slots, chunks, false);
      }
    }
  }
}

}  // namespace
}  // namespace weft::detail
