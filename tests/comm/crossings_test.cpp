// Crossings on CPU ranks: every group, slot, type and width, in lines and in chunks, recorded, and with counts that do
// not fit. tests/comm/attention_test.cpp compares them with the calls that they replace.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "support/crossing_cases.hpp"
#include "support/move_mixes.hpp"
#include "support/move_recordings.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/verdicts.hpp"
#include "support/world.hpp"
#include "weft/crossings.hpp"

namespace weft::test {
namespace {

class Crossings : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Crossings, testing::ValuesIn(world_sizes({1, 2, 3, 4, 6, 8})));

TEST_P(Crossings, EveryShapeOfCountsInEveryKindOfSlot) {
  const std::vector<Move> moves = crossings_of_every_shape(GetParam());
  expect_right(GetParam(), cpu_config(), moves);
  expect_right(GetParam(), small_slots(), moves);
}

TEST_P(Crossings, InTurnWithOtherCallsAndDelays) {
  const int ranks = GetParam();
  const std::vector<Move> crossings = long_crossings(ranks, kSanitized ? 2 : 7), others = random_moves(40, ranks, 3);
  if (crossings.empty()) return;  // a rank alone crosses to nobody
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    std::mt19937 delays(static_cast<unsigned>(rank));
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (delays() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 200));
      run_on_cpu_rank(communicator, crossings[i % crossings.size()]);
      run_on_cpu_rank(communicator, others[i]);
    }
  }));
}

// Capacities are each rank's own. Two recordings and eager calls take turns, with new counts and slots each time.
TEST_P(Crossings, TwoRecordingsForEveryBatch) {
  const int ranks = GetParam();
  for (const Padding padding : {Padding::none, Padding::max, Padding::per_rank}) {
    expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
      gather_and_scatter_every_batch(HostSide(communicator), ranks, rank,
                                     {.padding = padding, .widths = {40}, .turns = 30, .group_ranks = ranks});
      if (ranks % 2 == 0)
        gather_and_scatter_every_batch(HostSide(communicator), ranks, rank,
                                       {.padding = padding, .widths = {40}, .turns = 30, .group_ranks = 2});
    }));
  }
}

struct CrossingMisfit {
  const char* says;
  std::vector<std::int32_t> counts;
  bool gathers = true;
};
void PrintTo(const CrossingMisfit& misfit, std::ostream* out) {
  *out << misfit.says;
}
class CrossingMisfits : public testing::TestWithParam<CrossingMisfit> {};
INSTANTIATE_TEST_SUITE_P(
    Counts, CrossingMisfits,
    testing::Values(CrossingMisfit{"the count of rank 1 is -1, allowed is 0 or more", {1, -1, 1, 1}},
                    CrossingMisfit{"the part of rank 3 has 5 rows, and its tensor 4", {1, 1, 3, 2}},
                    CrossingMisfit{"all slots together have 9 rows, and the tensor that holds them 8", {2, 2, 3, 2}},
                    CrossingMisfit{"the part of rank 2 has 5 rows, and its tensor 4", {1, 1, 5, 0}, false}),
    [](const auto& info) { return std::to_string(info.index); });

// Tensors have room for four rows of a group and eight of all. Nothing is written by the rank that finds the misfit.
TEST_P(CrossingMisfits, AreNamedAndWriteNothing) {
  const CrossingMisfit& misfit = GetParam();
  std::vector<std::vector<float>> outputs(4, std::vector<float>(8 * 4, -1.0f));
  const auto endings = run_world(4, cpu_config(), [&](Communicator& communicator, int rank) {
    const std::vector<float> input(8 * 4, 1.0f);
    (misfit.gathers ? gather_sums : scatter_sums)(communicator,
                                                  {.input = input.data(),
                                                   .output = outputs[static_cast<std::size_t>(rank)].data(),
                                                   .width = 4,
                                                   .type = DataType::f32,
                                                   .group_ranks = 2,
                                                   .counts = {.rows = misfit.counts.data()},
                                                   .input_rows = misfit.gathers ? 4u : 8u,
                                                   .output_rows = misfit.gathers ? 8u : 4u});
  });
  bool named = false;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(endings[rank].error.has_value()) << rank;
    const Errc code = endings[rank].error->code();
    EXPECT_TRUE(code == Errc::capacity || code == Errc::peer_failed) << endings[rank].what;
    if (code == Errc::capacity) {
      EXPECT_TRUE(std::ranges::all_of(outputs[rank], [](float value) { return value == -1; })) << rank;
    }
    named = named || endings[rank].what.find(misfit.says) != std::string::npos;
  }
  EXPECT_TRUE(named) << endings[0].what << "\n" << endings[3].what;
}

TEST(CrossingArguments, ErrorsNameTheValueAndTheRange) {
  auto communicators = Communicator::local(1, cpu_config());
  std::vector<float> memory(64);
  const std::int32_t rows[] = {1};
  const CrossingArgs good{.input = memory.data(),
                          .output = memory.data() + 32,
                          .width = 4,
                          .type = DataType::f32,
                          .counts = {.rows = rows},
                          .input_rows = 2,
                          .output_rows = 2};
  for (const auto call : {gather_sums, scatter_sums}) {
    call(communicators[0], good);
    const auto expect_rejected = [&](auto change, const std::string& says) {
      CrossingArgs args = good;
      change(args);
      try {
        call(communicators[0], args);
        ADD_FAILURE() << "not rejected: " << says;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
      }
    };
    expect_rejected([](CrossingArgs& a) { a.group_ranks = 2; }, "group_ranks: 2 is no divisor of the group's 1");
    expect_rejected([](CrossingArgs& a) { a.group_ranks = 0; }, "group_ranks: 0 is no divisor of the group's 1");
    expect_rejected([](CrossingArgs& a) { a.type = DataType::u8; }, "type");
    expect_rejected([](CrossingArgs& a) { a.counts.rows = nullptr; }, "counts.rows: null");
  }
}

// The crossing's own checks; with one rank per group they are those of all_gather_v and reduce_scatter_v.
TEST(CrossingArguments, OfGroupsOfTwo) {
  const auto says = [](auto change) {
    return run_world(2, cpu_config(),
                     [&](Communicator& communicator, int) {
                       std::vector<float> memory(64);
                       const std::int32_t rows[] = {1, 1};
                       CrossingArgs args{.input = memory.data(),
                                         .output = memory.data() + 32,
                                         .width = 4,
                                         .type = DataType::f32,
                                         .group_ranks = 2,
                                         .counts = {.rows = rows},
                                         .input_rows = 2,
                                         .output_rows = 2};
                       change(args);
                       gather_sums(communicator, args);
                     })[0]
        .what;
  };
  expect_says(says([](CrossingArgs& a) { a.counts.sharding = Sharding::balanced; }),
              "counts.sharding: balanced is not none; counts are of every rank");
  expect_says(says([](CrossingArgs& a) { a.output = const_cast<void*>(a.input); }), "overlap");
  expect_says(says([](CrossingArgs& a) { a.width = std::size_t{1} << 41; }), "width: 2199023255552 is not between");
  expect_says(says([](CrossingArgs& a) { a.output = nullptr; }), "output");
  EXPECT_EQ(says([](CrossingArgs&) {}), "");
}

}  // namespace
}  // namespace weft::test
