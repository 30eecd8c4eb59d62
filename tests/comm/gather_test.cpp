// Gathers and scatters of equal shares on CPU ranks, one call after another: sizes around packs, chunks and slots, rows
// and strides of every kind, all types, in place.
#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "support/first_epoch.hpp"
#include "support/move_mixes.hpp"
#include "support/moves.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

class Gather : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Gather, testing::ValuesIn(world_sizes({1, 2, 3, 4, 5, 8, 13})));

TEST_P(Gather, SizesAroundPacksSlotsAndChunks) {
  expect_right(GetParam(), small_slots(), moves_around_packs(GetParam(), 2, Fill::bits));
}

// More chunks than slots, so every block waits for credits.
TEST_P(Gather, MessagesManyTimesTheBuffers) {
  std::vector<Move> moves;
  for (const Kind kind : kEqual) {
    moves.push_back({.kind = kind,
                     .rows = 30,
                     .widths = {7168},
                     .fill = Fill::bits,
                     .in_place = kind != Kind::all_to_all,
                     .seed = 4});
    moves.push_back({.kind = kind, .rows = 3, .widths = {29'999}, .fill = Fill::bits, .output_gap = 3, .seed = 5});
  }
  for (Move& move : moves) {
    if (kSanitized) move.rows = 2;
  }
  expect_right(GetParam(), small_slots(), moves);
}

TEST_P(Gather, RowsOfAnyShapeAtAnyAddress) {
  const std::vector<Move> moves = equal_moves_of_any_shape(GetParam(), {.packs = 5, .elements = 70});
  expect_right(GetParam(), cpu_config(), moves);
  expect_right(GetParam(), small_slots(), moves);
}

// Each rank chooses the addresses and strides of its rows.
TEST_P(Gather, RanksWithDifferentStridesAndAddresses) {
  const int ranks = GetParam();
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    for (std::uint32_t i = 0; i < 40; ++i) {
      const auto own = static_cast<std::size_t>(rank) + i;
      run_on_cpu_rank(communicator, {.kind = kEqual[i % std::size(kEqual)],
                                     .rows = 5,
                                     .widths = {16 + i % 3},
                                     .op = mostly_sum(i),
                                     .fill = Fill::special,
                                     .input_gap = own % 3,
                                     .output_gap = own / 3 % 2 * 8,
                                     .input_shift = own % 8,
                                     .output_shift = own / 2 % 8,
                                     .seed = i});
    }
  }));
}

// Reduce-scatter and all-gather give the bits of an all-reduce.
TEST_P(Gather, ScatterAndGatherMakeAnAllReduce) {
  const int ranks = GetParam();
  constexpr std::size_t width = 328;
  std::vector<Prepared> wholes;
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      wholes.push_back(prepare(
          {.count = width * static_cast<std::size_t>(ranks), .type = type, .op = op, .fill = Fill::random, .seed = 8},
          ranks));
    }
  }
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    for (const Prepared& whole : wholes) {
      const DataType type = whole.call.type;
      const Bytes& input = whole.inputs[static_cast<std::size_t>(rank)];
      Bytes shard(width * size_of(type)), all(input.size());
      reduce_scatter_tensor(
          communicator,
          {.input = input.data(), .output = shard.data(), .width = width, .type = type, .op = whole.call.op});
      all_gather_into_tensor(communicator, {.input = shard.data(), .output = all.data(), .row_bytes = shard.size()});
      EXPECT_EQ(all, whole.expected) << describe(whole.call);
    }
  }));
}

// The root alone has a result, which has the bits of an all-reduce. A large one goes in chunks.
TEST_P(Gather, ReducesOfEveryTypeAndOperationToEachRoot) {
  expect_right(GetParam(), small_slots(), reduces_to_each_root(GetParam()));
}

TEST_P(Gather, GathersAndScattersOfEachRoot) {
  expect_right(GetParam(), cpu_config(std::chrono::seconds(20)), rows_of_each_root(GetParam()));
}

TEST_P(Gather, BarriersHoldEverybodyBack) {
  const int ranks = GetParam();
  std::atomic<int> arrived = 0;
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    for (int round = 1; round <= 50; ++round) {
      if (round % ranks == rank) std::this_thread::sleep_for(std::chrono::microseconds(300));
      ++arrived;
      barrier(communicator, {.tag = static_cast<std::uint32_t>(round)});
      EXPECT_GE(arrived, round * ranks);
      barrier(communicator, {});
    }
  }));
}

