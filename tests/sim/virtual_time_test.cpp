// Layers of experts in virtual time: one part after the other takes as long as the parts do, and rounds hide what they
// can hide. docs/moe.md has the sources of all numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "mutant_number.hpp"
#include "ops/layer/sim_timed_layer.hpp"

namespace weft::sim {
namespace {

// DeepSeek-V3 in rounds.
struct LayerCase {
  unsigned ranks;
  unsigned tokens;    // of each rank
  bool ring;          // the path of rows in rounds
  double most;        // of the time of rounds, in ideals
  Division division;  // empty: two halves

  Division experts() const { return division.empty() ? Division(2, 128 / ranks) : division; }
  std::string name() const {
    const std::string name = fmt::format("{}_ep{}_{}tokens", ring ? "ring" : "slots", ranks, tokens);
    return division.empty() ? name : fmt::format("{}_{}", name, fmt::join(division, "_"));
  }
  friend std::ostream& operator<<(std::ostream& out, const LayerCase& one) { return out << one.name(); }
};

// Both GEMMs of a rank's experts with so many rows each, in nanoseconds. On 132 processors:
double experts_of_one_round(const LayerCase& one) {
  if (one.ranks == 8) return 366'000;
  if (one.ranks == 16) return 187'000;
  return one.tokens == 128 ? 110'000 : 97'200;
}
// The time of so many experts on 116 processors, between numbers that were measured. None take two launches.
double experts_on_116(const LayerCase& one, double experts) {
  struct Point {
    double experts, ns;
  };
  constexpr double kTwoLaunches = 8'300;
  std::vector<Point> measured{{0, kTwoLaunches}, {4, 55'000}, {8, 101'000}, {16, 200'000}, {32, 374'000}};
  if (one.ranks * one.tokens == 32 * 128) measured = {{0, kTwoLaunches}, {4, 58'000}, {8, 119'000}};  // more rows each
  std::size_t next = 1;
  while (measured[next].experts < experts) ++next;
  const Point &low = measured[next - 1], &high = measured[next];
  return low.ns + (experts - low.experts) / (high.experts - low.experts) * (high.ns - low.ns);
}

TimedLayer layer_of(const LayerCase& one, bool ring) {
  constexpr unsigned kTokens = 16;
  constexpr double kReadBy116 = 4.49, kReadBy100 = 4.39;  // TB/s: the experts read weights
  TimedLayer layer{.traffic = {.ranks = one.ranks,
                               .experts = 256,
                               .top_k = 8,
                               .tokens = kTokens,
                               .tokens_each = static_cast<double>(one.tokens) / kTokens,
                               .row_bytes = 7168 + 224,
                               .result_bytes = 2 * 7168,
                               .ring = ring},
                   .experts_ns = experts_of_one_round(one),
                   .division = one.experts(),
                   .processors = 16,
                   .round_ns = {}};
  for (const std::uint32_t experts : layer.division)
    layer.round_ns.push_back(experts_on_116(one, experts) * kReadBy116 / kReadBy100);
  return layer;
}

constexpr double kNear = 1.10;  // what rounds should take at most, in ideals

void expect_near_the_ideal(const LayerCase& one) {
  const TimedLayer layer = layer_of(one, one.ring);
  const TimedRun rounds = run_rounds(layer);
  const TimedRoundParts parts = parts_of_rounds(layer);
  EXPECT_LE(rounds.ns / ideal(parts), one.most) << rounds.ns << " ns, and the ideal " << ideal(parts);
  EXPECT_GE(rounds.ns / ideal(parts), 1);
  EXPECT_EQ(rounds.outputs, run_plain(layer).outputs);
}

class VirtualTime : public testing::TestWithParam<LayerCase> {};

TEST_P(VirtualTime, OfOnePartAfterTheOtherIsThatOfTheParts) {
  const TimedLayer layer = layer_of(GetParam(), GetParam().ring);
  const double took = run_plain(layer).ns, parts = ideal(parts_of_plain(layer));
  EXPECT_NEAR(took / parts, 1, 0.02) << took << " ns, and the parts " << parts;
}

TEST_P(VirtualTime, OfRoundsIsNearTheIdeal) {
  expect_near_the_ideal(GetParam());
}

std::string case_name(const testing::TestParamInfo<LayerCase>& info) {
  return info.param.name();
}

INSTANTIATE_TEST_SUITE_P(Sim, VirtualTime,
                         testing::Values(LayerCase{8, 128, false, kNear, {}}, LayerCase{8, 128, true, kNear, {}},
                                         LayerCase{16, 128, false, kNear, {}}, LayerCase{16, 128, true, kNear, {}},
                                         LayerCase{32, 64, false, kNear, {}}, LayerCase{32, 128, true, kNear, {}}),
                         case_name);
// Here a warp adds up the counts of 32 ranks four at a time, and waits for each four.
INSTANTIATE_TEST_SUITE_P(OfManyCounts, VirtualTime, testing::Values(LayerCase{32, 128, false, 1.13, {}}), case_name);

// In more rounds than two, even and uneven ones.
class ManyRoundsInTime : public testing::TestWithParam<LayerCase> {};
TEST_P(ManyRoundsInTime, AreNearTheIdeal) {
  expect_near_the_ideal(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Sim, ManyRoundsInTime,
    testing::Values(LayerCase{8, 128, false, kNear, {11, 11, 10}}, LayerCase{8, 128, true, kNear, {11, 11, 10}},
                    LayerCase{8, 128, false, kNear, {8, 8, 8, 8}}, LayerCase{8, 128, true, kNear, {8, 8, 8, 8}},
                    LayerCase{8, 128, false, kNear, {8, 16, 8}}, LayerCase{8, 128, true, kNear, {8, 16, 8}},
                    LayerCase{16, 128, false, kNear, {6, 6, 4}}, LayerCase{16, 128, true, kNear, {6, 6, 4}},
                    LayerCase{16, 128, true, kNear, {4, 4, 4, 4}}, LayerCase{16, 128, false, kNear, {8, 4, 4}},
                    LayerCase{16, 128, true, kNear, {4, 8, 4}}),
    case_name);

// Bugs that no result shows. With eight ranks communication is too small a part of the layer.
class TimeMutants : public testing::TestWithParam<int> {
 protected:
  void TearDown() override { detail::active_mutant = 0; }
};

TEST_P(TimeMutants, TakeTooLong) {
  for (const LayerCase& one :
       {LayerCase{16, 128, false, kNear, {}}, LayerCase{16, 128, true, kNear, {}}, LayerCase{32, 128, true, kNear, {}},
        LayerCase{16, 128, false, kNear, {6, 6, 4}}, LayerCase{16, 128, true, kNear, {4, 4, 4, 4}}}) {
    detail::active_mutant = 0;
    const TimedLayer layer = layer_of(one, one.ring);
    const double best = ideal(parts_of_rounds(layer));
    const TimedRun good = run_rounds(layer);
    detail::active_mutant = GetParam();
    const TimedRun bad = run_rounds(layer);
    EXPECT_GT(bad.ns / best, kNear) << one << ": " << bad.ns << " ns, and the ideal " << best;
    EXPECT_EQ(bad.outputs, good.outputs);
  }
}
INSTANTIATE_TEST_SUITE_P(Sim, TimeMutants, testing::ValuesIn(mutants(Shown::in_time)), mutant_test_name);

}  // namespace
}  // namespace weft::sim
