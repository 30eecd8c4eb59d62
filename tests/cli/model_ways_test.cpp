// Ways to run a model: which calls each makes, how often, and what their times add up to. Times are made up.
#include "bench/model_ways.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "bench/model_layers.hpp"
#include "cli/config_parts.hpp"
#include "cli/run.hpp"
#include "models/presets.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

std::string said(const ModelShape& shape, const ModelLayout& parallel) {
  std::string text;
  for (const ModelWay& way : ways_of(shape, parallel)) text += way.name + ": " + in_words(way) + "\n";
  return text;
}

TEST(ModelWays, CountTheCallsOfPresets) {
  const ModelShape deepseek = preset("deepseek-v3"), llama = preset("llama-3.1-70b"), qwen = preset("qwen3-30b");
  // 61 layers, of which 3 are dense.
  EXPECT_EQ(said(deepseek, {.layout = {.tp = 8, .dp = 8, .ep = 8}}),
            "tensor parallel: 122 all-reduce\n"
            "DP attention, TP experts: 61 gather, 61 scatter\n"
            "DP attention, EP: 3 gather, 3 scatter, 58 dispatch and combine\n");
  EXPECT_EQ(said(deepseek, {.layout = {.tp = 8, .dp = 4, .ep = 8}}),
            "tensor parallel: 122 all-reduce\n"
            "DP attention, TP experts: 61 gather, 61 scatter\n"
            "DP attention, EP: 3 gather, 3 scatter, 58 attn scatter, 58 attn gather, 58 dispatch and combine\n");
  EXPECT_EQ(said(deepseek, {.layout = {.tp = 8, .dp = 1, .ep = 8}}),
            "tensor parallel: 122 all-reduce\n"
            "TP attention, EP: 6 all-reduce, 58 attn scatter, 58 attn gather, 58 dispatch and combine\n");
  EXPECT_EQ(said(deepseek, {.layout = {.tp = 8, .dp = 8, .ep = 1}}),
            "tensor parallel: 122 all-reduce\nDP attention, TP experts: 61 gather, 61 scatter\n");
  EXPECT_EQ(said(llama, {.layout = {.tp = 4, .dp = 4, .ep = 1}}),
            "tensor parallel: 160 all-reduce\nDP attention: 80 gather, 80 scatter\n");
  EXPECT_EQ(said(qwen, {.layout = {.tp = 2, .dp = 2, .ep = 2}}),
            "tensor parallel: 96 all-reduce\n"
            "DP attention, TP experts: 48 gather, 48 scatter\n"
            "DP attention, EP: 48 dispatch and combine\n");
}

TEST(ModelWays, DenseLayersAndSharedExpertsAreWhereTheOptionsSay) {
  const auto ep_of = [](const ModelShape& shape, const ModelLayout& parallel) {
    return in_words(ways_of(shape, parallel).back());
  };
  const ModelShape deepseek = preset("deepseek-v3"), maverick = preset("llama-4-maverick");
  EXPECT_EQ(ep_of(deepseek, {.layout = {.tp = 8, .dp = 8, .ep = 8, .moe_dense_tp = 1}}), "58 dispatch and combine");
  EXPECT_EQ(ep_of(deepseek, {.layout = {.tp = 8, .dp = 4, .ep = 8, .moe_dense_tp = 1}}),
            "61 attn scatter, 61 attn gather, 58 dispatch and combine");
  EXPECT_EQ(ep_of(deepseek, {.layout = {.tp = 8, .dp = 8, .ep = 8}, .split_shared_experts = true}),
            "61 gather, 61 scatter, 58 dispatch and combine");
  EXPECT_EQ(ep_of(maverick, {.layout = {.tp = 8, .dp = 8, .ep = 8}}), "24 gather, 24 scatter, 24 dispatch and combine");
  // Experts beside a dense part: both get the tokens.
  const ModelShape beside = shape_of({{"hidden_size", 8},
                                      {"num_hidden_layers", 10},
                                      {"num_experts", 4},
                                      {"num_experts_per_tok", 2},
                                      {"enable_moe_block", true}});
  EXPECT_EQ(ep_of(beside, {.layout = {.tp = 2, .dp = 2, .ep = 2}}), "10 gather, 10 scatter, 10 dispatch and combine");
  // Blocks one by one: Mamba, Mamba, dense, attention, experts. Nothing follows the first.
  const ModelShape single = shape_of(
      {{"hidden_size", 8}, {"num_experts", 4}, {"num_experts_per_tok", 2}, {"hybrid_override_pattern", "MM-*E"}});
  EXPECT_EQ(said(single, {.layout = {.tp = 4, .dp = 2, .ep = 4}}),
            "tensor parallel: 5 all-reduce\n"
            "DP attention, TP experts: 2 gather, 2 scatter, 1 attn scatter, 1 attn gather\n"
            "DP attention, EP: 1 gather, 1 scatter, 2 attn scatter, 2 attn gather, 1 dispatch and combine\n");
}

