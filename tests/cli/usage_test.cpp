// Messages about bad arguments, and about output that does not arrive.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iostream>

#include "cli/run.hpp"

namespace weft::cli {
namespace {

using Words = std::vector<std::string>;

Words joined(Words first, const Words& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

const std::string kNotUnderstood = "weft: the arguments are not understood: ";

void expect_refused(const Words& arguments, const std::string& message, const std::string& command) {
  const auto result = run(arguments);
  EXPECT_EQ(result.code, 2) << testing::PrintToString(arguments);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, kNotUnderstood + message + "\n`" + command + " --help` lists the options, with examples.\n");
}

// An unset variable in a script does not ask for the default.
TEST(Usage, EmptyValuesAreRefused) {
  const std::vector<std::pair<Words, Words>> cases = {
      {{"bench"}, {"--config", "--model", "--tokens", "--json", "--csv", "--plot", "--tuning", "--samples", "--dtype"}},
      {{"bench", "all-reduce"}, {"--bytes", "--rows", "--blocks", "--threads", "--torch-json", "--algorithm"}},
      {{"bench", "gather"}, {"--what", "--load", "--padding", "--dp", "--config"}},
      {{"bench", "norm"}, {"--fp8", "--scales", "--hidden"}},
      {{"bench", "moe"}, {"--dispatch", "--layout", "--capacity", "--blocks", "--tokens"}},
      {{"tune"}, {"--output", "--state", "--bytes", "--deadline"}},
      {{"verify"}, {"--most-bytes", "--json", "--tuning"}},
      {{"info"}, {"--moe", "--json", "--csv", "--tuning", "--hidden", "--layout", "--dispatch"}}};
  for (const auto& [command, options] : cases) {
    std::string name = "weft";
    for (const std::string& word : command) name += " " + word;
    for (const std::string& option : options)
      expect_refused(joined(command, {option, ""}), option + ": must not be empty", name);
  }
  EXPECT_EQ(run({"bench", "--json="}).code, 2);
}

// The message has the value and the range, not only a library's words.
TEST(Usage, NumbersAreRefusedByValueAndRange) {
  const std::string seconds = " must be a number of seconds between 0.001 and 1000000, or 0: for ever";
  for (const std::string value : {"nan", "-1", "1e-9", "1e-10", "1e7", "inf", "soon", "1s"})
    for (const Words& command : {Words{"bench"}, Words{"tune"}, Words{"verify"}})
      expect_refused(joined(command, {"--deadline", value}), "--deadline: \"" + value + "\"" + seconds,
                     "weft " + command[0]);
  const std::vector<std::tuple<Words, std::string, std::string>> cases = {
      {{"bench", "moe"}, "--capacity", "1 and 1073741824"},
      {{"bench", "norm"}, "--hidden", "8 and 65536"},
      {{"bench"}, "--samples", "1 and 10000"},
      {{"bench"}, "--ranks", "1 and 72"},
      {{"bench", "gather"}, "--dp", "1 and 72"},
      {{"tune"}, "--ranks", "2 and 72"},
      {{"verify"}, "--ranks", "1 and 64"},
      {{"info"}, "--ranks", "1 and 72"}};
  for (const auto& [command, option, range] : cases)
    for (const std::string value : {"0", "99999999999", "1.5", "many", "-3", "1e3", "99999999999999999999999"})
      expect_refused(joined(command, {option, value}),
                     option + ": \"" + value + "\" must be a whole number between " + range,
                     "weft " + command[0] + (command.size() > 1 ? " " + command[1] : ""));
}

TEST(Usage, WhatIsLeftOverIsNamedBesideHelpToo) {
  expect_refused({"bench", "model", "--help"}, "there is no \"model\" of weft bench", "weft bench");
  expect_refused({"--help", "dance"}, "there is no \"dance\" of weft", "weft");
  EXPECT_EQ(run({"bench", "gather", "--help"}).code, 0);
}

TEST(Usage, OneNumberOfRanksIsGiven) {
  for (const char* other : {"--tp", "--ranks"}) {
    const bool tp = std::string(other) == "--tp";
    const auto result = run({"bench", "gather", other, "4", tp ? "--ranks" : "--tp", "2"});
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.err.find("--tp excludes --ranks"), std::string::npos) << result.err;
  }
}

TEST(Usage, ColumnsOfTorchAreAFileOfItsScript) {
  const auto file = testing::TempDir() + "no_torch.json";
  const auto refused = [&](const std::string& text) {
    std::ofstream(file) << text;
    const auto result =
        run({"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--bytes", "1K", "--torch-json", file});
    EXPECT_EQ(result.code, 2);
    return result.err;
  };
  const std::string begin = "weft: --torch-json " + file + ": is not a file of bench/torch_peer.py";
  EXPECT_EQ(refused("root:x:0:0"), begin + ": it is no JSON\n");
  EXPECT_EQ(refused("[1]"), begin + "\n");
  EXPECT_EQ(refused("{}"), begin + "\n");
  EXPECT_EQ(refused(R"({"schema": "weft-torch-1"})").rfind(begin + ", or a damaged one (", 0), 0u);
}

TEST(Usage, OutputsAreDifferentFiles) {
  const auto file = testing::TempDir() + "both", other = testing::TempDir() + "./both";
  const Words bench = {"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--bytes", "1K", "--samples", "1"};
  for (const std::string& second : {file, other}) {
    const auto result = run(joined(bench, {"--json", file, "--csv", second}));
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("--json " + file + " and --csv " + second + ": must be different files"),
              std::string::npos)
        << result.err;
  }
  EXPECT_FALSE(std::ifstream(file).is_open());
  EXPECT_EQ(run(joined(bench, {"--json", "/dev/null", "--csv", "/dev/null"})).code, 0);
}

