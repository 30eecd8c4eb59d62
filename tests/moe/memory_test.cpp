// The memory of an exchange: the formulas of docs/moe.md, written out again and compared with the mapping.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "support/mapped.hpp"
#include "support/moe_batches.hpp"
#include "support/world.hpp"
#include "weft/collectives.hpp"

namespace weft::test {
namespace {

constexpr std::size_t lines(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

struct Written {
  MoeExchangeArgs args;
  std::uint32_t ranks, most_local, replicas;
  std::size_t row;           // in its slot
  std::size_t ring_row = 0;  // in its place, with its entries, in lines of 128 bytes
};
std::size_t window_of(const Written& w) {
  const std::size_t n = w.ranks, b = w.args.tokens, k = w.args.top_k;
  const std::size_t ring = w.args.ring_rows, slots = ring != 0 ? w.args.slot_tokens : b;
  const std::size_t words = lines(2 * n * 8) + lines(2 * ring * n * 8) + lines(ring * n * 8);
  const std::size_t records = lines(2 * n * slots * k * 16);
  const std::size_t dispatch = words + lines(2 * n * (w.most_local + 1) * 8) + records + lines(2 * n * slots * w.row) +
                               lines(2 * n * ring * w.ring_row);
  const std::size_t weights = w.args.weights_at_combine ? lines(n * b * k * 8) : 0;
  const std::size_t result = w.args.hidden * 2;
  const std::size_t combine = words + lines(2 * n * slots * result) + lines(2 * n * ring * result) + weights;
  const std::size_t tables = lines(n * b * 4) + lines(n * b * k * 8) + lines(b * 16);
  const bool lists = !w.args.ranks_of_expert.empty() || !w.args.experts_of_rank.empty();
  const std::size_t map = lines(8 * w.replicas) + lines(lists ? 4 * (w.args.experts + 1) : 0);
  return dispatch + combine + w.args.handles * tables + w.args.maps * map;
}

// 19 tokens, 9 experts: no number is a multiple of another.
MoeExchangeArgs odd_exchange() {
  return {.tokens = 19, .hidden = 2176, .experts = 9, .top_k = 3};
}

std::vector<Written> written_out() {
  std::vector<Written> all;
  all.push_back({.args = odd_exchange(), .ranks = 2, .most_local = 5, .replicas = 9, .row = 4352 + 2 * 128});
  all.push_back({.args = odd_exchange(), .ranks = 3, .most_local = 3, .replicas = 9, .row = 4352 + 2 * 128});
  all.back().args.handles = 5;
  all.push_back(all.back());
  all.back().args.weights_at_combine = true;
  all.push_back({.args = odd_exchange(), .ranks = 2, .most_local = 5, .replicas = 9, .row = 2176 + 80});
  all.back().args.cast = RowCast::fp8;  // 17 scales, in 5 packs
  all.push_back({.args = odd_exchange(), .ranks = 2, .most_local = 5, .replicas = 9, .row = 2176 + 80});
  all.back().args.cast = RowCast::fp8_ue8m0;  // scales travel as f32
  all.push_back(all.back());
  all.back().args.cast = RowCast::fp8_pow2;
  all.push_back({.args = odd_exchange(), .ranks = 2, .most_local = 5, .replicas = 9, .row = 2176 + 80 + 128});
  all.back().args.type = RowType::fp8;
  all.back().args.scale_bytes = 68;
  all.push_back({.args = odd_exchange(), .ranks = 2, .most_local = 5, .replicas = 9, .row = 2176 + 80 + 48 + 128});
  all.back().args.type = RowType::fp8;
  all.back().args.scale_bytes = 68;
  all.back().args.payload_bytes = {20, 4};  // in three packs
  all.push_back({.args = odd_exchange(), .ranks = 2, .most_local = 8, .replicas = 9, .row = 4352 + 2 * 128});
  all.back().args.rank_of_expert = {1, 1, 1, 1, 1, 1, 1, 1, 0};
  all.push_back({.args = odd_exchange(), .ranks = 2, .most_local = 9, .replicas = 11, .row = 4352 + 2 * 128});
  all.back().args.ranks_of_expert = {{0, 1}, {0, 1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}};
  all.push_back({.args = odd_exchange(), .ranks = 2, .most_local = 40, .replicas = 80, .row = 4352 + 2 * 128});
  all.back().args.maps = 3;
  for (int place = 0; place < 240; ++place) all.back().args.experts_of_rank.push_back(place % 80 < 9 ? place % 80 : -1);
  all.push_back({.args = odd_exchange(), .ranks = 3, .most_local = 3, .replicas = 9, .row = 4352 + 2 * 128});
  all.back().ring_row = 35 * 128;  // 48 + 4352
  all.back().args.tokens = 70;
  all.back().args.path = RowPath::ring;
  all.back().args.ring_rows = 32;
  all.push_back(all.back());
  all.back().args.weights_at_combine = true;
  all.push_back(all.back());
  all.back().args.weights_at_combine = false;
  all.back().args.cast = RowCast::fp8;
  all.back().row = 2176 + 80;
  all.back().ring_row = 18 * 128;  // 48 + 80 + 2176
  all.push_back(all.back());
  all.back().args.slot_tokens = 11;
  return all;
}

TEST(MoeMemory, IsWhatTheArithmeticSaysAndWhatIsMapped) {
  for (const Written& w : written_out()) {
    const std::size_t wanted = window_of(w), pages = (wanted + 4095) / 4096 * 4096;
    const int ranks = static_cast<int>(w.ranks);
    EXPECT_EQ(moe_exchange_memory(ranks, w.args).window, wanted);
    expect_all_well(run_world(ranks, smallest_buffers(), [&](Communicator& communicator, int) {
      const std::size_t before = communicator.memory().window;
      EXPECT_EQ(mapped_windows(pages), 0u);
      barrier(communicator, {});
      const MoeExchange exchange = MoeExchange::create(communicator, w.args);
      EXPECT_EQ(communicator.memory().window - before, wanted);
      EXPECT_GE(mapped_windows(pages), w.ranks);  // each rank's
      communicator.release();
      EXPECT_EQ(communicator.memory().window, 0u);
      communicator.acquire();
      EXPECT_EQ(communicator.memory().window - before, wanted);
    }));
  }
}

// A prefill of DeepSeek-V3 on one host takes no more than 256 MB, whatever the layout.
TEST(MoeMemory, OfARingIsBounded) {
  MoeExchangeArgs args{.tokens = 16384, .hidden = 7168, .experts = 256, .top_k = 8, .cast = RowCast::fp8};
  for (const RowLayout layout : {RowLayout::expert_contiguous, RowLayout::rank_major, RowLayout::rank_compact}) {
    args.layout = layout;
    args.weights_at_combine = layout == RowLayout::expert_contiguous;
    for (int ranks = 2; ranks <= 8; ++ranks) EXPECT_LE(moe_exchange_memory(ranks, args).window, std::size_t{256} << 20);
  }
}

// Halves take the places of the ring, or the tokens that have slots; no more than there are.
TEST(MoeMemory, TellsThePlacesAndTheTokensOfAHalf) {
  const auto expect_tokens = [](int ranks, const MoeExchangeArgs& args, std::uint32_t places, std::uint32_t half) {
    const MoeExchangeMemory memory = moe_exchange_memory(ranks, args);
    EXPECT_EQ(memory.ring_rows, places) << ranks << " ranks, " << args.tokens << " tokens";
    EXPECT_EQ(memory.half_tokens, half) << ranks << " ranks, " << args.tokens << " tokens";
  };
  MoeExchangeArgs args = odd_exchange();
  expect_tokens(2, args, 0, 19);
  args.path = RowPath::ring;
  expect_tokens(2, args, 32, 19);
  args.path = RowPath::automatic;
  args.tokens = 16384;
  expect_tokens(1, args, 4096, 4096);
  expect_tokens(2, args, 2048, 2048);
  expect_tokens(3, args, 1024, 1024);
  expect_tokens(8, args, 512, 512);
  args.slot_tokens = 700;
  expect_tokens(8, args, 512, 700);
  args.ring_rows = 1024;
  expect_tokens(8, args, 1024, 1024);
  args.tokens = 1025;
  args.ring_rows = 0;
  expect_tokens(2, args, 2048, 1025);
}

// Groups make their exchanges at the same time: each rank's window has the largest size.
TEST(MoeMemory, OfGroupsThatDifferIsTheLargest) {
  MoeExchangeArgs larger = odd_exchange();
  larger.tokens = 40;
  expect_all_well(run_world(4, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const Group group = communicator.split(rank / 2);
    const std::size_t before = communicator.memory().window;
    const MoeExchange exchange = MoeExchange::create(group, rank < 2 ? odd_exchange() : larger);
    EXPECT_EQ(communicator.memory().window - before, moe_exchange_memory(2, larger).window);
    EXPECT_GT(moe_exchange_memory(2, larger).window, moe_exchange_memory(2, odd_exchange()).window);
  }));
}

// The outputs of each layout on eight ranks with 2 experts each, 4 tokens of 16 bytes and 2 entries.
TEST(MoeMemory, TellsTheOutputOfEachLayout) {
  MoeExchangeArgs args{.tokens = 4, .hidden = 8, .experts = 16, .top_k = 2};
  EXPECT_EQ(moe_exchange_memory(8, args).output, 2u * 8 * 4 * 16);
  args.payload_bytes = {20, 4};
  EXPECT_EQ(moe_exchange_memory(8, args).output, 2u * 8 * 4 * (16 + 24));
  args.payload_bytes.clear();
  args.layout = RowLayout::expert_contiguous;
  args.alignment = 8;
  EXPECT_EQ(moe_exchange_memory(8, args).output, (8u * 4 * 2 + 2 * 7) * 16);
  args.alignment = 1;
  args.layout = RowLayout::rank_major;
  EXPECT_EQ(moe_exchange_memory(8, args).output, 8u * 4 * (16 + 2 * 8));
  args.weighted = false;
  EXPECT_EQ(moe_exchange_memory(8, args).output, 8u * 4 * (16 + 2 * 4));
  args.cast = RowCast::fp8;
  args.hidden = 256;
  EXPECT_EQ(moe_exchange_memory(8, args).output, 8u * 4 * (256 + 2 * 4 + 2 * 4));
  for (const RowLayout layout : {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major}) {
    args.layout = layout;
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int) {
      const MoeExchange exchange = MoeExchange::create(communicator, args);
      const bool by_rank = layout == RowLayout::rank_major;
      const std::size_t row = 256 + 2 * 4 + (by_rank ? 2 * 4 : 0);
      EXPECT_EQ(exchange.output_rows() * row, moe_exchange_memory(2, args).output);
    }));
  }
}