TEST(ModelWays, SharedExpertsAreRead) {
  using Shared = std::pair<std::int64_t, std::int64_t>;  // their number, and columns of all of them
  const std::map<std::string, Shared> known = {{"deepseek-v3", {1, 2048}},      {"glm-4.5", {1, 1536}},
                                               {"llama-4-maverick", {1, 8192}}, {"llama-3.1-70b", {0, 0}},
                                               {"qwen3-30b", {0, 0}},           {"qwen3.5-397b", {1, 1024}},
                                               {"minimax-m2.5", {0, 0}},        {"minimax-m3", {1, 3072}}};
  for (const auto& [name, shared] : known)
    EXPECT_EQ((Shared{preset(name).shared_experts, preset(name).shared_intermediate}), shared) << name;
  // Two are as wide as two experts, unless a field has the width of both.
  nlohmann::json config = {{"hidden_size", 8},         {"num_hidden_layers", 3},       {"n_routed_experts", 4},
                           {"num_experts_per_tok", 2}, {"moe_intermediate_size", 512}, {"n_shared_experts", 2}};
  EXPECT_EQ(shape_of(config).shared_intermediate, 1024);
  config["moe_shared_expert_intermediate_size"] = 640;
  EXPECT_EQ(shape_of(config).shared_intermediate, 640);
}

TEST(ModelWays, WhatCannotBeIsRefusedByName) {
  const auto error_of = [](const ModelShape& shape, const ModelLayout& parallel) -> std::string {
    try {
      parallel.check(shape);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      return error.what();
    }
    return "";
  };
  const ModelShape deepseek = preset("deepseek-v3"), llama = preset("llama-3.1-70b");
  EXPECT_EQ(error_of(deepseek, {.layout = {.tp = 8, .dp = 4, .ep = 8, .moe_dense_tp = 1}}), "");
  EXPECT_EQ(error_of(deepseek, {.layout = {.tp = 8, .dp = 3}}), "--dp 3: not a divisor of --tp 8");
  EXPECT_EQ(error_of(deepseek, {.layout = {.tp = 8, .ep = 16}}), "--ep 16: not a divisor of --tp 8");
  EXPECT_EQ(error_of(deepseek, {.layout = {.tp = 8, .ep = 4}}),
            "--ep 4: neither 1 nor --tp 8; experts that ranks share are not measured");
  EXPECT_EQ(error_of(deepseek, {.layout = {.tp = 8, .ep = 8, .moe_dense_tp = 2}}),
            "--moe-dense-tp 2: neither 1 nor --tp 8");
  EXPECT_EQ(error_of(llama, {.layout = {.tp = 8, .ep = 8}}), "--ep 8: llama-3.1-70b has no experts");
  EXPECT_EQ(error_of(llama, {.layout = {.tp = 8}, .split_shared_experts = true}),
            "--shared-experts split: llama-3.1-70b has no shared experts");
}

TEST(ModelWays, TimesAddUp) {
  const ModelWay way{"any", {{Step::gather, 3}, {Step::exchange, 10}}};
  StepTimes times;
  times.weft[static_cast<std::size_t>(Step::all_reduce)] = 1e6;  // is no part of it
  times.weft[static_cast<std::size_t>(Step::gather)] = 2.5;
  EXPECT_FALSE(total_of(way, times).weft.has_value());
  times.weft[static_cast<std::size_t>(Step::exchange)] = 4;
  times.peer[static_cast<std::size_t>(Step::exchange)] = 5;
  EXPECT_EQ(total_of(way, times).weft, 3 * 2.5 + 10 * 4);
  EXPECT_FALSE(total_of(way, times).peer.has_value());
  times.peer[static_cast<std::size_t>(Step::gather)] = 7;
  EXPECT_EQ(total_of(way, times).peer, 3 * 7.0 + 10 * 5.0);
}

TEST(ModelWays, TokensAreTheLargestShare) {
  const ParallelLayout layout{.tp = 8, .dp = 4};
  EXPECT_EQ(group_tokens(9, layout), 3);
  EXPECT_EQ(rank_tokens(9, layout), 2);
  EXPECT_EQ(group_tokens(1, layout), 1);
  EXPECT_EQ(rank_tokens(64, layout), 8);
}