// Groups gather at the same time, each with shapes of its own.
TEST(GatherGroups, GatherAndScatterSideBySide) {
  constexpr int ranks = 6;
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    const Group attention = communicator.split(rank / 2), across = communicator.split(rank % 2);
    for (std::uint32_t i = 0; i < 60; ++i) {
      const auto of_group = static_cast<std::uint32_t>(rank / 2);
      run_on_cpu_rank(
          attention,
          {.kind = kEqual[i % std::size(kEqual)], .rows = 1 + of_group, .widths = {40}, .seed = i + of_group});
      run_on_cpu_rank(across, {.kind = kEqual[i / 4 % std::size(kEqual)],
                               .widths = {9000},
                               .seed = i + static_cast<std::uint32_t>(rank % 2)});
      if (i % 7 == 0) run_on_cpu_rank(communicator, {.kind = kEqual[i % 3], .widths = {33}, .seed = i});
    }
  }));
}

std::vector<Move> mixed_moves(int count, int ranks, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Move> moves;
  for (int i = 0; i < count; ++i) {
    const auto pick = [&](auto n) { return random() % static_cast<std::uint32_t>(n); };
    moves.push_back({.kind = kEqual[pick(std::size(kEqual))],
                     .rows = pick(4) == 0 ? pick(40) : pick(4),
                     .widths = {pick(3) == 0 ? 900 : pick(40)},
                     .type = kTypes[pick(std::size(kTypes))],
                     .op = kOps[pick(std::size(kOps))],
                     .fill = Fill::special,
                     .root = static_cast<int>(pick(ranks)),
                     .seed = static_cast<std::uint32_t>(i)});
  }
  return moves;
}

// Small and large moves take turns with all-reduces of every algorithm, which share the buffers.
TEST(GatherSequences, AThousandCallsWithRandomDelaysBetweenAllReduces) {
  constexpr int ranks = 4;
  const auto moves = mixed_moves(40, ranks, 3);
  std::vector<Prepared> reduces;
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined}) {
    reduces.push_back(prepare({.count = 5000, .algorithm = algorithm, .fill = Fill::random, .seed = 6}, ranks));
    reduces.push_back(prepare({.count = 70, .algorithm = algorithm, .fill = Fill::random, .seed = 7}, ranks));
  }
  for (const std::uint32_t first : {1u, 0x7fffff00u, 0xffffff00u}) {
    Config config = small_slots();
    const FirstEpoch epoch(first);
    expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int rank) {
      std::mt19937 delays(static_cast<unsigned>(rank)), choices(first);
      for (int call = 0; call < repeated(1000); ++call) {
        if (delays() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 100));
        const auto choice = choices();
        if (choice % 4 == 0) {
          run_on_cpu_rank(communicator, reduces[choice / 4 % reduces.size()], rank);
        } else {
          run_on_cpu_rank(communicator, moves[choice / 4 % moves.size()]);
        }
      }
    }));
  }
}

TEST(GatherSequences, AreInTheFlightRecorder) {
  expect_all_well(run_world(2, cpu_config(), [&](Communicator& communicator, int) {
    run_on_cpu_rank(communicator, {.rows = 3, .widths = {8}, .tag = 4});
    run_on_cpu_rank(communicator, {.kind = Kind::all_to_all, .widths = {8}});
    run_on_cpu_rank(communicator, {.kind = Kind::broadcast, .widths = {8}, .root = 1});
    run_on_cpu_rank(communicator, {.kind = Kind::reduce_scatter, .widths = {8}, .type = DataType::f32});
    run_on_cpu_rank(communicator, {.kind = Kind::reduce,
                                   .widths = {8},
                                   .type = DataType::i64,
                                   .op = ReduceOp::avg,
                                   .fill = Fill::special,
                                   .root = 1});
    barrier(communicator, {.tag = 9});
    std::vector<std::string> names;
    for (const CallRecord& call : communicator.world().recent_calls()) names.push_back(call.operation);
    EXPECT_EQ(names,
              (std::vector<std::string>{
                  "all_gather_into_tensor 3 rows of 16 bytes tag 4", "all_to_all 1 rows of 16 bytes tag 0",
                  "broadcast 1 rows of 16 bytes root 1 tag 0", "reduce_scatter_tensor sum 1 rows of f32[8] tag 0",
                  "reduce avg i64[8] root 1 tag 0", "barrier tag 9"}));
  }));
}

}  // namespace
}  // namespace weft::test
