// weft tune: its state file, and the program as a whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/run.hpp"
#include "support/ranks.hpp"
#include "tune/tune_state.hpp"
#include "tuning/tuning.hpp"

namespace weft::cli {
namespace {

using detail::TuningStep;

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

  // Every trial is in the file as soon as it is known. A trial with an unfinished line is measured again.
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

// A continued run must not take a failure for a time.
TEST(TuneState, KeepsNoFailures) {
  const std::string file = testing::TempDir() + "failures.state";
  std::filesystem::remove(file);
  const Trial trial{1024, Algorithm::pipelined, {}, 7};
  TuneState state({.file = file});
  const Result wrong{.verdict = Verdict::wrong, .detail = "1 of 4 elements", .us = 1.5};
  const Result unavailable{.verdict = Verdict::unavailable};
  EXPECT_EQ(state.time(trial, [&](const Trial&) { return unavailable; }), kUnavailable);
  const std::string error = test::error_of([&] { state.time(trial, [&](const Trial&) { return wrong; }); });
  test::expect_says(error, "WRONG: pipelined of 1 KB, 0 × 0: 1 of 4 elements");
  EXPECT_EQ(text_of(file), "");
  EXPECT_EQ(state.time(trial, [](const Trial&) { return measured(2); }), 2);
}

// In a launched job only one process writes.
TEST(TuneState, OthersDoNotWrite) {
  const std::string file = testing::TempDir() + "others.state";
  TuneState state({.file = file, .writes = false});
  EXPECT_EQ(state.time({.bytes = 16}, [](const Trial&) { return measured(2); }), 2);
  EXPECT_FALSE(std::filesystem::exists(file));
}

class TuneProgram : public testing::Test {
 protected:
  std::vector<std::string> tune(const std::string& output) const {
    return {"tune",       "--device",  "cpu", "--ranks",  "2",    "--bytes", "1K,16K", "--operation",
            "all-reduce", "--samples", "1",   "--output", output, "--state", state_};
  }
  // Writes a state in which every trial of a run like tune() has the given time.
  struct Times {
    std::string operation = "all_reduce";
    std::vector<std::size_t> sizes = {1024, 16384};
    std::vector<detail::TunedAlgorithm> algorithms = {Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined};
  };
  void begin(const std::function<double(std::size_t, detail::TunedAlgorithm)>& us) { begin({}, us); }
  void begin(const Times& times, const std::function<double(std::size_t, detail::TunedAlgorithm)>& us) {
    ASSERT_EQ(run(tune("/nonexistent/table.json")).code, 1);
    std::string identity;
    std::getline(std::ifstream(state_), identity);
    std::ofstream out(state_);
    out << identity << "\n";
    std::vector<detail::TunedAlgorithm> algorithms = times.algorithms;
    algorithms.insert(algorithms.begin(), Algorithm::automatic);
    for (const std::size_t bytes : times.sizes) {
      for (int turn = 0; turn <= 7; ++turn) {
        for (const detail::TunedAlgorithm algorithm : algorithms) {
          if (turn == 0 && algorithm == Algorithm::automatic) continue;
          const nlohmann::json line = {{"operation", times.operation},
                                       {"bytes", bytes},
                                       {"algorithm", name(algorithm)},
                                       {"blocks", 0},
                                       {"threads", 0},
                                       {"samples", turn == 0 ? 3 : 1},
                                       {"turn", turn},
                                       {"us", us(bytes, algorithm)}};
          out << line.dump() << "\n";
        }
      }
    }
  }

  // Other tests may run at the same time, so each has its own files.
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
  EXPECT_EQ(tables[0].processor.name, "CPU");
  EXPECT_EQ(tables[0].ranks, 2);
  EXPECT_EQ(tables[0].origin, "measured");
  const auto info = run({"info", "--device", "cpu", "--ranks", "2", "--tuning", table_});
  EXPECT_NE(info.out.find("Its all-reduces are tuned by: CPU, 2 ranks (measured)"), std::string::npos) << info.out;
  const auto other = run({"info", "--device", "cpu", "--ranks", "3", "--tuning", table_});
  EXPECT_NE(other.out.find("Its all-reduces are tuned by: CPU (measured)"), std::string::npos) << other.out;
}

// Interrupted before the table is written. The continued run uses the kept times, even odd ones as here.
TEST_F(TuneProgram, GoesOnAfterAnInterruption) {
  begin([](std::size_t bytes, detail::TunedAlgorithm algorithm) {
    return algorithm == (bytes == 1024 ? Algorithm::two_shot : Algorithm::one_shot) ? 0.5 : 1.0;
  });
  // Tables for other ranks stay. The table for these ranks serves the sizes that are not measured.
  std::ofstream(table_) << detail::to_json(
      {{.processor = {"NVIDIA H200"}, .ranks = 2, .origin = "measured", .steps = {{}}},
       {.processor = {"CPU"},
        .ranks = 2,
        .origin = "measured",
        .steps = {{.up_to = 64, .algorithm = Algorithm::pipelined}, {.algorithm = Algorithm::two_shot}}}});
  const auto result = run(tune(table_));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("continues with 62 measurements"), std::string::npos) << result.err;
  const auto tables = detail::read_tuning(table_);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].processor.name, "NVIDIA H200");
  EXPECT_EQ(tables[1].steps, (std::vector<TuningStep>{{.up_to = 64, .algorithm = Algorithm::pipelined},
                                                      {.up_to = 8192, .algorithm = Algorithm::two_shot},
                                                      {.up_to = 16384, .algorithm = Algorithm::one_shot},
                                                      {.algorithm = Algorithm::two_shot}}));
  EXPECT_NE(result.out.find("  0.50 (0.50…0.50)  1.00 (1.00…1.00)  2.00\n"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("as before"), std::string::npos) << result.out;
  const auto bench = run({"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--dtype", "f32", "--bytes",
                          "8K,16K", "--samples", "1", "--algorithm", "automatic", "--tuning", table_, "--json", "-"});
  ASSERT_EQ(bench.code, 0) << bench.err;
  const auto report = nlohmann::json::parse(bench.out);
  for (const auto& point : report.at("points"))
    if (point.at("contender") == "automatic") {
      EXPECT_EQ(point.at("algorithm"), point.at("bytes") == 8192 ? "two-shot" : "one-shot");
    }
}