// Each step takes the time of its own operation and tokens, and of the fastest right peer.
TEST(ModelWays, TakeTheTimesOfTheirTokens) {
  const auto result = [](Operation operation, std::int64_t rows, Contender contender, double us) {
    return Result{.point = {.operation = operation,
                            .count = static_cast<std::size_t>(rows),
                            .rows = rows,
                            .contender = contender},
                  .verdict = Verdict::ok,
                  .us = us};
  };
  const ParallelLayout layout{.tp = 4, .dp = 2, .ep = 4};
  std::vector<Result> sums{result(Operation::all_reduce, 8, Contender::automatic, 10),
                           result(Operation::all_reduce, 16, Contender::automatic, 20),
                           result(Operation::all_reduce, 16, Contender::gloo_ring, 90),
                           result(Operation::all_reduce, 16, Contender::gloo_bcube, 80),
                           result(Operation::all_reduce, 16, Contender::nccl, 1)};
  sums.back().verdict = Verdict::wrong;
  LayerResults layers;
  layers.gathers = {result(Operation::gather_sums, 4, Contender::automatic, 3),
                    result(Operation::gather_sums, 8, Contender::automatic, 5),
                    result(Operation::gather_sums, 8, Contender::separate, 2),
                    result(Operation::scatter_sums, 8, Contender::automatic, 6),
                    result(Operation::attn_reduce_scatter, 8, Contender::automatic, 7)};
  layers.gathers.back().verdict = Verdict::wrong;
  MoeResult exchange;
  exchange.tokens = 4;
  exchange.us[0] = 40, exchange.us[1] = 50, exchange.us[2] = 85;
  for (const auto& [operation, us] : std::vector<std::pair<std::size_t, double>>{{0, 100}, {0, 60}, {1, 70}})
    exchange.peers.push_back({.operation = operation, .result = result(Operation::all_gather, 4, Contender::nccl, us)});
  layers.exchanges = {exchange};
  const StepTimes times = step_times(sums, layers, layout, 16);
  const auto at = [](const auto& of, Step step) { return of[static_cast<std::size_t>(step)]; };
  EXPECT_EQ(at(times.weft, Step::all_reduce), 20);
  EXPECT_EQ(at(times.peer, Step::all_reduce), 80);
  EXPECT_EQ(at(times.weft, Step::gather), 5);
  EXPECT_EQ(at(times.weft, Step::scatter), 6);
  EXPECT_FALSE(at(times.peer, Step::scatter).has_value());
  EXPECT_FALSE(at(times.weft, Step::attn_scatter).has_value());
  EXPECT_EQ(at(times.weft, Step::exchange), 85);
  EXPECT_EQ(at(times.peer, Step::exchange), 60 + 70);
  EXPECT_FALSE(at(step_times(sums, layers, layout, 8).weft, Step::exchange).has_value());
}

// The program's totals are the sums of its own calls, in every way, and each way has all tokens.
TEST(ModelWays, AreShownWithTheirTotals) {
  const std::string config = testing::TempDir() + "model_ways.json", file = testing::TempDir() + "passes.json";
  std::ofstream(config) << R"({"hidden_size": 256, "num_hidden_layers": 3, "num_experts": 8, "num_experts_per_tok": 2,
    "first_k_dense_replace": 1, "n_shared_experts": 1})";
  const auto result = run({"bench", "--config", config, "--device", "cpu", "--tp", "4", "--dp", "2", "--tokens", "3,8",
                           "--samples", "1", "--json", file});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("µs of a forward pass, tp 4, dp 2, ep 4\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("EP: every rank has all shared experts"), std::string::npos) << result.out;
  EXPECT_EQ(read_json(file).at("layout"), (json{{"tp", 4}, {"dp", 2}, {"ep", 4}}));
  const json passes = read_json(file).at("passes");
  ASSERT_EQ(passes.size(), 6u);
  for (const json& pass : passes) {
    double total = 0;
    for (const json& call : pass.at("calls")) {
      ASSERT_TRUE(call.at("us").is_number()) << call.dump();
      EXPECT_GT(call.at("us"), 0) << call.dump();
      total += call.at("times").get<double>() * call.at("us").get<double>();
    }
    EXPECT_NEAR(pass.at("us").get<double>(), total, 1e-6 * total) << pass.dump();
  }
  EXPECT_EQ(passes.at(5).at("way"), "DP attention, EP");
  EXPECT_EQ(passes.at(5).at("calls").size(), 5u);
  const auto refused = run({"bench", "--config", config, "--device", "cpu", "--tp", "4", "--dp", "3"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("--dp 3: not a divisor of --tp 4"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace weft::cli
