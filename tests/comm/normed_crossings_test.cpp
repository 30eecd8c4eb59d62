// Crossings with residual and norm on CPU ranks: every group, slot, output and cast, in one go and in chunks; beside
// the calls that they replace; recorded, with counts that do not fit, and bad calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "support/move_mixes.hpp"
#include "support/move_recordings.hpp"
#include "support/normed_crossings.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/turn_cases.hpp"
#include "support/verdicts.hpp"
#include "support/world.hpp"
#include "weft/crossings.hpp"

namespace weft::test {
namespace {

class NormedCrossings : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, NormedCrossings, testing::ValuesIn(world_sizes({1, 2, 3, 4, 6, 8})));

TEST_P(NormedCrossings, EveryShapeOfCountsInEveryKindOfSlot) {
  const std::vector<NormedCrossing> calls = normed_crossings_of_every_shape(GetParam());
  for (const Config& config : {cpu_config(), small_slots()}) {
    expect_all_well(run_world(GetParam(), config, [&](Communicator& communicator, int) {
      for (const NormedCrossing& call : calls) run_on_cpu_rank(communicator, call);
    }));
  }
}

TEST_P(NormedCrossings, InTurnWithOtherCallsAndDelays) {
  const int ranks = GetParam();
  const std::vector<NormedCrossing> crossings = long_normed_crossings(ranks, kSanitized ? 2 : 5);
  const std::vector<Move> others = random_moves(40, ranks, 3);
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    std::mt19937 delays(static_cast<unsigned>(rank));
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (delays() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 200));
      run_on_cpu_rank(communicator, crossings[i % crossings.size()]);
      run_on_cpu_rank(communicator, others[i]);
    }
  }));
}

// Capacities are each rank's own. Two recordings and eager calls take turns, with new counts each time.
TEST_P(NormedCrossings, TwoRecordingsForEveryBatch) {
  const int ranks = GetParam();
  for (const bool one_rank_fits : {true, false}) {
    for (int group_ranks = 1; group_ranks <= ranks; ++group_ranks) {
      if (ranks % group_ranks != 0) continue;
      const NormedTurns turns{.ranks = ranks, .group_ranks = group_ranks, .one_rank_fits = one_rank_fits};
      expect_all_well(run_world(ranks, turns.config(cpu_config()), [&](Communicator& communicator, int rank) {
        turns.take(HostSide(communicator), rank,
                   [](const RankNormedCrossing& largest) { return HostNormedCrossing(largest); });
      }));
    }
  }
}