// Runs the program with `other` as stdout; −1: with stdout closed.
Output run_onto(int other, const Words& arguments) {
  std::fflush(stdout);
  testing::internal::CaptureStderr();  // first, since its file would take the number of a closed stream
  const int before = dup(STDOUT_FILENO);
  if (other >= 0) {
    dup2(other, STDOUT_FILENO);
  } else {
    ::close(STDOUT_FILENO);
  }
  const int code = run_program(arguments);
  std::fflush(stdout);  // what is left of it fails here, and not in another test's output
  std::clearerr(stdout);
  std::cout.clear();
  dup2(before, STDOUT_FILENO);
  ::close(before);
  return {code, "", testing::internal::GetCapturedStderr()};
}

const std::vector<Words> kPrinting = {
    {"--help"},
    {"--version"},
    {"bench", "gather", "--help"},
    {"info", "--device", "cpu", "--ranks", "2"},
    {"info", "--moe", "qwen3-30b", "--csv", "-"},
    {"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--bytes", "1K", "--samples", "1"},
    {"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--bytes", "1K", "--samples", "1", "--json", "-"},
    {"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--bytes", "1K", "--samples", "1", "--csv", "-"}};

TEST(Output, ThatDoesNotArriveIsAFailure) {
  const int full = ::open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  for (const Words& arguments : kPrinting) {
    const auto result = run_onto(full, arguments);
    EXPECT_EQ(result.code, 1) << testing::PrintToString(arguments);
    EXPECT_NE(result.err.find("stdout"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.rfind("weft: ", 0), 0u) << result.err;
  }
  const auto info = run_onto(full, {"info", "--device", "cpu", "--ranks", "2"});
  EXPECT_NE(info.err.find("written to stdout: No space left on device\n"), std::string::npos) << info.err;
  ::close(full);
  for (const Words& arguments : kPrinting) {
    const auto result = run_onto(-1, arguments);
    EXPECT_EQ(result.code, 1) << testing::PrintToString(arguments);
    EXPECT_NE(result.err.find("stdout"), std::string::npos) << result.err;
  }
}

// No file gets the number of a closed stream, or tables would go into it.
TEST(Output, ClosedStdoutIsNoPlaceForAFile) {
  const auto file = testing::TempDir() + "beside.json";
  const auto result = run_onto(-1, {"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--bytes", "1K",
                                    "--samples", "1", "--json", file});
  EXPECT_EQ(result.code, 1);
  std::ifstream in(file);
  EXPECT_FALSE(nlohmann::json::parse(in, nullptr, false).is_discarded());
}

}  // namespace
}  // namespace weft::cli