TEST_F(TuneProgram, SaysWhereNothingChanged) {
  begin([](std::size_t, detail::TunedAlgorithm) { return 1.0; });
  const auto result = run(tune(table_));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find(" 1 KB  one-shot"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("16 KB  pipelined"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("  1.00 (1.00…1.00)  1.00 (1.00…1.00)  as before\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("No choice is faster than the present one"), std::string::npos) << result.out;
  EXPECT_EQ(detail::read_tuning(table_)[0].steps,
            (std::vector<TuningStep>{{.up_to = 8192, .algorithm = Algorithm::one_shot},
                                     {.algorithm = Algorithm::pipelined}}));
}

// All but all-reduces have whole rows of 8 KB. Each has a table of its own.
TEST_F(TuneProgram, TunesEveryOperationBySize) {
  std::vector<std::string> arguments = tune(table_);
  std::ranges::replace(arguments, "all-reduce", "all");
  const auto result = run(arguments);
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  EXPECT_NE(result.out.find("all-reduce with norm, rows of 4096 bf16"), std::string::npos) << result.out;
  const auto tables = detail::read_tuning(table_);
  ASSERT_EQ(tables.size(), detail::kTunedBySize.size());
  for (std::size_t i = 0; i < tables.size(); ++i) {
    EXPECT_EQ(tables[i].operation, detail::kTunedBySize[i].operation);
    for (const TuningStep& step : tables[i].steps) EXPECT_EQ(step.blocks, 0);  // a CPU's grid
  }
  const auto info = run({"info", "--device", "cpu", "--ranks", "2", "--tuning", table_});
  EXPECT_NE(info.out.find("CPU, 2 ranks (measured); norms: CPU, 2 ranks (measured); gathers: CPU, 2 ranks (measured); "
                          "scatters: CPU, 2 ranks (measured); crossings: CPU, 2 ranks (measured); crossings with a "
                          "norm: CPU, 2 ranks (measured)"),
            std::string::npos)
      << info.out;
  for (const std::string bench : {"gather", "dp-attention"}) {
    for (const std::string ranks : {"2", "4"}) {
      const auto measured =
          run({"bench", bench, "--device", "cpu", "--ranks", ranks, "--tokens", "1", "--hidden", "8", "--samples", "1",
               "--what", bench == "gather" ? "all_gather" : "gather_sums", "--tuning", table_});
      EXPECT_EQ(measured.code, 0) << measured.err;
      EXPECT_EQ(measured.out.find("has no table for 4 ranks") != std::string::npos, ranks == "4") << measured.out;
    }
  }
  std::ranges::replace(arguments, "1K,16K", "1K,12K");
  for (const std::string operation : {"norm", "gather", "normed-crossing"}) {
    std::ranges::replace(arguments, std::string("all"), operation);
    EXPECT_NE(run(arguments).err.find("a " + operation + " has whole rows, so one must be a multiple of 8 KB"),
              std::string::npos);
    std::ranges::replace(arguments, operation, std::string("all"));
  }
}

// Times that are known say that 8 KB go faster in chunks, which serve 64 KB as it is. A worth of detours stays.
TEST_F(TuneProgram, MovesChangeTheirWayWhereItIsFaster) {
  using detail::MoveWay;
  begin({.operation = "all_gather", .sizes = {8192, 65536}, .algorithms = {MoveWay::lines, MoveWay::chunks}},
        [](std::size_t, detail::TunedAlgorithm way) { return way == MoveWay::chunks ? 0.5 : 1.0; });
  std::ofstream(table_) << detail::to_json({{.processor = {"CPU"},
                                             .ranks = 2,
                                             .operation = detail::TunedOperation::all_gather,
                                             .origin = "measured",
                                             .detour_bytes = 4096,
                                             .steps = {{.up_to = 100, .algorithm = MoveWay::lines},
                                                       {.up_to = 9000, .algorithm = MoveWay::lines, .blocks = 3},
                                                       {.algorithm = MoveWay::chunks}}}});
  std::vector<std::string> arguments = tune(table_);
  std::ranges::replace(arguments, "all-reduce", "gather");
  std::ranges::replace(arguments, "1K,16K", "8K,64K");
  const auto result = run(arguments);
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  EXPECT_NE(result.out.find("gather, rows of 4096 bf16 of each rank"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(" 8 KB  chunks"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("64 KB  chunks"), std::string::npos) << result.out;
  const auto tables = detail::read_tuning(table_);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].detour_bytes, 4096u);
  EXPECT_EQ(tables[0].steps, (std::vector<TuningStep>{{.up_to = 100, .algorithm = MoveWay::lines},
                                                      {.up_to = 4096, .algorithm = MoveWay::lines, .blocks = 3},
                                                      {.algorithm = MoveWay::chunks}}));
}

// Whether it is measured now or was known, every operation is told by its name in a list of what is left.
TEST_F(TuneProgram, MovesSayWhatIsLeft) {
  for (const auto& [choice, operation] : {std::pair("gather", "all_gather"),
                                          {"scatter", "reduce_scatter"},
                                          {"crossing", "crossing"},
                                          {"normed-crossing", "crossing_rms_norm"}}) {
    SetUp();
    std::vector<std::string> arguments = tune(table_);
    std::ranges::replace(arguments, std::string("all-reduce"), std::string(choice));
    std::ranges::replace(arguments, "1K,16K", "8K,16K,64K");
    arguments.insert(arguments.end(), {"--seconds", "0.000001"});
    const auto first = run(arguments);
    ASSERT_EQ(first.code, 0) << first.err << first.out;
    const std::string left = operation;
    EXPECT_NE(first.out.find("were over: " + left + " 64 KB, " + left + " 16 KB.\n"), std::string::npos) << first.out;
    EXPECT_EQ(detail::read_tuning(table_).size(), 1u);
    const auto second = run(arguments);
    ASSERT_EQ(second.code, 0) << second.err;
    EXPECT_NE(second.err.find("continues with"), std::string::npos) << second.err;
    EXPECT_NE(second.out.find("were over: " + left + " 16 KB.\n"), std::string::npos) << second.out;
  }
}

// Sizes that are left, between two that were measured, stay as they are.
TEST_F(TuneProgram, WhatIsLeftStaysAsItIs) {
  std::ofstream(table_) << detail::to_json(
      {{.processor = {"CPU"},
        .ranks = 2,
        .origin = "measured",
        .steps = {{.up_to = 3000, .algorithm = Algorithm::two_shot}, {.algorithm = Algorithm::one_shot}}}});
  std::vector<std::string> arguments = tune(table_);
  std::ranges::replace(arguments, "1K,16K", "1K,2K,3K,4K,16K");
  arguments.insert(arguments.end(), {"--seconds", "0.000001"});
  const auto result = run(arguments);
  ASSERT_EQ(result.code, 0) << result.err;
  // 1 KB was measured. The others have the table that is replaced. By the table in use they would be pipelined.
  const auto steps = detail::read_tuning(table_)[0].steps;
  EXPECT_EQ(detail::step_for(steps, 2048, 2048).algorithm, Algorithm::two_shot);
  for (const std::size_t bytes : {3072, 4096, 16384})
    EXPECT_EQ(detail::step_for(steps, bytes, bytes).algorithm, Algorithm::one_shot) << bytes;
  EXPECT_NE(result.out.find("were over: all_reduce 16 KB, all_reduce 3 KB, all_reduce 2 KB, all_reduce 4 KB.\n"),
            std::string::npos)
      << result.out;
}

// A run whose time is up writes what it has, says what is left, and goes on with it.
TEST_F(TuneProgram, EndsWhenItsTimeIsUpAndGoesOn) {
  std::vector<std::string> arguments = tune(table_);
  arguments.insert(arguments.end(), {"--seconds", "0.000001"});
  const auto first = run(arguments);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.out.find("were over: all_reduce 16 KB.\n"), std::string::npos) << first.out;
  EXPECT_TRUE(std::filesystem::exists(state_));
  ASSERT_EQ(detail::read_tuning(table_).size(), 1u);
  // Known sizes take no time: each run measures another one.
  const auto second = run(arguments);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_NE(second.err.find("continues with"), std::string::npos) << second.err;
  EXPECT_EQ(second.out.find("were over"), std::string::npos) << second.out;
  EXPECT_NE(second.out.find("16 KB"), std::string::npos) << second.out;
  EXPECT_FALSE(std::filesystem::exists(state_));
}

TEST_F(TuneProgram, BadUsageIsTwo) {
  std::ofstream(table_) << R"({"schema": "weft-bench-1"})";  // must not be overwritten
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