// reduce_scatter_v, all_reduce_rms_norm of a rank alone, and all_gather_v: whatever bits the three leave.
TEST_P(NormedCrossings, HaveTheBitsOfThreeCalls) {
  const int ranks = GetParam();
  static constexpr std::size_t hidden = 256, each = 3, groups_of_columns = hidden / 128;
  for (int group_ranks = 1; group_ranks <= ranks; ++group_ranks) {
    if (ranks % group_ranks != 0) continue;
    expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
      const Group group = communicator.split(rank / group_ranks), alone = communicator.split(rank);
      const auto n = static_cast<std::size_t>(ranks), a = static_cast<std::size_t>(group_ranks);
      const std::vector<std::int32_t> counts(n, std::int32_t{each});
      for (const bool gathers : {true, false}) {
        const std::size_t inputs = (gathers ? a : n) * each, outputs = (gathers ? n : a) * each;
        struct alignas(16) Row {
          std::uint16_t column[hidden];
          bool operator==(const Row&) const = default;
        };
        const auto random = [&](std::size_t rows, unsigned seed) {
          std::mt19937 bits(seed);
          std::vector<Row> made(rows);
          for (Row& row : made)
            for (std::uint16_t& c : row.column)
              c = static_cast<std::uint16_t>(0x3f00 + bits() % 0x200 + bits() % 2 * 0x8000);
          return made;
        };
        const std::vector<Row> input = random(inputs, static_cast<unsigned>(rank)), gamma = random(1, 99);
        const std::vector<Row> residual = random(each, 50 + static_cast<unsigned>(rank));
        struct Result {
          std::vector<Row> residual, normed;
          std::vector<std::uint8_t> cast;
          std::vector<float> scales;
          bool operator==(const Result&) const = default;
        };
        const auto room = [](std::size_t rows) {
          return Result{std::vector<Row>(rows), std::vector<Row>(rows), std::vector<std::uint8_t>(rows * hidden),
                        std::vector<float>(rows * groups_of_columns)};
        };
        const auto fp8_of = [](Result& result) {
          return Fp8Output{
              .rows = result.cast.data(), .scaling = Fp8Scaling::per_128_columns, .scales = result.scales.data()};
        };
        Result fused = room(outputs);
        fused.residual.resize(each);
        (gathers ? gather_sums_rms_norm : scatter_sums_rms_norm)(communicator,
                                                                 {.input = input.data(),
                                                                  .residual = residual.data(),
                                                                  .residual_output = fused.residual.data(),
                                                                  .gamma = gamma.data(),
                                                                  .output = fused.normed.data(),
                                                                  .fp8 = fp8_of(fused),
                                                                  .hidden = hidden,
                                                                  .group_ranks = a,
                                                                  .counts = {.rows = counts.data()},
                                                                  .input_rows = inputs,
                                                                  .shard_rows = each,
                                                                  .output_rows = outputs});
        std::vector<Row> sums(each);
        reduce_scatter_v(gathers ? group : communicator, {.input = input.data(),
                                                          .output = sums.data(),
                                                          .width = hidden,
                                                          .counts = {.rows = counts.data()},
                                                          .input_rows = inputs,
                                                          .output_rows = each});
        Result shard = room(each);
        all_reduce_rms_norm(alone, {.input = sums.data(),
                                    .residual = residual.data(),
                                    .residual_output = shard.residual.data(),
                                    .gamma = gamma.data(),
                                    .output = shard.normed.data(),
                                    .fp8 = fp8_of(shard),
                                    .tokens = each,
                                    .hidden = hidden});
        Result separate = room(outputs);
        separate.residual = shard.residual;
        const GatheredTensor tensors[] = {
            {.input = shard.normed.data(), .output = separate.normed.data(), .row_bytes = hidden * 2},
            {.input = shard.cast.data(), .output = separate.cast.data(), .row_bytes = hidden},
            {.input = shard.scales.data(), .output = separate.scales.data(), .row_bytes = groups_of_columns * 4}};
        all_gather_v(
            gathers ? communicator : group,
            {.tensors = tensors, .counts = {.rows = counts.data()}, .input_rows = each, .output_rows = outputs});
        EXPECT_TRUE(fused == separate) << "rank " << rank << " of groups of " << group_ranks;
      }
    }));
  }
}

struct NormedMisfit {
  const char* says;
  std::vector<std::int32_t> counts;
  bool gathers = true;
};
void PrintTo(const NormedMisfit& misfit, std::ostream* out) {
  *out << misfit.says;
}
class NormedCrossingMisfits : public testing::TestWithParam<NormedMisfit> {};
INSTANTIATE_TEST_SUITE_P(
    Counts, NormedCrossingMisfits,
    testing::Values(NormedMisfit{"the count of rank 1 is -1, allowed is 0 or more", {1, -1, 1, 1}},
                    NormedMisfit{"the part of rank 3 has 5 rows, and its tensor 4", {1, 1, 3, 2}},
                    NormedMisfit{"the part of rank 2 has 4 rows, and its tensor 3", {1, 1, 4, 0}},
                    NormedMisfit{"all slots together have 9 rows, and the tensor that holds them 8", {2, 2, 3, 2}},
                    NormedMisfit{"the part of rank 2 has 5 rows, and its tensor 4", {1, 1, 3, 2}, false}),
    [](const auto& info) { return std::to_string(info.index); });

