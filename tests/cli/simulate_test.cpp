// `weft simulate`. Sanitizers skip it, since they do not follow fibers from stack to stack.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/run.hpp"
#include "cli/terminal.hpp"

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

TEST(Simulate, RefusesEmptyValues) {
  for (const std::string option : {"--protocol", "--json", "--seed"}) {
    const auto result = run({"simulate", option, ""});
    EXPECT_EQ(result.code, 2) << option;
    EXPECT_NE(result.err.find(option + ": must not be empty"), std::string::npos) << result.err;
  }
}

// A failure prints a command that finds the same failure. This protocol fails because its caller breaks a rule.
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

// With JSON on stdout, no trace is printed there.
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

// The output distinguishes an interrupted search from a complete one.
TEST(Simulate, SaysWhetherAnExhaustiveRunHadAll) {
  const auto file = testing::TempDir() + "exhaustive.json";
  const auto search = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"simulate", "--protocol", "one-shot-bf16", "--scheduler", "exhaustive",
                                          "--json",   file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto result = run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    result.err = read_json(file).at("results").at(0).dump();
    return result;
  };
  const auto all = search({"--bound", "1"});
  EXPECT_NE(all.out.find(", all within 1: all right"), std::string::npos) << all.out;
  const auto found = nlohmann::json::parse(all.err);
  EXPECT_EQ(found.at("complete"), true);
  const auto number = found.at("executions").get<std::uint64_t>();
  ASSERT_GT(number, 10u);
  // With exactly as many executions as there are, and with one fewer.
  const auto exactly = search({"--bound", "1", "--executions", std::to_string(number)});
  EXPECT_NE(exactly.out.find(", all within 1: all right"), std::string::npos) << exactly.out;
  const auto fewer = search({"--bound", "1", "--executions", std::to_string(number - 1)});
  EXPECT_NE(fewer.out.find(fmt::format("NOT ALL within 1 (--executions {}): right so far", number - 1)),
            std::string::npos)
      << fewer.out;
  EXPECT_EQ(nlohmann::json::parse(fewer.err).at("complete"), false);
  // The search exceeds the usual limit of executions and is still complete.
  const auto many = nlohmann::json::parse(search({"--bound", "2"}).err);
  EXPECT_GT(many.at("executions"), 10'000);
  EXPECT_EQ(many.at("complete"), true);
}

// A search may take minutes, so it shows its progress.
TEST(Simulate, ShowsHowFarItIs) {
  const Terminal terminal(80);
  testing::internal::CaptureStdout();
  const int code = run_program(
      {"simulate", "--protocol", "one-shot-bf16", "--scheduler", "exhaustive", "--bound", "2", "--json", "-"});
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  const std::string drawn = terminal.read();
  EXPECT_NE(drawn.find("] 1/1 one-shot-bf16, 1000 executions"), std::string::npos) << drawn;
}

// If a rank stops, each step at which it may stop has schedules of its own.
TEST(Simulate, SaysThatASearchWasEndedAtOneOfManySteps) {
  const auto result = run({"simulate", "--protocol", "dies-one-shot-ranks2", "--scheduler", "exhaustive", "--bound",
                           "1", "--executions", "20"});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.out.find("NOT ALL within 1 (--executions 20): right so far"), std::string::npos) << result.out;
}

TEST(Simulate, RefusesChoicesThatAReplayNeverComesTo) {
  const auto result = run({"simulate", "--protocol", "one-shot-bf16", "--replay", "9.1=1,63.5=2"});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("one-shot-bf16: the execution never reached 9.1=1,63.5=2"), std::string::npos);
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
      {{"--executions", "-1"}, "--executions: \"-1\" must be a whole number between 1 and 1099511627776"},
      {{"--executions", "0"}, "--executions: \"0\" must be a whole number between 1 and 1099511627776"},
      {{"--seed", "-1"}, "--seed: \"-1\" must be a whole number between 0 and 1099511627776"},
      {{"--bound", "-7"}, "--bound: \"-7\" must be a whole number between 0 and 64"},
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
