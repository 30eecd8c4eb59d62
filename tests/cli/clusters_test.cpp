// --cluster of weft bench moe and moe-layer. CPU ranks take clusters as they come.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "cli/run.hpp"

namespace weft::cli {
namespace {

using Words = std::vector<std::string>;

struct Ran {
  decltype(run({})) result;
  nlohmann::json report;
};
Ran run_command(const std::string& command, const Words& more) {
  const std::string config = testing::TempDir() + "clusters_config.json", file = testing::TempDir() + "clusters.json";
  std::ofstream(config) << R"({"hidden_size": 128, "num_hidden_layers": 1, "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 128})";
  Words words{"bench", command,    "--config", config,      "--device", "cpu",    "--ranks",
              "2",     "--tokens", "3",        "--samples", "1",        "--json", file};
  words.insert(words.end(), more.begin(), more.end());
  const auto result = run(words);
  return {result, result.code == 0 ? read_json(file) : nlohmann::json()};
}
Words joined(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

struct PairedCommand {
  std::string name, option;  // that gives numbers of blocks
  Words more;
};
const std::vector<PairedCommand> kPairedCommands = {{"moe", "--blocks", {}},
                                                    {"moe-layer", "--sms", {"--rounds", "2", "--no-peo"}},
                                                    {"moe-layer", "--sms", {"--rounds", "2", "--peo-methods", "3"}}};

TEST(BenchClusters, AreSaidInTableAndReport) {
  for (const PairedCommand& command : kPairedCommands) {
    for (const std::string cluster : {"0", "1", "2"}) {
      const Ran ran = run_command(command.name, joined(command.more, {"--cluster", cluster, command.option, "0,2"}));
      ASSERT_EQ(ran.result.code, 0) << ran.result.err;
      EXPECT_EQ(ran.report.at("cluster").dump(), cluster);
      for (const auto& point : ran.report.at("points")) EXPECT_EQ(point.at("verdict"), "ok");
      const bool said = ran.result.out.find(", in clusters of two blocks\n") != std::string::npos;
      EXPECT_EQ(said, cluster == "2") << ran.result.out;
    }
  }
}

TEST(BenchClusters, OfTwoTakeEvenNumbersAndNoOthers) {
  const auto refused = [](const std::string& command, const Words& more, const std::string& says) {
    const Ran ran = run_command(command, more);
    EXPECT_EQ(ran.result.code, 2);
    EXPECT_NE(ran.result.err.find(says), std::string::npos) << ran.result.err;
  };
  for (const PairedCommand& command : kPairedCommands) {
    refused(command.name, {"--cluster", "2", command.option, "0,9"}, command.option + ": 9 is odd, and --cluster is 2");
    for (const std::string cluster : {"-1", "3"})
      refused(command.name, {"--cluster", cluster},
              "--cluster: \"" + cluster + "\" must be a whole number between 0 and 2");
  }
}

}  // namespace
}  // namespace weft::cli
