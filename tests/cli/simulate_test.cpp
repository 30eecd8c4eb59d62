// `weft simulate`. Not for sanitizers, which do not follow fibers from stack to stack.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/run.hpp"

namespace weft::cli {
namespace {

TEST(Simulate, ReplaysTheOrdinaryScheduleToo) {
  const auto file = testing::TempDir() + "replay.json";
  const auto result = run({"simulate", "--protocol", "one-shot-bf16", "--replay", "", "--json", file});
  EXPECT_EQ(result.code, 0) << result.out;
  const auto json = read_json(file).at("results").at(0);
  EXPECT_EQ(json.at("scheduler"), "replay");
  EXPECT_EQ(json.at("executions"), 1);
  EXPECT_NE(result.out.find(" rank0.epochs = "), std::string::npos) << result.out;
}

// The command that a failure prints finds the same failure. What fails here breaks a rule of the interface.
TEST(Simulate, RepeatsAFailureByTheCommandThatItPrints) {
  const auto found = run({"simulate", "--protocol", "unordered-one-shot-ranks2", "--scheduler", "pct", "--bound", "2",
                          "--executions", "20000"});
  ASSERT_EQ(found.code, 1) << found.out;
  const std::string command = "weft simulate --protocol unordered-one-shot-ranks2 --replay '";
  const std::size_t begin = found.out.find(command);
  ASSERT_NE(begin, std::string::npos) << found.out;
  const std::string schedule = found.out.substr(begin + command.size(), found.out.rfind('\'') - begin - command.size());
  const auto again = run({"simulate", "--protocol", "unordered-one-shot-ranks2", "--replay", schedule});
  EXPECT_EQ(again.code, 1);
  const auto story = [](const std::string& text) { return text.substr(0, text.find("\nfound in execution")); };
  EXPECT_EQ(again.out.find(story(found.out)), 0u) << again.out;
}

TEST(Simulate, StopsARankWhereItIsTold) {
  const auto stopped = run({"simulate", "--protocol", "dies-one-shot-ranks2", "--stop", "5", "--replay", ""});
  EXPECT_EQ(stopped.code, 0) << stopped.out;
  EXPECT_NE(stopped.out.find(" stops, and all of its stream\n"), std::string::npos) << stopped.out;
  EXPECT_NE(stopped.out.find(" is told that rank 1 is gone\n"), std::string::npos) << stopped.out;
  const auto list = run({"simulate", "--list", "--faults"});
  EXPECT_NE(list.out.find("dies-one-shot-ranks2 "), std::string::npos) << list.out;
}

// A machine reads stdout then: no story comes between.
TEST(Simulate, JsonOnStdoutIsAlone) {
  for (const char* schedule : {"", "9.1=1,63.5=2"}) {
    const auto result = run({"simulate", "--protocol", "one-shot-bf16", "--replay", schedule, "--json", "-"});
    const auto json = nlohmann::json::parse(result.out, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << result.out;
    EXPECT_EQ(json.at("results").at(0).at("unused"), schedule);
  }
  EXPECT_EQ(run({"simulate", "--list", "--json", "-"}).code, 2);
}

TEST(Simulate, SaysWhatAnExhaustiveRunLeavesOut) {
  const auto result = run({"simulate", "--scheduler", "exhaustive", "--executions", "1"});
  EXPECT_EQ(result.code, 0) << result.out;
  const auto lines = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  const auto left_out = lines(run({"simulate", "--list"}).out) - lines(result.out);
  EXPECT_GT(left_out, 0);
  EXPECT_EQ(result.err.find(fmt::format("{} set-ups ", left_out)), 0u) << result.err;
}

TEST(Simulate, RefusesChoicesThatAReplayNeverComesTo) {
  const auto result = run({"simulate", "--protocol", "one-shot-bf16", "--replay", "9.1=1,63.5=2"});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("one-shot-bf16: the execution never came to 9.1=1,63.5=2"), std::string::npos);
  EXPECT_EQ(result.out.find("all right"), std::string::npos);
}

TEST(Simulate, SaysFirstThatItsOutputCannotBeWritten) {
  const auto result = run({"simulate", "--json", "/nonexistent/file"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("--json /nonexistent/file: cannot be written"), std::string::npos) << result.err;
}

TEST(Simulate, RejectsNumbersByNameValueAndRange) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--executions", "-1"}, "--executions: Value -1 not in range"},
      {{"--executions", "0"}, "--executions: Value 0 not in range"},
      {{"--seed", "-1"}, "--seed: Value -1 not in range"},
      {{"--bound", "-7"}, "--bound: Value -7 not in range"},
      {{"--scheduler", "fair"}, "--scheduler: fair not in {random,pct,exhaustive}"},
      {{"--stop", "3"}, "--stop requires --replay"}};
  for (auto [arguments, message] : cases) {
    arguments.insert(arguments.begin(), {"simulate", "--protocol", "one-shot-bf16"});
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 2) << message;
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace weft::cli