// Tensors have room for three rows of a shard, four rows of a group and eight of all.
TEST_P(NormedCrossingMisfits, AreNamedAndWriteNothing) {
  const NormedMisfit& misfit = GetParam();
  struct alignas(16) Rows {
    std::uint16_t element[8][8];
  };
  std::vector<Rows> outputs(4), residuals(4);
  const auto endings = run_world(4, cpu_config(), [&](Communicator& communicator, int rank) {
    const Rows input{}, gamma{};
    const auto me = static_cast<std::size_t>(rank);
    std::ranges::fill(&outputs[me].element[0][0], &outputs[me].element[0][0] + 64, std::uint16_t{7});
    std::ranges::fill(&residuals[me].element[0][0], &residuals[me].element[0][0] + 64, std::uint16_t{7});
    (misfit.gathers ? gather_sums_rms_norm : scatter_sums_rms_norm)(communicator,
                                                                    {.input = &input,
                                                                     .residual_output = &residuals[me],
                                                                     .gamma = &gamma,
                                                                     .output = &outputs[me],
                                                                     .hidden = 8,
                                                                     .group_ranks = 2,
                                                                     .counts = {.rows = misfit.counts.data()},
                                                                     .input_rows = misfit.gathers ? 4u : 8u,
                                                                     .shard_rows = 3,
                                                                     .output_rows = misfit.gathers ? 8u : 4u});
  });
  bool named = false;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(endings[rank].error.has_value()) << rank;
    const Errc code = endings[rank].error->code();
    EXPECT_TRUE(code == Errc::capacity || code == Errc::peer_failed) << endings[rank].what;
    if (code == Errc::capacity) {
      const auto untouched = [](const Rows& rows) {
        return std::ranges::all_of(&rows.element[0][0], &rows.element[0][0] + 64, [](auto e) { return e == 7; });
      };
      EXPECT_TRUE(untouched(outputs[rank]) && untouched(residuals[rank])) << rank;
    }
    named = named || endings[rank].what.find(misfit.says) != std::string::npos;
  }
  EXPECT_TRUE(named) << endings[0].what << "\n" << endings[3].what;
}

// Ranks whose weights or scales would differ.
TEST(NormedCrossingArguments, DifferentCallsAreFound) {
  const std::function<void(Norm&)> changes[] = {[](Norm&) {}, [](Norm& n) { n.gamma_f32 = true; },
                                                [](Norm& n) { n.floor = 1e-10f; }};
  for (const bool gathers : {true, false}) {
    for (const auto& change : changes) {
      const auto endings = run_world(2, cpu_config(), [&](Communicator& communicator, int rank) {
        NormedCrossing call{
            .gathers = gathers, .counts = {1, 1}, .group_ranks = 2, .norm = {.hidden = 128, .fp8 = true}};
        if (rank == 1) change(call.norm);
        run_on_cpu_rank(communicator, call);
      });
      if (&change == changes) {
        expect_all_well(endings);
        continue;
      }
      for (const Ending& ending : endings) expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "change");
    }
  }
}

// The last ranks have no tokens, and null where that is allowed. `other`: what stands for tensors that others have.
// Counts are of shards in groups of two: the first group has a row or two, the second has none.
struct Idle {
  struct alignas(16) Memory {
    std::byte bytes[8192] = {};
  };
  Memory memory;
  std::int32_t rows[4] = {1, 1, 0, 0};

  CrossingRmsNormArgs arguments(bool gathers, int rank, bool other) {
    std::byte* const at = memory.bytes;
    const bool idle = rank >= 2;
    CrossingRmsNormArgs args{.input = at,
                             .residual = at + 1024,
                             .residual_output = at + 2048,
                             .gamma = at + 3072,
                             .output = at + 4096,
                             .fp8 = {.rows = at + 5120, .scales = at + 6144},
                             .hidden = 128,
                             .group_ranks = 2,
                             .counts = {.rows = rows},
                             .input_rows = 2,
                             .shard_rows = 1,
                             .output_rows = 2};
    if (!idle) return args;
    const std::byte* const instead = other ? at + 3072 : nullptr;
    args.shard_rows = 0;
    args.residual = instead;
    args.residual_output = nullptr;
    if (gathers) {
      args.input_rows = 0;
      args.input = nullptr;
      return args;
    }
    args.output_rows = 0;
    args.output = const_cast<std::byte*>(instead);
    args.fp8.rows = const_cast<std::byte*>(instead);
    args.fp8.scales = nullptr;
    return args;
  }
};

TEST(NormedCrossingArguments, ARankWithoutRowsHasAnyAddressForWhatOthersHave) {
  for (const bool gathers : {true, false}) {
    expect_all_well(run_world(4, cpu_config(), [&](Communicator& communicator, int rank) {
      Idle idle;
      const CrossingRmsNormArgs args = idle.arguments(gathers, rank, true);
      (gathers ? gather_sums_rms_norm : scatter_sums_rms_norm)(communicator, args);
      const bool gets = gathers || rank < 2;
      const auto written = [&](std::size_t at) { return idle.memory.bytes[at] != std::byte{0}; };
      ensure(written(6144 + 3) == gets, "scales are those of other ranks' rows");
      for (std::size_t at = 3072; at < 4096; ++at) ensure(!written(at), "something was written to the other address");
    }));
  }
}

