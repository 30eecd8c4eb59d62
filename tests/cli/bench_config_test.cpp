// Every benchmark makes communicators with small buffers if it is asked to, and its report says so.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bench_options.hpp"
#include "cli/run.hpp"

namespace weft::cli {
namespace {

TEST(BenchConfig, SmallBuffersReachCommunicators) {
  BenchOptions options;
  EXPECT_FALSE(options.ranks_args().config.small_buffers);
  options.small_buffers = true;
  EXPECT_TRUE(options.ranks_args().config.small_buffers);
}

TEST(BenchConfig, EveryReportShowsIt) {
  auto benches = small_benches();
  benches.push_back({"bench", "dp-attention", "--hidden", "8", "--vocabulary", "64", "--tokens", "2"});
  benches.push_back({"bench", "logits", "--vocabulary", "64", "--tokens", "1"});
  for (const bool small : {false, true}) {
    for (std::vector<std::string> arguments : benches) {
      arguments.insert(arguments.end(), {"--device", "cpu", "--ranks", "2", "--samples", "1"});
      if (small) arguments.emplace_back("--small-buffers");
      const auto printed = run(arguments);
      EXPECT_EQ(printed.code, 0) << printed.err;
      EXPECT_EQ(printed.out.find(", small buffers\n") != std::string::npos, small) << printed.out;
      arguments.insert(arguments.end(), {"--json", "-"});
      const auto result = run(arguments);
      ASSERT_EQ(result.code, 0) << result.err;
      const auto config = nlohmann::json::parse(result.out).at("config");
      EXPECT_EQ(config.at("small_buffers"), small) << result.out;
      EXPECT_EQ(config.at("deadline"), 30) << result.out;
    }
  }
}

}  // namespace
}  // namespace weft::cli
