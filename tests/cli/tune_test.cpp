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
  EXPECT_EQ(steps_of({size(1024, Algorithm::one_shot), size(2048, Algorithm::one_shot),
                      size(4096, Algorithm::one_shot, {.blocks = 9, .threads = 64}),
                      size(8192, Algorithm::one_shot, {.blocks = 9, .threads = 64}), size(16384, Algorithm::bulk)}),
            (std::vector<TuningStep>{{.up_to = 3072, .algorithm = Algorithm::one_shot},
                                     {.up_to = 12288, .algorithm = Algorithm::one_shot, .blocks = 9, .threads = 64},
                                     {.algorithm = Algorithm::bulk}}));
}

std::string text_of(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(TuneState, GoesOnWhereItWasAndOnTheSameMachineAlone) {
  const std::string file = testing::TempDir() + "tune.state";
  const nlohmann::json here = {{"processor", "NVIDIA H200"}, {"ranks", 4}};
  const Trial trial{1024, Algorithm::two_shot, {.blocks = 9, .threads = 64}, 7};
  TuneState state(file, here, "");
  EXPECT_EQ(state.time(trial, [](const Trial&) { return 2.5; }), 2.5);
  state.save();

  TuneState again(file, here, text_of(file));
  EXPECT_EQ(again.known(), 1u);
  EXPECT_EQ(again.time(trial, [](const Trial&) -> double { throw std::logic_error("measured twice"); }), 2.5);
  Trial other = trial;
  other.launch.threads = 128;
  EXPECT_EQ(again.time(other, [](const Trial&) { return 3.5; }), 3.5);

  nlohmann::json elsewhere = here;
  elsewhere["ranks"] = 2;
  const auto refused = [&](const nlohmann::json& identity, const std::string& text) {
    return test::error_of([&] { TuneState(file, identity, text); });
  };
  test::expect_says(refused(elsewhere, text_of(file)), "was begun with");
  test::expect_says(refused(here, "{\"schema\": \"weft-tuning-1\"}"), "is no state of weft tune");
  test::expect_says(refused(here, "{"), file);
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
  auto state = read_json(state_);
  for (auto& trial : state.at("trials"))
    trial.at("us") = trial.at("bytes") == 1024 && trial.at("algorithm") == "two-shot" ? 0.5 : 1.0;
  for (auto& trial : state.at("trials"))
    if (trial.at("bytes") == 16384 && trial.at("algorithm") == "one-shot") trial.at("us") = 0.5;
  std::ofstream(state_) << state.dump();
  // Tables for other ranks stay; the one for these is replaced.
  std::ofstream(table_) << detail::to_json(
      {{.processor = "NVIDIA H200", .ranks = 2, .origin = "measured", .steps = {{}}},
       {.processor = "CPU", .ranks = 2, .origin = "measured", .steps = {{}}}});
  const auto result = run(tune(table_));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("goes on with 8 measurements"), std::string::npos) << result.err;
  const auto tables = detail::read_tuning(table_);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].processor, "NVIDIA H200");
  EXPECT_EQ(tables[1].steps, (std::vector<TuningStep>{{.up_to = 8704, .algorithm = Algorithm::two_shot},
                                                      {.algorithm = Algorithm::one_shot}}));
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
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           tune(table_),
           {"tune", "--bytes", "1K,7"},
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
