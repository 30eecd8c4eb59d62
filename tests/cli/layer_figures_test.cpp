// Figures of a layer, from times that are made up.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bench/layer_figures.hpp"

namespace weft::cli {
namespace {

LayerRow made_up_row() {
  LayerRow row{.tokens = 1};
  const auto add = [&](TimedPart part, const LayerWay& way, double us) {
    row.timed.push_back({.part = part, .way = way, .figure = {.us = us}});
  };
  const LayerWay rounds{.schedule = LayerSchedule::rounds, .rounds = 2, .sms = 16},
      combine{.schedule = LayerSchedule::combine_rounds, .rounds = 2, .sms = 16};
  const auto on_all = [](LayerWay way) {
    way.sms = 0;
    return way;
  };
  add(TimedPart::layer, {}, 1000);
  add(TimedPart::layer, {.path = RowPath::ring}, 990);
  add(TimedPart::layer, rounds, 900);
  add(TimedPart::layer, combine, 950);
  add(TimedPart::exchange, {}, 290);
  add(TimedPart::experts, {}, 600);
  add(TimedPart::experts, rounds, 100);
  add(TimedPart::experts, of_any_method(rounds), 98);
  add(TimedPart::up, {}, 400);
  add(TimedPart::down, combine, 30);
  add(TimedPart::dispatch, {}, 200);
  add(TimedPart::combine, {}, 80);
  add(TimedPart::dispatch, {.sms = 16}, 300);
  add(TimedPart::combine, {.sms = 16}, 100);
  add(TimedPart::first_dispatch, on_all(rounds), 60);
  add(TimedPart::last_combine, on_all(rounds), 50);
  add(TimedPart::first_dispatch, rounds, 90);
  add(TimedPart::last_combine, rounds, 55);
  add(TimedPart::last_combine, last_expert(32, RowPath::slots), 7);
  add(TimedPart::dispatch_rounds, of_any_method(rounds), 340);
  add(TimedPart::combine_rounds, of_any_method(rounds), 130);
  return row;
}

// The larger of experts and communication, once each, and the ends that nothing hides.
TEST(BenchMoeLayer, IdealsHideTheSmallerPart) {
  LayerRow row = made_up_row();
  const LayerWay rounds = row.timed[2].way, combine = row.timed[3].way;
  const auto set = [&](TimedPart part, const LayerWay& way, double us) {
    for (TimedLayer& one : row.timed)
      if (one.part == part && one.way == way) one.figure.us = us;
  };
  EXPECT_DOUBLE_EQ(ideal_us(row, rounds), 60 + (300 - 90) + (100 - 55) + 50);
  EXPECT_DOUBLE_EQ(ideal_us(row, combine), 200 + 400 + (100 - 55) + 50);
  // All methods of peo have the parts of one.
  LayerWay rival = rounds;
  rival.peo = 3;
  EXPECT_DOUBLE_EQ(ideal_us(row, rival), 60 + (340 - 90) + (130 - 55) + 50);
  EXPECT_DOUBLE_EQ(signals_ideal_us(row, RowPath::slots, 32), 600 + 7);
  set(TimedPart::experts, rounds, 260);
  set(TimedPart::experts, of_any_method(rounds), 330);
  set(TimedPart::down, combine, 70);
  set(TimedPart::experts, {}, 240);
  EXPECT_DOUBLE_EQ(ideal_us(row, rounds), 60 + 260 + 50);
  EXPECT_DOUBLE_EQ(ideal_us(row, combine), 200 + 400 + 70 + 50);
  EXPECT_DOUBLE_EQ(ideal_us(row, rival), 60 + 330 + 50);
  EXPECT_DOUBLE_EQ(signals_ideal_us(row, RowPath::slots, 32), 200 + 80 + 7);
  EXPECT_DOUBLE_EQ(over_parts_us(row, row.timed[0]), 1000 - 290 - 240);
  // The owner's sum is in every layer.
  row.timed.push_back({.part = TimedPart::sum, .way = {}, .figure = {.us = 3}});
  EXPECT_DOUBLE_EQ(ideal_us(row, rounds), 60 + 260 + 50 + 3);
  EXPECT_DOUBLE_EQ(over_parts_us(row, row.timed[0]), 1000 - 290 - 240 - 3);
  // Not timed by the ring; and no schedule but these has one.
  for (LayerWay way : {rounds, combine, rival}) {
    way.path = RowPath::ring;
    EXPECT_EQ(ideal_us(row, way), 0);
  }
  EXPECT_EQ(signals_ideal_us(row, RowPath::ring, 32), 0);
  EXPECT_EQ(ideal_us(row, {}), 0);
  for (std::size_t i = 4; i < row.timed.size(); ++i) {
    LayerRow without = row;
    without.timed.erase(without.timed.begin() + static_cast<std::ptrdiff_t>(i));
    const TimedPart part = row.timed[i].part;
    const bool of_ideals = part != TimedPart::exchange && part != TimedPart::sum;
    const bool lost = ideal_us(without, rounds) == 0 || ideal_us(without, combine) == 0 ||
                      ideal_us(without, rival) == 0 || signals_ideal_us(without, RowPath::slots, 32) == 0;
    EXPECT_EQ(lost, of_ideals) << name(part);
  }
}

// Dispatch hides a shared expert of 75 µs but for what it takes beyond it, which experts or the down GEMM wait for.
TEST(BenchMoeLayer, ASharedExpertIsHiddenByDispatchFirst) {
  LayerRow row = made_up_row();
  const LayerWay rounds = row.timed[2].way, combine = row.timed[3].way;
  const LayerWay rival = of_any_method(rounds);
  const auto ideals = [&] {
    return std::vector{ideal_us(row, rounds), ideal_us(row, combine), ideal_us(row, rival),
                       signals_ideal_us(row, RowPath::slots, 32)};
  };
  for (TimedLayer& one : row.timed) {
    if (one.part == TimedPart::experts && one.way == rounds) one.figure.us = 260;
    if (one.part == TimedPart::experts && one.way == rival) one.figure.us = 330;
    if (one.part == TimedPart::down) one.figure.us = 70;
  }
  row.timed.push_back({.part = TimedPart::shared, .way = {}, .figure = {.us = 75}});
  EXPECT_EQ(ideals(), (std::vector<double>{60 + 260 + 15 + 50, 200 + 400 + 70 + 50, 60 + 330 + 15 + 50, 600 + 75 + 7}));
  TimedLayer& plain = row.timed[0];
  EXPECT_DOUBLE_EQ(over_parts_us(row, plain), 1000 - 290 - 600);
  plain.way.shared_first = true;
  EXPECT_DOUBLE_EQ(over_parts_us(row, plain), 1000 - 290 - 600 - 75);
  plain.way.shared_first = false;
  row.timed.back().figure.us = 210;  // more than the dispatch
  EXPECT_EQ(ideals(),
            (std::vector<double>{60 + 260 + 150 + 50, 200 + 400 + 80 + 50, 60 + 330 + 150 + 50, 600 + 210 + 7}));
  EXPECT_DOUBLE_EQ(over_parts_us(row, plain), 1000 - 290 - 600 - 10);
}

TEST(BenchMoeLayer, TheBestOfEachScheduleIsItsFastest) {
  const LayerRow row = made_up_row();
  std::vector<const TimedLayer*> best = best_ways(row);
  ASSERT_EQ(best.size(), 3u);
  EXPECT_EQ(best[0], &row.timed[1]);  // plain by the ring
  EXPECT_EQ(best[1], &row.timed[2]);
  EXPECT_EQ(best[2], &row.timed[3]);
  EXPECT_EQ(fastest_of(row, "plain"), 990);
  EXPECT_EQ(fastest_of(row, "peo"), 0);
}

}  // namespace
}  // namespace weft::cli
