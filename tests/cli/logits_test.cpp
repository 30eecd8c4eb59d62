// weft bench logits, on CPU ranks.
#include <gtest/gtest.h>

#include "bench/logits_measure.hpp"
#include "cli/run.hpp"

namespace weft::cli {
namespace {

TEST(BenchLogits, ChecksEveryForm) {
  const std::string file = testing::TempDir() + "logits.json";
  const std::vector<std::string> forms[] = {{},
                                            {"--f32"},
                                            {"--soft-cap", "30"},
                                            {"--f32", "--scale", "0.3", "--soft-cap", "5"},
                                            {"--scale", "3"},
                                            {"--top-k", "1"},
                                            {"--top-k", "64"},
                                            {"--dp", "3"},
                                            {"--dp", "3", "--f32", "--soft-cap", "30"}};
  for (const auto& form : forms) {
    for (const char* type : {"bf16", "f16", "f32"}) {
      std::vector<std::string> arguments = {"bench",    "logits", "--device", "cpu", "--ranks",      "3",
                                            "--tokens", "1,5",    "--dtype",  type,  "--samples",    "2",
                                            "--data",   "random", "--json",   file,  "--vocabulary", "1003"};
      arguments.insert(arguments.end(), form.begin(), form.end());
      const auto result = run(arguments);
      ASSERT_EQ(result.code, 0) << result.out << result.err;
      const auto json = read_json(file);
      EXPECT_EQ(json.at("command"), "bench logits");
      std::size_t ours = 0;
      for (const auto& one : json.at("points")) {
        if (one.at("contender") != "automatic") continue;
        EXPECT_EQ(one.at("verdict"), "ok");
        EXPECT_EQ(one.at("hidden"), 1003);
        ++ours;
      }
      EXPECT_EQ(ours, 2u);
    }
  }
}

// Engines pad a vocabulary to a multiple of 64, and shards are alike.
TEST(BenchLogits, ShardsCoverTheVocabulary) {
  EXPECT_EQ(LogitsForm{.vocabulary = 129280}.shard(2), 64640u);
  EXPECT_EQ(LogitsForm{.vocabulary = 129280}.shard(8), 16160u);
  EXPECT_EQ(LogitsForm{.vocabulary = 32001}.shard(4), 8016u);
  EXPECT_EQ(LogitsForm{.vocabulary = 1}.shard(3), 24u);
}

// With a small vocabulary, candidates take more room than logits.
TEST(BenchLogits, FindsTheLargestOfFew) {
  const auto result = run({"bench", "logits", "--device", "cpu", "--ranks", "2", "--tokens", "3", "--samples", "2",
                           "--vocabulary", "64", "--top-k", "64"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
}

TEST(BenchLogits, BadUsageIsRejected) {
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"--vocabulary", "0"},
                                              {"--tokens", "0"},
                                              {"--dp", "2", "--ranks", "3", "--device", "cpu"},
                                              {"--dp", "2", "--top-k", "1"},
                                              {"--soft-cap", "-1"},
                                              {"--scale", "inf"},
                                              {"--top-k", "65"},
                                              {"--top-k", "1", "--f32"},
                                              {"--top-k", "9", "--vocabulary", "8"},
                                              {"--dtype", "i32"}}) {
    std::vector<std::string> arguments = {"bench", "logits", "--device", "cpu", "--ranks", "2"};
    arguments.insert(arguments.end(), bad.begin(), bad.end());
    EXPECT_EQ(run(arguments).code, 2) << bad[0];
  }
}

}  // namespace
}  // namespace weft::cli
