// The program's ranks as processes of a launched job: all take the same steps, and only one writes.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/launch.hpp"
#include "tuning/tuning.hpp"

namespace weft::cli {
namespace {

constexpr int kRanks = 3;

// Disabled, since it is no test: tests/cli/launch.hpp starts it as the process of a rank.
TEST(LaunchedProgram, DISABLED_Worker) {
  run_as_launched();
}

void expect_one_speaks(const std::vector<nlohmann::json>& said, int code) {
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    EXPECT_EQ(said[rank].at("code"), code) << rank << ": " << said[rank].at("err");
    EXPECT_EQ(said[rank].at("out").get<std::string>().empty(), rank != 0) << rank << ": " << said[rank].at("out");
    EXPECT_TRUE(rank == 0 || said[rank].at("err") == "") << rank << ": " << said[rank].at("err");
  }
}

TEST(LaunchedProgram, VerifiesAllRanksAndEveryPair) {
  const auto said = launch(kRanks, {"verify", "--device", "cpu", "--most-bytes", "8K", "--json", "-"});
  expect_one_speaks(said, 0);
  const auto report = nlohmann::json::parse(said[0].at("out").get<std::string>());
  EXPECT_EQ(report.at("verdict"), "PASS");
  EXPECT_EQ(report.at("world_size"), kRanks);
  EXPECT_EQ(report.at("pairs").size(), 3u);
}

TEST(LaunchedProgram, BenchesAndChecksTheResultsOfEveryProcess) {
  const auto said = launch(kRanks, {"bench", "all-reduce", "--device", "cpu", "--dtype", "f32", "--bytes", "1K,4K",
                                    "--samples", "1", "--json", "-"});
  expect_one_speaks(said, 0);
  const auto report = nlohmann::json::parse(said[0].at("out").get<std::string>());
  EXPECT_EQ(report.at("world_size"), kRanks);
  EXPECT_FALSE(report.at("points").empty());
}

// Only the leader has the file of an earlier run, yet all ranks search as that file says.
TEST(LaunchedProgram, TunesAndGoesOnWhereItWas) {
  const std::string stem = testing::TempDir() + "launched-tune", state = stem + ".state", table = stem + ".json";
  std::filesystem::remove(state);
  std::filesystem::remove(table);
  const auto tune = [&](const std::string& output) {
    return launch(kRanks, {"tune", "--device", "cpu", "--bytes", "1K,8K", "--samples", "1", "--output", output,
                           "--state", state});
  };
  EXPECT_NE(tune("/nonexistent/table.json")[0].at("code"), 0);
  ASSERT_TRUE(std::filesystem::exists(state));
  const auto said = tune(table);
  EXPECT_EQ(said[0].at("code"), 0) << said[0].at("err");
  EXPECT_NE(said[0].at("err").get<std::string>().find("continues with"), std::string::npos) << said[0].at("err");
  for (std::size_t rank = 1; rank < said.size(); ++rank) {
    EXPECT_EQ(said[rank].at("code"), 0);
    EXPECT_EQ(said[rank].at("out"), "");
    EXPECT_EQ(said[rank].at("err"), "");
  }
  const auto tables = detail::read_tuning(table);
  ASSERT_EQ(tables.size(), detail::kTunedBySize.size());
  for (const detail::TuningTable& one : tables) EXPECT_EQ(one.ranks, kRanks);
  EXPECT_FALSE(std::filesystem::exists(state));
}

}  // namespace
}  // namespace weft::cli
