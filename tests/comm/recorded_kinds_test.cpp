// Recordings of operations other than all-reduce, replayed with changed data between eager calls of the same kinds.
// (Ragged ones are in ragged_test.cpp, exchanges in tests/moe.)
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "support/changing.hpp"
#include "support/columns.hpp"
#include "support/moves.hpp"
#include "support/normed_crossings.hpp"
#include "support/norms.hpp"
#include "support/sanitized.hpp"
#include "support/top_k.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

// Replays a recording of all calls, one of the first call, and eager calls, in an order that all ranks share.
template <class Host, class What>
void expect_replays(int ranks, const Config& config, const std::vector<What>& all) {
  expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int) {
    std::deque<Changing<What, Host>> calls;
    for (const What& what : all) calls.emplace_back(what, communicator);
    const Recording whole = Recording::capture(communicator, [&] {
      for (auto& call : calls) call.call(communicator);
    });
    const Recording first = Recording::capture(communicator, [&] { calls.front().call(communicator); });
    std::mt19937 random(7);
    for (std::uint32_t turn = 0; turn < static_cast<std::uint32_t>(repeated(200)); ++turn) {
      const auto choice = random() % 3;
      if (choice == 0) {
        for (auto& call : calls) call.fill(turn);
        whole.replay();
        for (auto& call : calls) call.check(turn);
      } else if (choice == 1) {
        calls.front().fill(turn);
        first.replay();
        calls.front().check(turn);
      } else {
        run_on_cpu_rank(communicator, with_seed(all[random() % all.size()], turn));
      }
    }
  }));
}

class RecordedKinds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, RecordedKinds, testing::Values(1, 2, 3, 5));

TEST_P(RecordedKinds, GathersAndScattersOfEqualParts) {
  const std::vector<Move> moves = {
      {.kind = Kind::all_gather, .rows = 3, .widths = {20}, .seed = 1},
      {.kind = Kind::reduce_scatter, .rows = 2, .widths = {40}, .type = DataType::f16, .fill = Fill::random, .seed = 2},
      {.kind = Kind::all_gather, .rows = 2, .widths = {7}, .output_gap = 3, .input_shift = 1, .seed = 3},
      {.kind = Kind::reduce_scatter, .widths = {9}, .fill = Fill::special, .in_place = true, .seed = 4},
      {.kind = Kind::all_to_all, .rows = 2, .widths = {33}, .seed = 5},
      {.kind = Kind::broadcast, .rows = 4, .widths = {16}, .seed = 6},
      {.kind = Kind::reduce, .widths = {33}, .type = DataType::i64, .op = ReduceOp::min, .in_place = true, .seed = 7},
      {.kind = Kind::reduce_scatter, .widths = {21}, .type = DataType::u8, .op = ReduceOp::avg, .seed = 8},
      {.kind = Kind::gather, .rows = 3, .widths = {17}, .in_place = true, .seed = 9},
      {.kind = Kind::scatter, .rows = 2, .widths = {50}, .output_shift = 3, .seed = 10}};
  expect_replays<HostMove>(GetParam(), cpu_config(), moves);
}

// More data than the slots hold: each slot is used several times.
TEST_P(RecordedKinds, LargeGathersAndScatters) {
  const std::vector<Move> moves = {
      {.kind = Kind::all_gather, .rows = 40, .widths = {60}, .seed = 1},
      {.kind = Kind::reduce_scatter, .rows = 40, .widths = {60}, .fill = Fill::random, .seed = 2},
      {.kind = Kind::reduce, .rows = 40, .widths = {60}, .fill = Fill::random, .seed = 3},
      {.kind = Kind::gather, .rows = 40, .widths = {60}, .seed = 4},
      {.kind = Kind::scatter, .rows = 40, .widths = {60}, .seed = 5}};
  expect_replays<HostMove>(GetParam(), small_pieces(), moves);
}

TEST_P(RecordedKinds, AllReducesWithNorm) {
  const std::vector<Norm> norms = {
      {.tokens = 3, .hidden = 64, .algorithm = Algorithm::one_shot, .seed = 1},
      {.tokens = 5, .hidden = 72, .type = DataType::f16, .residual_in_place = true, .algorithm = Algorithm::two_shot},
      {.tokens = 2, .hidden = 256, .fp8 = true, .scaling = Fp8Scaling::per_128_columns, .seed = 3},
      {.tokens = 4, .hidden = 64, .residual = false, .output_in_place = true, .fp8 = true, .seed = 4}};
  expect_replays<HostNorm>(GetParam(), cpu_config(), norms);
}

// Pieces of rows, followed by their norm.
TEST_P(RecordedKinds, AllReducesWithNormOfRowsLongerThanTheBuffers) {
  const std::vector<Norm> norms = {
      {.tokens = 3, .hidden = 1000, .residual_in_place = true, .algorithm = Algorithm::two_shot, .seed = 1},
      {.tokens = 2, .hidden = 136, .type = DataType::f16, .output_in_place = true, .algorithm = Algorithm::one_shot},
      {.tokens = 2, .hidden = 1024, .fp8 = true, .scaling = Fp8Scaling::per_128_columns, .seed = 3}};
  expect_replays<HostNorm>(GetParam(), smallest_buffers(), norms);
}

TEST_P(RecordedKinds, CrossingsWithNorm) {
  expect_replays<HostNormedCrossing>(GetParam(), small_slots(), mixed_normed_crossings(GetParam(), 6));
}

TEST_P(RecordedKinds, Columns) {
  expect_replays<HostColumns>(GetParam(), small_slots(), few_column_cases(GetParam()));
}

TEST_P(RecordedKinds, TheLargestOfColumns) {
  expect_replays<HostTopK>(GetParam(), small_slots(), few_top_k_cases(GetParam()));
}

}  // namespace
}  // namespace weft::test