// A null residual says that there is none. Ranks that think otherwise learn which of them does.
TEST(NormedCrossingArguments, NullSaysThatNoRankHasTheTensor) {
  const auto gathered = run_world(4, cpu_config(), [&](Communicator& communicator, int rank) {
    Idle idle;
    gather_sums_rms_norm(communicator, idle.arguments(true, rank, false));
  });
  bool named = false;
  for (const Ending& ending : gathered) {
    expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "a residual");
    named = named || ending.what.find("without a residual") != std::string::npos;
  }
  EXPECT_TRUE(named) << gathered[0].what;
  const auto scattered = run_world(4, cpu_config(), [&](Communicator& communicator, int rank) {
    Idle idle;
    scatter_sums_rms_norm(communicator, idle.arguments(false, rank, false));
  });
  for (std::size_t rank = 2; rank < 4; ++rank)
    expect_says(scattered[rank].what,
                "output: null, and no fp8.rows either; a rank without rows gives any other address");
}

TEST(NormedCrossingArguments, ErrorsNameTheValueAndTheRange) {
  struct alignas(16) Memory {
    std::byte bytes[4096];
  };
  const auto says = [](auto change) {
    return run_world(2, cpu_config(),
                     [&](Communicator& communicator, int) {
                       static thread_local Memory memory;
                       const std::int32_t rows[] = {1, 1};
                       std::byte* const at = memory.bytes;
                       CrossingRmsNormArgs args{.input = at,
                                                .residual = at + 512,
                                                .residual_output = at + 1024,
                                                .gamma = at + 1536,
                                                .output = at + 2048,
                                                .hidden = 128,
                                                .group_ranks = 2,
                                                .counts = {.rows = rows},
                                                .input_rows = 2,
                                                .shard_rows = 1,
                                                .output_rows = 2};
                       change(args, at);
                       gather_sums_rms_norm(communicator, args);
                     })[0]
        .what;
  };
  using Args = CrossingRmsNormArgs;
  EXPECT_EQ(says([](Args&, std::byte*) {}), "");
  expect_says(says([](Args& a, std::byte*) { a.group_ranks = 3; }), "group_ranks: 3 is no divisor of the group's 2");
  expect_says(says([](Args& a, std::byte*) { a.counts.sharding = Sharding::ceil; }),
              "counts.sharding: ceil is not none; counts are of every rank");
  expect_says(says([](Args& a, std::byte*) { a.type = DataType::f32; }), "type: f32 is neither bf16 nor f16");
  expect_says(says([](Args& a, std::byte*) { a.hidden = 12; }), "hidden: 12 is not a multiple of 8");
  expect_says(says([](Args& a, std::byte*) { a.epsilon = -1; }), "epsilon: -1 is not a number between 0 and 1e30");
  expect_says(says([](Args& a, std::byte* at) { a.fp8 = {.rows = at + 3072, .scales = at + 3584, .floor = 0}; }),
              "fp8.floor: 0 is not a number between 1e-30 and 448");
  expect_says(says([](Args& a, std::byte* at) { a.gamma = at + 2048 - 256, a.gamma_f32 = true; }), "overlaps gamma");
  expect_says(says([](Args& a, std::byte*) { a.output = nullptr; }), "output: null, and no fp8.rows either");
  expect_says(says([](Args& a, std::byte*) { a.residual_output = nullptr; }), "residual_output");
  expect_says(says([](Args& a, std::byte* at) { a.output = at; }), "overlap");
  expect_says(says([](Args& a, std::byte* at) { a.residual_output = at + 2048; }), "overlap");
  expect_says(says([](Args& a, std::byte* at) { a.output = at + 2056; }), "align");
  expect_says(says([](Args& a, std::byte*) { a.output_stride = 4; }), "output_stride: 4 elements");
  expect_says(says([](Args& a, std::byte*) { a.output_rows = std::size_t{1} << 28; }),
              "output_rows: 268435456 rows of 16 packs are not less than 2^32 packs");
  expect_says(says([](Args& a, std::byte* at) {
                a.fp8 = {.rows = at + 3072, .scaling = Fp8Scaling::per_128_columns, .scales = nullptr};
              }),
              "fp8.scales: null, with scaling per 128 columns");
}

}  // namespace
}  // namespace weft::test