// Three ranks with 3 experts each, 3 tokens, 2 entries, five scales. Capacities of 9 and 18 + 3 rows become 12 and 24,
// and five bytes become two words.
TEST(MoeMemory, ColumnsOfScalesAreWholeWordsOfRowsByFours) {
  MoeExchangeArgs args{.tokens = 3, .hidden = 640, .experts = 9, .top_k = 2, .scale_order = ScaleOrder::columns};
  for (const auto& [cast, scales] :
       {std::pair{RowCast::fp8, 20u}, {RowCast::fp8_ue8m0, 8u}, {RowCast::fp8_pow2, 20u}}) {
    args.cast = cast;
    for (const bool masked : {true, false}) {
      args.layout = masked ? RowLayout::expert_masked : RowLayout::expert_contiguous;
      args.alignment = masked ? 1 : 2;
      const std::size_t capacity = masked ? 12 : 24, rows = masked ? 36 : 24;
      EXPECT_EQ(moe_exchange_memory(3, args).output, rows * (640 + scales));
      expect_all_well(run_world(3, smallest_buffers(), [&](Communicator& communicator, int) {
        const MoeExchange exchange = MoeExchange::create(communicator, args);
        EXPECT_EQ(exchange.capacity(), capacity);
        EXPECT_EQ(exchange.output_rows(), rows);
      }));
    }
  }
}

// DeepSeek-V3 on eight ranks, 128 tokens of bf16 each: dispatch and combine in less than 32 MB.
TEST(MoeMemory, DeepSeekFitsThirtyTwoMegabytes) {
  const MoeExchangeMemory memory = moe_exchange_memory(8, {.tokens = 128, .hidden = 7168, .experts = 256, .top_k = 8});
  EXPECT_GT(memory.dispatch + memory.combine, 2u * 8 * 128 * 14336);  // the rows alone
  EXPECT_LE(memory.dispatch + memory.combine, 32'000'000u);
}

}  // namespace
}  // namespace weft::test
