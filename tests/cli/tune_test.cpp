// weft tune: the search, and the table steps that it gives.
#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>

#include "comm/state.hpp"
#include "support/ranks.hpp"
#include "tune/subject.hpp"
#include "tune/tuner.hpp"

namespace weft::cli {
namespace {

using detail::TuningStep;

const TuneSpace kSpace{.algorithms = {Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined},
                       .blocks = {9, 33},
                       .threads = {64, 512},
                       .samples = 5};

TEST(Tuner, TheFastestAlgorithmWinsAndOnlyRivalsGridsAreTried) {
  std::vector<Trial> trials;
  const auto time = [&](const Trial& trial) {
    trials.push_back(trial);
    if (trial.algorithm == Algorithm::automatic) return 12.0;
    if (trial.algorithm == Algorithm::pipelined) return 20.0;
    const bool best = trial.launch.blocks == 33 && trial.launch.threads == 64;
    return trial.algorithm == Algorithm::one_shot ? 10.0 : best ? 8.0 : 11.0;
  };
  const TunedSize tuned = tune_size({.bytes = 1024}, kSpace, time);
  EXPECT_EQ(tuned.bytes, 1024u);
  EXPECT_EQ(tuned.algorithm, Algorithm::two_shot);
  EXPECT_EQ(tuned.launch.blocks, 33);
  EXPECT_EQ(tuned.launch.threads, 64);
  EXPECT_EQ(tuned.time.us, 8.0);
  EXPECT_EQ(tuned.before.us, 12.0);
  for (const Trial& trial : trials) {
    EXPECT_EQ(trial.bytes, 1024u);
    if (trial.algorithm == Algorithm::pipelined) {
      EXPECT_EQ(trial.launch.blocks, 0);
    }
  }
}

TEST(Tuner, ALuckyGridIsMeasuredAgain) {
  const auto time = [&](const Trial& trial) {
    const bool lucky = trial.launch.blocks == 9 && trial.launch.threads == 512;
    return lucky && trial.samples == kSpace.samples ? 5.0 : 10.0;
  };
  EXPECT_EQ(tune_size({.bytes = 1024}, kSpace, time).launch.blocks, 0);
}

TEST(Tuner, WhatGainsNoMoreThanNoiseStaysAsItWas) {
  const TunedSize previous{.bytes = 512, .algorithm = Algorithm::one_shot};
  for (const auto& [two_shot, wanted] : {std::pair(9.9, Algorithm::one_shot), std::pair(9.7, Algorithm::two_shot)}) {
    const auto time = [&, us = two_shot](const Trial& trial) {
      const double by_size = trial.algorithm == Algorithm::two_shot ? us : 10.0;
      return trial.launch.blocks != 0 ? by_size * 0.98 : by_size;  // no grid gains enough to be chosen
    };
    const TunedSize tuned = tune_size({.bytes = 1024, .previous = &previous}, kSpace, time);
    EXPECT_EQ(tuned.algorithm, wanted) << two_shot;
    EXPECT_EQ(tuned.launch.blocks, 0);
  }
}

// Each of the two candidates has the spread of its own turns.
TEST(Tuner, TurnsHaveASpread) {
  const auto time = [&](const Trial& trial) {
    if (trial.turn == 0) return trial.algorithm == Algorithm::two_shot ? 5.0 : 10.0;
    return trial.algorithm == Algorithm::automatic ? 8.0 + trial.turn : 4.0 + 0.1 * trial.turn;
  };
  const TunedSize tuned = tune_size({.bytes = 1024}, kSpace, time);
  EXPECT_EQ(tuned.algorithm, Algorithm::two_shot);
  EXPECT_DOUBLE_EQ(tuned.time.least, 4.1);
  EXPECT_DOUBLE_EQ(tuned.time.us, 4.4);
  EXPECT_DOUBLE_EQ(tuned.time.most, 4.7);
  EXPECT_EQ(tuned.before.least, 9.0);
  EXPECT_EQ(tuned.before.us, 12.0);
  EXPECT_EQ(tuned.before.most, 15.0);
  EXPECT_EQ(tuned.time.samples, 7u);
}

// The present choice stays unless it is beaten in turns. The figures come from these turns.
TEST(Tuner, WhoIsSlowerInTurnsDoesNotWin) {
  std::vector<Trial> turns;
  const auto time = [&](const Trial& trial) {
    if (trial.turn == 0) return trial.algorithm == Algorithm::two_shot ? 5.0 : 10.0;  // lucky once
    turns.push_back(trial);
    return trial.algorithm == Algorithm::automatic ? 9.0 : 20.0;
  };
  const TunedSize tuned = tune_size({.bytes = 1024, .launch = {.blocks = 9, .threads = 64}}, kSpace, time);
  EXPECT_EQ(tuned.algorithm, Algorithm::one_shot);
  EXPECT_EQ(tuned.launch.blocks, 9);
  EXPECT_EQ(tuned.launch.threads, 64);
  EXPECT_TRUE(tuned.as_before);
  EXPECT_EQ(tuned.time.us, 9.0);
  EXPECT_EQ(tuned.before.us, 9.0);
  ASSERT_EQ(turns.size(), 14u);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(turns[i].turn, static_cast<int>(i / 2) + 1);
    EXPECT_EQ(turns[i].samples, 3);
    // The first candidate of each turn alternates.
    EXPECT_EQ(turns[i].algorithm, (i + 1) / 2 % 2 == 0 ? Algorithm::automatic : Algorithm::two_shot) << i;
  }
}

TEST(Tuner, AGainBelowTheNoiseOfItsTurnsIsNone) {
  // A median that is a tenth better, in turns that differ by `spread`. One fast and one slow turn do not count.
  for (const auto& [spread, wins] : {std::pair(0.9, true), std::pair(1.1, false)}) {
    const auto time = [&, noise = spread](const Trial& trial) {
      if (trial.turn == 0) return trial.algorithm == Algorithm::two_shot ? 9.0 : 10.0;
      if (trial.algorithm == Algorithm::automatic) return trial.turn == 2 ? 50.0 : 10.0;
      const double late[] = {9.0, 9.0 - noise / 2, 9.0 + noise / 2, 9.0, 9.0, 1.0, 40.0};
      return late[trial.turn - 1];
    };
    const TunedSize tuned = tune_size({.bytes = 1024}, kSpace, time);
    EXPECT_EQ(tuned.as_before, !wins) << spread;
    EXPECT_EQ(tuned.algorithm, wins ? Algorithm::two_shot : Algorithm::one_shot) << spread;
    EXPECT_EQ(tuned.time.us, wins ? 9.0 : 10.0);
    EXPECT_EQ(tuned.before.us, 10.0);
  }
}

TEST(Tuner, EqualTimesLeaveWhatThereIs) {
  int turns = 0;
  const auto time = [&](const Trial& trial) {
    turns += trial.turn != 0 ? 1 : 0;
    return 10.0;
  };
  const TunedSize grid =
      tune_size({.bytes = 1024, .algorithm = Algorithm::pipelined, .launch = {.blocks = 33}}, kSpace, time);
  EXPECT_EQ(grid.algorithm, Algorithm::pipelined);
  EXPECT_EQ(grid.launch.blocks, 33);
  EXPECT_TRUE(grid.as_before);
  EXPECT_EQ(turns, 14);
  // A choice does not take turns with itself.
  EXPECT_TRUE(tune_size({.bytes = 1024}, kSpace, time).as_before);
  EXPECT_EQ(turns, 14);
}

TEST(Tuner, BetweenTwoSizesTheMiddleDecides) {
  const auto size = [](std::size_t bytes, Algorithm algorithm, Launch launch = {}) {
    return TunedSize{.bytes = bytes, .algorithm = algorithm, .launch = launch};
  };
  const TuningStep base[] = {{.algorithm = Algorithm::one_shot}};
  EXPECT_EQ(steps_of({size(1024, Algorithm::one_shot), size(2048, Algorithm::one_shot),
                      size(4096, Algorithm::one_shot, {.blocks = 9, .threads = 64}),
                      size(8192, Algorithm::one_shot, {.blocks = 9, .threads = 64}), size(16384, Algorithm::pipelined)},
                     base),
            (std::vector<TuningStep>{{.up_to = 3072, .algorithm = Algorithm::one_shot},
                                     {.up_to = 12288, .algorithm = Algorithm::one_shot, .blocks = 9, .threads = 64},
                                     {.up_to = 16384, .algorithm = Algorithm::pipelined},
                                     {.algorithm = Algorithm::one_shot}}));
  // If the middle is no round number, one near it: 4 KB and 64 KB meet at 32 KB, 1008 and 1024 bytes at 1016.
  for (const auto& [below, above, middle] :
       {std::tuple(4096u, 65'536u, 32'768u), {65'536u, 98'304u, 81'920u}, {1008u, 1024u, 1016u}, {16u, 48u, 32u}})
    EXPECT_EQ(steps_of({size(below, Algorithm::two_shot), size(above, Algorithm::pipelined)}, base)[1].up_to, middle);
}

// A few sizes do not decide about gigabytes: the table stays as before beyond them.
TEST(Tuner, OtherSizesAreServedAsBefore) {
  const TuningStep base[] = {{.up_to = 4095, .algorithm = Algorithm::one_shot, .blocks = 5, .threads = 64},
                             {.up_to = 100'000, .algorithm = Algorithm::one_shot},
                             {.up_to = 200'000, .algorithm = Algorithm::two_shot, .blocks = 65, .threads = 512},
                             {.up_to = 300'000, .algorithm = Algorithm::two_shot},
                             {.algorithm = Algorithm::pipelined}};
  const auto tuned = [&](std::vector<TunedSize> sizes) {
    const auto steps = steps_of(sizes, base);
    // parse_tuning() reads the table back for any steps.
    const std::vector<detail::TuningTable> tables = {
        {.processor = {"CPU"}, .ranks = 2, .origin = "measured", .steps = steps}};
    EXPECT_EQ(detail::parse_tuning(detail::to_json(tables), "file"), tables);
    return steps;
  };
  // A different algorithm serves only between its sizes.
  EXPECT_EQ(
      tuned({{.bytes = 8192, .algorithm = Algorithm::pipelined}, {.bytes = 65536, .algorithm = Algorithm::pipelined}}),
      (std::vector<TuningStep>{base[0],
                               {.up_to = 65536, .algorithm = Algorithm::pipelined},
                               {.up_to = 100'000, .algorithm = Algorithm::one_shot},
                               base[2],
                               base[3],
                               base[4]}));
  // Below the sizes the old choice ends at a power of two, which a person reads more easily than any other number.
  EXPECT_EQ(tuned({{.bytes = 16'384, .algorithm = Algorithm::pipelined}}),
            (std::vector<TuningStep>{base[0],
                                     {.up_to = 8192, .algorithm = Algorithm::one_shot},
                                     {.up_to = 16'384, .algorithm = Algorithm::pipelined},
                                     {.up_to = 100'000, .algorithm = Algorithm::one_shot},
                                     base[2],
                                     base[3],
                                     base[4]}));
  // The same algorithm with a grid replaces steps without one, and leaves other grids alone.
  EXPECT_EQ(tuned({{.bytes = 8192, .algorithm = Algorithm::one_shot, .launch = {.blocks = 9, .threads = 96}},
                   {.bytes = 150'000, .algorithm = Algorithm::two_shot, .launch = {.blocks = 9, .threads = 96}}}),
            (std::vector<TuningStep>{base[0],
                                     {.up_to = 65'536, .algorithm = Algorithm::one_shot, .blocks = 9, .threads = 96},
                                     {.up_to = 150'000, .algorithm = Algorithm::two_shot, .blocks = 9, .threads = 96},
                                     base[2],
                                     base[3],
                                     base[4]}));
  // A step that begins or ends with the sizes leaves no rest.
  EXPECT_EQ(
      tuned({{.bytes = 4096, .algorithm = Algorithm::pipelined}, {.bytes = 300'000, .algorithm = Algorithm::two_shot}}),
      (std::vector<TuningStep>{base[0],
                               {.up_to = 131'072, .algorithm = Algorithm::pipelined},
                               {.up_to = 300'000, .algorithm = Algorithm::two_shot},
                               base[4]}));
  EXPECT_EQ(tuned({{.bytes = 1 << 20, .algorithm = Algorithm::pipelined}}), (std::vector<TuningStep>(base, base + 5)));
}

// The sizes of lines and chunks: "l" and "c", in capitals if they were measured; "h" is one hop.
std::vector<TunedSize> ways(const std::string& text) {
  std::vector<TunedSize> all;
  for (const char letter : text) {
    const char way = static_cast<char>(std::tolower(letter));
    all.push_back({.bytes = 1024 * (all.size() + 1),
                   .algorithm = way == 'h'   ? detail::MoveWay::one_hop
                                : way == 'l' ? detail::MoveWay::lines
                                             : detail::MoveWay::chunks,
                   .launch = {.blocks = 9, .threads = 64},
                   .time = {.us = 1, .samples = letter == way ? 0u : 1u}});
  }
  return all;
}
std::string letters(const std::vector<TunedSize>& sizes, const std::vector<TuningStep>& steps) {
  std::string all;
  for (const TunedSize& size : sizes) {
    const TuningStep& step = detail::step_for(steps, size.bytes, size.bytes);
    all += step.algorithm == detail::MoveWay::one_hop ? 'h' : step.algorithm == detail::MoveWay::lines ? 'l' : 'c';
    EXPECT_EQ(step.blocks, step.algorithm == size.algorithm ? 9 : 0);
  }
  return all;
}

TEST(Tuner, NoWayOfAMoveComesBack) {
  const TuningStep base[] = {{.up_to = 6000, .algorithm = detail::MoveWay::lines, .blocks = 9, .threads = 64},
                             {.algorithm = detail::MoveWay::chunks}};
  for (const auto& [measured, wanted] : {std::pair("LLCC", "llcc"),
                                         {"CLLL", "llll"},
                                         {"LLLC", "lllc"},
                                         {"LCCC", "lccc"},
                                         {"LCllC", "lcccc"},  // the two in between were not measured
                                         {"LccLC", "llllc"},
                                         {"HLHHLC", "hhhhlc"},
                                         {"LHHC", "hhhc"},
                                         {"HHCC", "hhcc"}}) {
    const std::vector<TunedSize> sizes = ways(measured);
    const auto steps = move_steps_of(sizes, base);
    EXPECT_EQ(letters(sizes, steps), wanted) << measured;
    const std::vector<detail::TuningTable> tables = {{.processor = {"CPU"},
                                                      .ranks = 2,
                                                      .operation = detail::TunedOperation::crossing,
                                                      .origin = "measured",
                                                      .steps = steps}};
    EXPECT_EQ(detail::parse_tuning(detail::to_json(tables), "file"), tables) << measured;
  }
}

// Sizes that are not measured keep their way, as far as no way comes back.
TEST(Tuner, OtherSizesOfAMoveFollow) {
  const TuningStep base[] = {{.up_to = 100, .algorithm = detail::MoveWay::lines, .blocks = 9, .threads = 64},
                             {.up_to = 1 << 20, .algorithm = detail::MoveWay::lines, .blocks = 17, .threads = 64},
                             {.algorithm = detail::MoveWay::chunks, .blocks = 33, .threads = 512}};
  EXPECT_EQ(move_steps_of({{.bytes = 1024, .algorithm = detail::MoveWay::chunks}}, base),
            (std::vector<TuningStep>{base[0],
                                     {.up_to = 512, .algorithm = detail::MoveWay::lines, .blocks = 17, .threads = 64},
                                     {.up_to = 1 << 20, .algorithm = detail::MoveWay::chunks},
                                     base[2]}));
  EXPECT_EQ(
      move_steps_of({{.bytes = 2 << 20, .algorithm = detail::MoveWay::lines}}, base),
      (std::vector<TuningStep>{base[0], base[1], {.up_to = 2 << 20, .algorithm = detail::MoveWay::lines}, base[2]}));
}

// A search whose time is up has sizes of all kinds, and each is measured once.
TEST(TuneSubjects, MeasureCoarseSizesFirst) {
  Ranks ranks({.world_size = 2, .device = Device::cpu});
  const auto subjects = TuneSubject::all(ranks, {});
  ASSERT_EQ(subjects.size(), detail::kTunedBySize.size());
  for (const TuneSubject& subject : subjects) {
    EXPECT_EQ(subject.operation(),
              detail::kTunedBySize[static_cast<std::size_t>(&subject - subjects.data())].operation);
    std::vector<std::size_t> all;
    for (int stage = 0; stage < kTuneStages; ++stage) {
      const auto sizes = of_stage(subject.sizes(), stage);
      all.insert(all.end(), sizes.begin(), sizes.end());
    }
    EXPECT_EQ(all[1], subject.sizes()[4]);
    std::ranges::sort(all);
    EXPECT_EQ(all, subject.sizes());
  }
}

TEST(Tuner, NoMoreStepsThanATableTakes) {
  std::vector<std::size_t> sizes;
  std::vector<TunedSize> tuned;
  const TuningStep base[] = {{.up_to = 100, .algorithm = Algorithm::one_shot},
                             {.up_to = 1'000'000, .algorithm = Algorithm::pipelined, .blocks = 9, .threads = 64},
                             {.algorithm = Algorithm::pipelined}};
  for (std::size_t i = 1; i <= 60; ++i) {
    sizes.push_back(1024 * i);
    tuned.push_back({.bytes = sizes.back(), .algorithm = i % 2 == 0 ? Algorithm::one_shot : Algorithm::two_shot});
  }
  check_steps(sizes, base);
  EXPECT_EQ(steps_of(tuned, base).size(), detail::kMostTuningSteps);
  sizes.push_back(65'536);
  test::expect_says(test::error_of([&] { check_steps(sizes, base); }), "61 sizes beside 3 steps");
}

// Ways that no buffer holds are not tried, and the present one is among those that are.
TEST(TuneSubjects, TryTheWaysThatServe) {
  Ranks ranks({.world_size = 2, .device = Device::cpu});
  for (const TuneSubject& subject : TuneSubject::all(ranks, {})) {
    if (!subject.moves()) continue;
    std::set<std::string_view> all;
    for (const std::size_t bytes : subject.sizes()) {
      std::set<std::string_view> tried;
      for (const detail::TunedAlgorithm way : subject.space(ranks, bytes).algorithms) tried.insert(name(way));
      EXPECT_TRUE(tried.contains(name(subject.served_now(ranks, bytes).algorithm))) << bytes;
      EXPECT_TRUE(tried.contains("chunks"));
      all.merge(tried);
    }
    const bool one_hop = subject.operation() == detail::TunedOperation::crossing;
    EXPECT_EQ(all, one_hop ? (std::set<std::string_view>{"one-hop", "lines", "chunks"})
                           : (std::set<std::string_view>{"lines", "chunks"}))
        << subject.title();
  }
}

// Notes the table that each call would follow.
class NotedCalls final : public Bench {
 public:
  NotedCalls(const Ranks& ranks, const TuneSubject& subject) : ranks_(ranks), subject_(subject) {}
  std::vector<Contender> contenders(Operation) const override { return {}; }
  std::vector<Method> methods() const override { return {Method::batch}; }
  std::vector<std::string> notes() const override { return {}; }
  Result run(const Point& point, int) override {
    points.push_back(point);
    const detail::TuningTable* const table = state_of(ranks_).tuning(subject_.operation()).table;
    steps.push_back(table != nullptr ? table->steps : std::vector<TuningStep>{});
    return {.verdict = Verdict::ok, .us = 3};
  }
  std::vector<Point> points;
  std::vector<std::vector<TuningStep>> steps;

 private:
  const Ranks& ranks_;
  const TuneSubject& subject_;
};

// A trial of a move is a table while it lasts, and the present choice is what there was before.
TEST(TuneSubjects, MeasureWhatATableWouldDo) {
  Ranks ranks({.world_size = 2, .device = Device::cpu});
  for (const TuneSubject& subject : TuneSubject::all(ranks, {})) {
    const bool both_ways = subject.operation() >= detail::TunedOperation::crossing;
    NotedCalls calls(ranks, subject);
    Trial trial{.bytes = 8192, .algorithm = Algorithm::two_shot};
    if (subject.moves()) trial = {.bytes = 8192, .algorithm = detail::MoveWay::lines, .launch = {9, 64}};
    EXPECT_EQ(subject.measure(ranks, calls, trial).us, both_ways ? 6 : 3) << subject.title();
    EXPECT_EQ(ranks.first().tuning(), "CPU (measured)");
    trial.algorithm = Algorithm::automatic;
    subject.measure(ranks, calls, trial);
    ASSERT_EQ(calls.steps.size(), both_ways ? 4u : 2u);
    if (subject.moves()) {
      EXPECT_EQ(calls.steps.front(),
                (std::vector<TuningStep>{{.algorithm = detail::MoveWay::lines, .blocks = 9, .threads = 64}}));
      EXPECT_TRUE(calls.steps.back().empty()) << subject.title();
    } else {
      EXPECT_EQ(calls.points.front().contender, Contender::two_shot);
    }
    EXPECT_EQ(calls.points.back().contender, Contender::automatic);
  }
}

// An unavailable result is no time.
TEST(Tuner, WhatIsUnavailableIsNeverChosen) {
  const auto time = [](const Trial& trial) {
    return trial.algorithm == Algorithm::two_shot && trial.launch.blocks == 0 ? 10.0 : kUnavailable;
  };
  const TunedSize tuned = tune_size({.bytes = 1024}, kSpace, time);
  EXPECT_EQ(tuned.algorithm, Algorithm::two_shot);
  EXPECT_EQ(tuned.time.us, 10.0);
  test::expect_says(
      test::error_of([&] { tune_size({.bytes = 1024}, kSpace, [](const Trial&) { return kUnavailable; }); }),
      "no algorithm serves");
}

}  // namespace
}  // namespace weft::cli
