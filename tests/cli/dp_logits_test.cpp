// The logits of weft bench dp-attention, on CPU ranks.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "bench/logits_measure.hpp"
#include "bench/logits_tables.hpp"
#include "cli/run.hpp"
#include "cli/test_peer.hpp"
#include "models/presets.hpp"

namespace weft::cli {
namespace {

const std::vector<std::string> kSmall = {"bench", "dp-attention", "--device", "cpu",       "--hidden",
                                         "64",    "--tokens",     "1,5",      "--samples", "1"};

Output run_small(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = kSmall;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(arguments);
}

// Logits stand beside crossings in tables and in the report, for each load.
TEST(BenchDpLogits, StandBesideCrossings) {
  const std::string file = testing::TempDir() + "dp_logits.json";
  for (const auto& [tp, dp, lines] : {std::tuple{"4", "2", 4}, {"2", "2", 4}, {"3", "1", 2}}) {
    const auto result = run_small({"--tp", tp, "--dp", dp, "--vocabulary", "1003", "--data", "random", "--json", file});
    ASSERT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_NE(result.out.find("\nLogits of 1003 columns, "), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("\nLogits. "), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("\nCrossings, rows of 64\n"), std::string::npos) << result.out;
    const auto json = read_json(file);
    EXPECT_EQ(json.at("vocabulary"), 1003);
    std::map<std::string, int> ours;
    for (const auto& point : json.at("points")) {
      if (point.at("contender") != "automatic") continue;
      EXPECT_EQ(point.at("verdict"), "ok") << point.dump();
      ++ours[point.at("operation")];
    }
    EXPECT_EQ(ours.at("all_gather_columns"), lines);
    EXPECT_EQ(ours.size(), 3u);
  }
}

TEST(BenchDpLogits, WhatNamesTheOperations) {
  const auto logits = run_small({"--tp", "2", "--vocabulary", "64", "--what", "logits"});
  EXPECT_EQ(logits.code, 0) << logits.err;
  EXPECT_EQ(logits.out.find("Crossings"), std::string::npos) << logits.out;
  const auto scatter = run_small({"--tp", "2", "--what", "scatter_sums"});
  EXPECT_EQ(scatter.code, 0) << scatter.err;
  EXPECT_EQ(scatter.out.find("Logits"), std::string::npos) << scatter.out;
  EXPECT_EQ(scatter.out.find("gather_sums "), std::string::npos) << scatter.out;
  EXPECT_EQ(run_small({"--tp", "2", "--what", "gather"}).code, 2);
}

TEST(BenchDpLogits, TheModelHasTheVocabulary) {
  EXPECT_EQ(preset("deepseek-v3").vocabulary, 129280);
  EXPECT_EQ(preset("qwen3-30b").vocabulary, 151936);
  const std::string config = testing::TempDir() + "dp_logits_config.json";
  std::ofstream(config) << R"({"hidden_size": 40, "num_hidden_layers": 1, "vocab_size": 136})";
  const auto known = run_small({"--tp", "2", "--config", config});
  EXPECT_EQ(known.code, 0) << known.err;
  EXPECT_NE(known.out.find("Logits of 136 columns, 96 of each rank\n"), std::string::npos) << known.out;
  std::ofstream(config) << R"({"hidden_size": 40, "num_hidden_layers": 1})";
  const auto unknown = run_small({"--tp", "2", "--config", config});
  EXPECT_EQ(unknown.code, 0) << unknown.err;
  EXPECT_NE(unknown.out.find("has no vocab_size\n"), std::string::npos) << unknown.out;
  const auto named = run_small({"--tp", "2", "--config", config, "--what", "logits"});
  EXPECT_EQ(named.code, 2);
  EXPECT_NE(named.err.find("--what logits: "), std::string::npos) << named.err;
}

// A busy group gets more rows than the others, of Weft and of its peers.
TEST(BenchDpLogits, GroupsThatDifferAreRight) {
  const LogitsForm form{.vocabulary = 136, .groups = 3};
  const Point busy{
      .operation = Operation::all_gather_columns, .load = Load::busy, .count = 5 * 136, .rows = 5, .hidden = 136};
  EXPECT_EQ(form.rows(busy, 0), 5u);
  EXPECT_EQ(form.rows(busy, 1), 1u);
  EXPECT_EQ(form.rows_before(busy, 3), 7u);
  for (const bool errs : {false, true}) {
    Ranks ranks({.world_size = 6, .device = Device::cpu});
    const auto peers = std::make_shared<TestPeers>(6);
    peers->errs = errs;
    const auto open = [peers](Ranks::Seat& seat, std::size_t bytes) -> std::unique_ptr<Peer> {
      return std::make_unique<TestPeer>(peers, seat.rank(), bytes);
    };
    const auto bench = open_logits_bench(ranks, {.max_bytes = logits_bytes(form, busy, 6), .open_peer = open}, form);
    const auto contenders = bench->contenders(busy.operation);
    EXPECT_EQ(contenders, (std::vector<Contender>{Contender::automatic, Contender::separate, Contender::nccl,
                                                  Contender::nccl_symmetric}));
    for (const auto load : {Load::balanced, Load::busy}) {
      for (Point point = busy; const auto contender : contenders) {
        point.load = load;
        point.contender = contender;
        const Result result = bench->run(point, 1);
        const Verdict wanted = errs && is_peer(contender) ? Verdict::wrong : Verdict::ok;
        EXPECT_EQ(result.verdict, wanted) << name(load) << " " << name(contender) << ": " << result.detail;
      }
    }
  }
}

}  // namespace
}  // namespace weft::cli
