// weft tune: the search, what it keeps, and the table that comes of it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/run.hpp"
#include "cli/tuner.hpp"
#include "support/ranks.hpp"

namespace weft::cli {
namespace {

using detail::TuningStep;

const TuneSpace kSpace{.algorithms = {Algorithm::one_shot, Algorithm::two_shot, Algorithm::bulk},
                       .blocks = {9, 33},
                       .threads = {64, 512},
                       .samples = 5};

TEST(Tuner, TheFastestAlgorithmWinsAndOnlyRivalsGridsAreTried) {
  std::vector<Trial> trials;
  const auto time = [&](const Trial& trial) {
    trials.push_back(trial);
    if (trial.algorithm == Algorithm::automatic) return 12.0;
    if (trial.algorithm == Algorithm::bulk) return 20.0;
    const bool best = trial.launch.blocks == 33 && trial.launch.threads == 64;
    return trial.algorithm == Algorithm::one_shot ? 10.0 : best ? 8.0 : 11.0;
  };
  const TunedSize tuned = tune_size(1024, kSpace, nullptr, time);
  EXPECT_EQ(tuned.bytes, 1024u);
  EXPECT_EQ(tuned.algorithm, Algorithm::two_shot);
  EXPECT_EQ(tuned.launch.blocks, 33);
  EXPECT_EQ(tuned.launch.threads, 64);
  EXPECT_EQ(tuned.us, 8.0);
  EXPECT_EQ(tuned.before_us, 12.0);
  for (const Trial& trial : trials) {
    EXPECT_EQ(trial.bytes, 1024u);
    if (trial.algorithm == Algorithm::bulk) {
      EXPECT_EQ(trial.launch.blocks, 0);
    }
  }
}

TEST(Tuner, ALuckyGridIsMeasuredAgain) {
  const auto time = [&](const Trial& trial) {
    const bool lucky = trial.launch.blocks == 9 && trial.launch.threads == 512;
    return lucky && trial.samples == kSpace.samples ? 5.0 : 10.0;
  };
  EXPECT_EQ(tune_size(1024, kSpace, nullptr, time).launch.blocks, 0);
}

TEST(Tuner, WhatGainsNoMoreThanNoiseStaysAsItWas) {
  const TunedSize previous{.bytes = 512, .algorithm = Algorithm::one_shot};
  for (const auto& [two_shot, wanted] : {std::pair(9.9, Algorithm::one_shot), std::pair(9.7, Algorithm::two_shot)}) {
    const auto time = [&, us = two_shot](const Trial& trial) {
      const double by_size = trial.algorithm == Algorithm::two_shot ? us : 10.0;
      return trial.launch.blocks != 0 ? by_size * 0.98 : by_size;  // no grid is worth its mention
    };
    const TunedSize tuned = tune_size(1024, kSpace, &previous, time);
    EXPECT_EQ(tuned.algorithm, wanted) << two_shot;
    EXPECT_EQ(tuned.launch.blocks, 0);
  }
}

TEST(Tuner, BetweenTwoSizesTheMiddleDecides) {
  const auto size = [](std::size_t bytes, Algorithm algorithm, Launch launch = {}) {
    return TunedSize{.bytes = bytes, .algorithm = algorithm, .launch = launch};
  };
  const TuningStep base[] = {{.algorithm = Algorithm::one_shot}};
  EXPECT_EQ(steps_of({size(1024, Algorithm::one_shot), size(2048, Algorithm::one_shot),
                      size(4096, Algorithm::one_shot, {.blocks = 9, .threads = 64}),
                      size(8192, Algorithm::one_shot, {.blocks = 9, .threads = 64}), size(16384, Algorithm::bulk)},
                     base),
            (std::vector<TuningStep>{{.up_to = 3072, .algorithm = Algorithm::one_shot},
                                     {.up_to = 12288, .algorithm = Algorithm::one_shot, .blocks = 9, .threads = 64},
                                     {.up_to = 16384, .algorithm = Algorithm::bulk},
                                     {.algorithm = Algorithm::one_shot}}));
}

// A few sizes do not decide about gigabytes: beyond them the table stays as it was.
TEST(Tuner, OtherSizesAreServedAsBefore) {
  const TuningStep base[] = {{.up_to = 4095, .algorithm = Algorithm::one_shot, .blocks = 5, .threads = 64},
                             {.up_to = 100'000, .algorithm = Algorithm::one_shot},
                             {.up_to = 200'000, .algorithm = Algorithm::two_shot, .blocks = 65, .threads = 512},
                             {.up_to = 300'000, .algorithm = Algorithm::two_shot},
                             {.algorithm = Algorithm::bulk}};
  const auto tuned = [&](std::vector<TunedSize> sizes) {
    const auto steps = steps_of(sizes, base);
    // What is written is read, whatever the steps.
    const std::vector<detail::TuningTable> tables = {
        {.processor = "CPU", .ranks = 2, .origin = "measured", .steps = steps}};
    EXPECT_EQ(detail::parse_tuning(detail::to_json(tables), "file"), tables);
    return steps;
  };
  // Another algorithm: between its sizes alone.
  EXPECT_EQ(tuned({{.bytes = 8192, .algorithm = Algorithm::bulk}, {.bytes = 65536, .algorithm = Algorithm::bulk}}),
            (std::vector<TuningStep>{base[0],
                                     {.up_to = 8191, .algorithm = Algorithm::one_shot},
                                     {.up_to = 65536, .algorithm = Algorithm::bulk},
                                     {.up_to = 100'000, .algorithm = Algorithm::one_shot},
                                     base[2],
                                     base[3],
                                     base[4]}));
  // The same one with a grid takes the place of what had none, and leaves other grids alone.
  EXPECT_EQ(tuned({{.bytes = 8192, .algorithm = Algorithm::one_shot, .launch = {.blocks = 9, .threads = 96}},
                   {.bytes = 150'000, .algorithm = Algorithm::two_shot, .launch = {.blocks = 9, .threads = 96}}}),
            (std::vector<TuningStep>{base[0],
                                     {.up_to = 79096, .algorithm = Algorithm::one_shot, .blocks = 9, .threads = 96},
                                     {.up_to = 150'000, .algorithm = Algorithm::two_shot, .blocks = 9, .threads = 96},
                                     base[2],
                                     base[3],
                                     base[4]}));
  // Where a step begins or ends with the sizes, nothing is left of it.
  EXPECT_EQ(
      tuned({{.bytes = 4096, .algorithm = Algorithm::bulk}, {.bytes = 300'000, .algorithm = Algorithm::two_shot}}),
      (std::vector<TuningStep>{base[0],
                               {.up_to = 152'048, .algorithm = Algorithm::bulk},
                               {.up_to = 300'000, .algorithm = Algorithm::two_shot},
                               base[4]}));
  EXPECT_EQ(tuned({{.bytes = 1 << 20, .algorithm = Algorithm::bulk}}), (std::vector<TuningStep>(base, base + 5)));
}

TEST(Tuner, NoMoreStepsThanATableTakes) {
  std::vector<std::size_t> sizes;
  std::vector<TunedSize> tuned;
  const TuningStep base[] = {{.up_to = 100, .algorithm = Algorithm::one_shot},
                             {.up_to = 1'000'000, .algorithm = Algorithm::bulk, .blocks = 9, .threads = 64},
                             {.algorithm = Algorithm::bulk}};
  for (std::size_t i = 1; i <= 60; ++i) {
    sizes.push_back(1024 * i);
    tuned.push_back({.bytes = sizes.back(), .algorithm = i % 2 == 0 ? Algorithm::one_shot : Algorithm::two_shot});
  }
  check_steps(sizes, base);
  EXPECT_EQ(steps_of(tuned, base).size(), detail::kMostTuningSteps);
  sizes.push_back(65'536);
  test::expect_says(test::error_of([&] { check_steps(sizes, base); }), "61 sizes beside 3 steps");
}

// What an algorithm cannot do is no time of it.
TEST(Tuner, WhatIsUnavailableIsNeverChosen) {
  const auto time = [](const Trial& trial) {
    return trial.algorithm == Algorithm::two_shot && trial.launch.blocks == 0 ? 10.0 : kUnavailable;
  };
  const TunedSize tuned = tune_size(1024, kSpace, nullptr, time);
  EXPECT_EQ(tuned.algorithm, Algorithm::two_shot);
  EXPECT_EQ(tuned.us, 10.0);
  test::expect_says(
      test::error_of([&] { tune_size(1024, kSpace, nullptr, [](const Trial&) { return kUnavailable; }); }),
      "no algorithm serves");
}

std::string text_of(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

Result measured(double us) {
  return {.verdict = Verdict::ok, .us = us};
}

TEST(TuneState, GoesOnWhereItWasAndOnTheSameMachineAlone) {
  const std::string file = testing::TempDir() + "tune.state";
  const nlohmann::json here = {{"machine", "a"}, {"ranks", 4}};
  const Trial trial{1024, Algorithm::two_shot, {.blocks = 9, .threads = 64}, 7};
  TuneState state({.file = file, .identity = here});
  EXPECT_EQ(state.time(trial, [](const Trial&) { return measured(2.5); }), 2.5);

  // Every trial is there as soon as it is known; a line that was not finished is measured again.
  const std::string after_one = text_of(file);
  std::ofstream(file, std::ios::app) << R"({"bytes": 20)";
  TuneState again({.file = file, .identity = here, .text = text_of(file)});
  EXPECT_EQ(again.known(), 1u);
  EXPECT_EQ(again.time(trial, [](const Trial&) -> Result { throw std::logic_error("measured twice"); }), 2.5);
  for (const int threads : {128, 256}) {
    Trial other = trial;
    other.launch.threads = threads;
    EXPECT_EQ(again.time(other, [](const Trial&) { return measured(3.5); }), 3.5);
  }
  EXPECT_EQ(text_of(file).substr(0, after_one.size()), after_one);
  EXPECT_EQ(TuneState({.file = file, .identity = here, .text = text_of(file)}).known(), 3u);

  nlohmann::json elsewhere = here;
  elsewhere["machine"] = "b";
  const auto refused = [&](const nlohmann::json& identity, const std::string& text) {
    return test::error_of([&] { TuneState({.file = file, .identity = identity, .text = text}); });
  };
  test::expect_says(refused(elsewhere, text_of(file)), "was begun with");
  test::expect_says(refused(here, "{\"schema\": \"weft-tuning-1\"}\n"), "is no state of weft tune");
  test::expect_says(refused(here, "{\"schema\": \"weft-tuning-1\"}"), "is no state of weft tune");
  test::expect_says(refused(here, "{\n"), file);
}

// A run that goes on must not take a failure for a time.
TEST(TuneState, KeepsNoFailures) {
  const std::string file = testing::TempDir() + "failures.state";
  std::filesystem::remove(file);
  const Trial trial{1024, Algorithm::bulk, {}, 7};
  TuneState state({.file = file});
  const Result wrong{.verdict = Verdict::wrong, .detail = "1 of 4 elements", .us = 1.5};
  const Result unavailable{.verdict = Verdict::unavailable};
  EXPECT_EQ(state.time(trial, [&](const Trial&) { return unavailable; }), kUnavailable);
  const std::string error = test::error_of([&] { state.time(trial, [&](const Trial&) { return wrong; }); });
  test::expect_says(error, "WRONG: bulk of 1 KB, 0 × 0: 1 of 4 elements");
  EXPECT_EQ(text_of(file), "");
  EXPECT_EQ(state.time(trial, [](const Trial&) { return measured(2); }), 2);
}

// In a launched job one process writes.
TEST(TuneState, OthersDoNotWrite) {
  const std::string file = testing::TempDir() + "others.state";
  TuneState state({.file = file, .writes = false});
  EXPECT_EQ(state.time({.bytes = 16}, [](const Trial&) { return measured(2); }), 2);
  EXPECT_FALSE(std::filesystem::exists(file));
}

class TuneProgram : public testing::Test {
 protected:
  std::vector<std::string> tune(const std::string& output) const {
    return {"tune",      "--device", "cpu",      "--ranks", "2",       "--bytes", "1K,16K",
            "--samples", "1",        "--output", output,    "--state", state_};
  }
  // Of this test's own: others may run at the same time.
  std::string stem_ = testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name();
  std::string state_ = stem_ + ".state";
  std::string table_ = stem_ + ".json";
  void SetUp() override {
    std::filesystem::remove(state_);
    std::filesystem::remove(table_);
  }
};

TEST_F(TuneProgram, WritesATableThatIsThenUsed) {
  const auto result = run(tune(table_));
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  EXPECT_EQ(result.err, "");  // no progress bar without a terminal
  EXPECT_FALSE(std::filesystem::exists(state_));
  const auto tables = detail::read_tuning(table_);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].processor, "CPU");
  EXPECT_EQ(tables[0].ranks, 2);
  EXPECT_EQ(tables[0].origin, "measured");
  const auto info = run({"info", "--device", "cpu", "--ranks", "2", "--tuning", table_});
  EXPECT_NE(info.out.find("Its all-reduces are tuned by: CPU, 2 ranks (measured)"), std::string::npos) << info.out;
  const auto other = run({"info", "--device", "cpu", "--ranks", "3", "--tuning", table_});
  EXPECT_NE(other.out.find("Its all-reduces are tuned by: CPU (measured)"), std::string::npos) << other.out;
}

// Ended before the table is written; what was measured decides when it goes on, be it as odd as here.
TEST_F(TuneProgram, GoesOnAfterAnInterruption) {
  ASSERT_EQ(run(tune("/nonexistent/table.json")).code, 1);
  std::vector<nlohmann::json> lines;
  std::ifstream in(state_);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  std::ofstream out(state_);
  for (auto& line : lines) {
    const bool first = line.contains("bytes") && line.at("bytes") == 1024;
    if (line.contains("us")) line.at("us") = line.at("algorithm") == (first ? "two-shot" : "one-shot") ? 0.5 : 1.0;
    out << line.dump() << "\n";
  }
  out.close();
  // Tables for other ranks stay; the one for these serves the sizes that are not measured.
  std::ofstream(table_) << detail::to_json(
      {{.processor = "NVIDIA H200", .ranks = 2, .origin = "measured", .steps = {{}}},
       {.processor = "CPU",
        .ranks = 2,
        .origin = "measured",
        .steps = {{.up_to = 64, .algorithm = Algorithm::bulk}, {.algorithm = Algorithm::two_shot}}}});
  const auto result = run(tune(table_));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("goes on with 8 measurements"), std::string::npos) << result.err;
  const auto tables = detail::read_tuning(table_);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].processor, "NVIDIA H200");
  EXPECT_EQ(tables[1].steps, (std::vector<TuningStep>{{.up_to = 64, .algorithm = Algorithm::bulk},
                                                      {.up_to = 8704, .algorithm = Algorithm::two_shot},
                                                      {.up_to = 16384, .algorithm = Algorithm::one_shot},
                                                      {.algorithm = Algorithm::two_shot}}));
  const auto bench = run({"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--dtype", "f32", "--bytes",
                          "8K,16K", "--samples", "1", "--algorithm", "automatic", "--tuning", table_, "--json", "-"});
  ASSERT_EQ(bench.code, 0) << bench.err;
  const auto report = nlohmann::json::parse(bench.out);
  for (const auto& point : report.at("points"))
    if (point.at("contender") == "automatic") {
      EXPECT_EQ(point.at("algorithm"), point.at("bytes") == 8192 ? "two-shot" : "one-shot");
    }
}

TEST_F(TuneProgram, BadUsageIsTwo) {
  std::ofstream(table_) << R"({"schema": "weft-bench-1"})";  // is not overwritten
  std::string many_sizes = "16";
  for (int size = 32; size <= 64 * 16; size += 16) many_sizes += "," + std::to_string(size);
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           tune(table_),
           {"tune", "--bytes", "1K,7"},
           {"tune", "--device", "cpu", "--output", testing::TempDir() + "new.json", "--bytes", many_sizes},
           {"tune", "--ranks", "1"},
           {"tune", "--device", "cpu", "--output", testing::TempDir() + "new.json", "--state", table_},
           {"info", "--device", "cpu", "--tuning", "/nonexistent.json"}}) {
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 2) << testing::PrintToString(arguments) << result.err;
    EXPECT_FALSE(result.err.empty());
  }
  EXPECT_EQ(text_of(table_), R"({"schema": "weft-bench-1"})");
}

}  // namespace
}  // namespace weft::cli
