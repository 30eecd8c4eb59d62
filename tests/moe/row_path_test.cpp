// The way of rows if the caller leaves it open: by the tokens of an exchange, and by the blocks that it names.
#include "tuning/row_path.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "support/moe_batches.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using detail::kMostFewBlocks;
using detail::ring_is_faster;
using detail::tokens_by_slots;

// Measured on two H200: blocks, tokens, and whether the ring took less time for dispatch and combine together.
TEST(MoeRowPath, IsWhatWasMeasured) {
  struct Measured {
    int blocks;
    std::uint32_t tokens;
    bool ring;
  };
  constexpr Measured kAll[] = {{9, 32, false},    {9, 128, true},    {9, 512, true},   {17, 128, true},
                               {17, 512, true},   {33, 32, false},   {33, 128, false}, {33, 512, true},
                               {65, 32, false},   {65, 128, false},  {65, 512, true},  {133, 128, false},
                               {133, 512, false}, {133, 1024, false}};
  for (const Measured& one : kAll)
    EXPECT_EQ(ring_is_faster(one.tokens, one.blocks), one.ring) << one.blocks << ", " << one.tokens;
}

// Each block more moves some more tokens by slots before the ring is faster.
TEST(MoeRowPath, GrowsWithTheBlocks) {
  std::uint32_t before = 0;
  for (int blocks = 2; blocks <= kMostFewBlocks; ++blocks) {
    const std::uint32_t tokens = tokens_by_slots(blocks);
    EXPECT_GT(tokens, before);
    EXPECT_FALSE(ring_is_faster(tokens, blocks));
    EXPECT_TRUE(ring_is_faster(tokens + 1, blocks));
    before = tokens;
  }
  EXPECT_LE(before, 1024u);  // as many as may have slots
  for (const int all : {0, kMostFewBlocks + 1, 256}) EXPECT_FALSE(ring_is_faster(16384, all));
}

constexpr int kFew = 8;
const std::uint32_t kMostBySlots = tokens_by_slots(kFew);

MoeExchangeArgs of_few_blocks(std::uint32_t tokens) {
  MoeExchangeArgs args = small_exchange();
  args.tokens = tokens;
  args.blocks = kFew;
  return args;
}

void expect_same_memory(const MoeExchangeArgs& args, MoeExchangeArgs other) {
  const MoeExchangeMemory memory = moe_exchange_memory(2, args), wanted = moe_exchange_memory(2, other);
  EXPECT_EQ(memory.window, wanted.window);
  EXPECT_EQ(memory.ring_rows, wanted.ring_rows);
  EXPECT_EQ(memory.half_tokens, wanted.half_tokens);
}

// The buffers are those of an exchange that says the same itself.
TEST(MoeRowPath, OfFewBlocksHasARingAndSlotsBesideIt) {
  for (const std::uint32_t tokens : {kMostBySlots + 1, 4096u}) {
    MoeExchangeArgs written = of_few_blocks(tokens);
    written.blocks = 0;
    written.path = RowPath::ring;
    written.slot_tokens = kMostBySlots;
    expect_same_memory(of_few_blocks(tokens), written);
    MoeExchangeArgs fewer = of_few_blocks(tokens);
    fewer.slot_tokens = written.slot_tokens = 3;
    expect_same_memory(fewer, written);
  }
  EXPECT_NE(moe_exchange_memory(2, of_few_blocks(kMostBySlots + 1)).ring_rows, 0u);
}

// A dispatch that can be made again has no slots, for whatever tokens and blocks.
TEST(MoeRowPath, OfARepeatableExchangeIsTheRingAlone) {
  for (const std::uint32_t tokens : {3u, 4096u}) {
    for (const int blocks : {0, kFew}) {
      MoeExchangeArgs args = of_few_blocks(tokens);
      args.blocks = blocks;
      args.repeatable = true;
      MoeExchangeArgs written = args;
      written.path = RowPath::ring;
      expect_same_memory(args, written);
    }
  }
}

TEST(MoeRowPath, OtherwiseIsAsWithoutBlocks) {
  const auto expect_unchanged = [](const MoeExchangeArgs& args) {
    MoeExchangeArgs all = args;
    all.blocks = 0;
    expect_same_memory(args, all);
  };
  expect_unchanged(of_few_blocks(kMostBySlots));
  MoeExchangeArgs args = of_few_blocks(500);
  for (const RowPath path : {RowPath::slots, RowPath::ring}) {
    args.path = path;
    expect_unchanged(args);
  }
  args.path = RowPath::automatic;
  args.layout = RowLayout::rank_compact;
  expect_unchanged(args);
  args = of_few_blocks(500);
  args.blocks = 256;
  expect_unchanged(args);
  args.tokens = 4096;  // slots for 128 tokens beside the ring
  expect_unchanged(args);
}

// Only the ring rejects 96 threads, so they tell which way a call takes.
bool takes_ring(const MoeExchange& exchange, CpuMoe& moe, std::uint32_t most_tokens) {
  DispatchArgs args = moe.dispatch();
  args.most_tokens = most_tokens;
  args.launch.threads = 96;
  args.payloads[3] = args.input;  // rejected in any case, but later
  try {
    exchange.dispatch(args);
  } catch (const Error& error) {
    return std::string(error.what()).find("which the ring path asks for") != std::string::npos;
  }
  ADD_FAILURE() << "a fourth payload was taken";
  return false;
}

// Both ranks choose alike, although the blocks of their launches differ. Results are right by either way.
TEST(MoeRowPath, CallsChooseByTheirMostTokens) {
  const MoeExchangeArgs args = of_few_blocks(kMostBySlots + 1);
  const std::uint32_t few = kMostBySlots, many = kMostBySlots + 1;
  const PreparedMoe by_slots = prepare({.args = args, .tokens = {few, 3}}, 2, 5);
  const PreparedMoe by_ring = prepare({.args = args, .tokens = {1, many}}, 2, 6);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    EXPECT_EQ(exchange.args().path, RowPath::automatic);
    EXPECT_EQ(exchange.args().slot_tokens, 0u);
    for (const auto& [prepared, most, ring] :
         {std::tuple{&by_slots, few, false}, {&by_ring, many, true}, {&by_slots, 0u, true}}) {
      CpuMoe moe(exchange, *prepared, rank);
      EXPECT_EQ(takes_ring(exchange, moe, most), ring) << most;
      DispatchArgs there = moe.dispatch();
      there.most_tokens = most;
      there.launch.blocks = number == 0 ? 0 : 2;
      const DispatchHandle handle = exchange.dispatch(there);
      moe.check_dispatch();
      exchange.combine(moe.combine(handle));
      moe.check_combine();
    }
  }));
}

}  // namespace
}  // namespace weft::test
