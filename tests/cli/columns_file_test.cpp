// Files of tokens for bench/rivals.py, and its columns beside Weft's.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/columns_file.hpp"
#include "bench/layer_figures.hpp"
#include "bench/layer_traffic.hpp"
#include "cli/run.hpp"
#include "workloads/moe_traffic.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

std::string file_of_this_process(const std::string& name) {
  return fmt::format("{}columns-{}-{}", testing::TempDir(), getpid(), name);
}

void write_json(const std::string& file, const json& content) {
  std::ofstream(file) << content;
}

// 8 experts on 2 ranks.
std::vector<std::string> bench(const std::string& command, const std::vector<std::string>& more) {
  const std::string config = file_of_this_process("config.json");
  write_json(config, {{"hidden_size", 128},
                      {"num_hidden_layers", 1},
                      {"num_experts", 8},
                      {"num_experts_per_tok", 2},
                      {"moe_intermediate_size", 128}});
  std::vector<std::string> words = {"bench",   command, "--config",  config, "--device", "cpu",
                                    "--ranks", "2",     "--samples", "1",    "--tokens", "1,3"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

json tokens_of(const std::string& command) {
  const std::string file = file_of_this_process("tokens.json");
  const auto result = run(bench(command, {"--tokens-out", file}));
  EXPECT_EQ(result.code, 0) << result.err;
  return read_json(file);
}

// As bench/rivals.py writes them: a column with a point of `operations` for each number of tokens.
json columns_for(const json& tokens, const std::vector<std::string>& operations) {
  json points = json::array();
  for (const json& point : tokens.at("points")) {
    for (const std::string& operation : operations)
      points.push_back({{"tokens", point.at("tokens")},
                        {"digest", point.at("digest")},
                        {"operation", operation},
                        {"method", "graph"},
                        {"sms", 20},
                        {"verdict", "ok"},
                        {"samples_us", {{1e6, 3e6, 2e6}, {1e6, 1e6, 1e6}}}});
  }
  return {{"schema", "weft-columns-1"},
          {"date", "2026-01-02T03:04:05Z"},
          {"of", tokens.at("of")},
          {"gpu", ""},
          {"columns", {{{"rival", "DeepEP LL"}, {"version", "1.2"}, {"contains", "casts"}, {"points", points}}}}};
}

Output run_with(const std::string& command, const json& columns, std::vector<std::string> more = {}) {
  const std::string file = file_of_this_process("columns.json");
  write_json(file, columns);
  more.insert(more.end(), {"--columns", file});
  return run(bench(command, more));
}

std::vector<json> other_points(const std::string& report) {
  std::vector<json> others;
  const json whole = read_json(report);
  for (const json& point : whole.at("points"))
    if (point.value("other_run", false)) others.push_back(point);
  return others;
}

TEST(TokensFile, HasTheExpertsAndWeightsOfTheRun) {
  const json file = tokens_of("moe");
  EXPECT_EQ(file.at("schema"), "weft-tokens-1");
  EXPECT_EQ(file.at("of"), (json{{"command", "bench moe"},
                                 {"routing", "uniform"},
                                 {"dispatched", "fp8"},
                                 {"hidden", 128},
                                 {"intermediate", 0},
                                 {"experts", 8},
                                 {"top_k", 2},
                                 {"ranks", 2}}));
  ASSERT_EQ(file.at("points").size(), 2u);
  const json& point = file.at("points")[1];
  const MoeTraffic traffic({.name = "eight experts", .hidden = 128, .num_experts = 8, .top_k = 2},
                           {.tokens = 3, .hidden = 128, .experts = 8, .top_k = 2}, Traffic::uniform, 2, 3);
  RoutedTokens routed{.tokens = 3, .layers = {}};
  routed.layers.emplace_back();
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const json& mine = point.at("layers")[0][rank];
    EXPECT_EQ(mine.at("ids").get<std::vector<std::int32_t>>(), traffic.tokens(rank).ids);
    EXPECT_EQ(mine.at("weights").get<std::vector<float>>(), traffic.tokens(rank).weights);
    routed.layers[0].push_back({traffic.tokens(rank).ids, {}});
  }
  EXPECT_EQ(point.at("digest"), digest_of(routed));
  routed.layers[0][1].ids.back() ^= 1;
  EXPECT_NE(point.at("digest"), digest_of(routed));
}

TEST(TokensFile, OfALayerHasEverySetThatComesInTurn) {
  const json file = tokens_of("moe-layer");
  EXPECT_EQ(file.at("of").at("command"), "bench moe-layer");
  EXPECT_EQ(file.at("of").at("intermediate"), 128);
  const LayerShape shape{.hidden = 128, .intermediate = 128, .experts = 8, .top_k = 2, .ranks = 2};
  const json& layers = file.at("points")[0].at("layers");
  ASSERT_EQ(layers.size(), LayerRank::kLayers);
  for (std::uint32_t layer = 0; layer < LayerRank::kLayers; ++layer) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const LayerTokens tokens = make_layer_tokens(shape, rank, 1, layer);
      EXPECT_EQ(layers[layer][rank].at("ids").get<std::vector<std::int32_t>>(), tokens.ids);
      EXPECT_EQ(layers[layer][rank].at("weights").get<std::vector<float>>(), tokens.weights);
    }
  }
}

// A column is the median of the slowest rank's samples, in the table, in --json and in --csv, and no peer of this run.
TEST(Columns, StandBesideWefts) {
  const std::string report = file_of_this_process("report.json"), csv = file_of_this_process("report.csv");
  json columns = columns_for(tokens_of("moe"), {"dispatch", "combine", "both"});
  columns["columns"][0]["points"][0]["verdict"] = "wrong";
  const auto result = run_with("moe", columns, {"--json", report, "--csv", csv});
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* part : {"DeepEP LL (other run)", "2000000 (1000000…3000000)", "WRONG", "Weft: the fastest of",
                           "DeepEP LL (other run): version 1.2, casts; measured on 2026-01-02T03:04:05Z"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
  const std::vector<json> points = other_points(report);
  ASSERT_EQ(points.size(), 6u);
  EXPECT_EQ(points[0].at("verdict"), "wrong");
  for (const json& point : points) {
    EXPECT_EQ(point.at("contender"), "DeepEP LL (other run)");
    EXPECT_EQ(point.at("us"), 2e6);
    EXPECT_EQ(point.at("sms"), 20);
    EXPECT_EQ(point.at("method"), "graph");
  }
  std::ifstream in(csv);
  int lines = 0;
  for (std::string line; std::getline(in, line);)
    lines +=
        line.find("DeepEP LL (other run),graph,20,,,ok,3,1000000.0000,2000000.0000,3000000.0000") != std::string::npos;
  EXPECT_EQ(lines, 5);
}

// The speed-up of a layer is over the fastest of all schedules; that of a part over the part alone.
TEST(Columns, OfALayerStandBesideItsParts) {
  const std::string report = file_of_this_process("layer_report.json");
  const json tokens = tokens_of("moe-layer");
  const auto result =
      run_with("moe-layer", columns_for(tokens, {"layer", "dispatch", "combine", "both"}), {"--json", report});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("the fastest layer of all schedules"), std::string::npos) << result.out;
  std::multiset<std::string> operations;
  for (const json& point : other_points(report)) operations.insert(point.at("operation").get<std::string>());
  EXPECT_EQ(operations, (std::multiset<std::string>{"both", "both", "combine", "combine", "dispatch", "dispatch",
                                                    "layer", "layer"}));
  LayerRow row{.tokens = 1};
  const auto add = [&](TimedPart part, LayerWay way, double us) {
    row.timed.push_back({.part = part, .way = std::move(way), .figure = {.us = us}});
  };
  add(TimedPart::layer, {}, 9);
  add(TimedPart::layer, {.schedule = LayerSchedule::rounds, .sms = 16}, 8);
  add(TimedPart::dispatch, {}, 4);
  add(TimedPart::dispatch, {.path = RowPath::ring}, 3);
  add(TimedPart::dispatch, {.sms = 16}, 2);
  add(TimedPart::exchange, {}, 7);
  EXPECT_EQ(fastest_operation(row, "layer"), 8);
  EXPECT_EQ(fastest_operation(row, "dispatch"), 3);
  EXPECT_EQ(fastest_operation(row, "both"), 7);
  EXPECT_EQ(fastest_operation(row, "combine"), 0);
}

TEST(Columns, OfAnotherRunAreRejectedWithWhatDiffers) {
  const json right = columns_for(tokens_of("moe"), {"dispatch"});
  const auto point = [](json& file) -> json& { return file["columns"][0]["points"][0]; };
  const std::vector<std::pair<std::function<void(json&)>, std::string>> cases = {
      {[](json& f) { f["of"]["ranks"] = 4; }, "ranks is 4 there, and 2 in this run"},
      {[](json& f) { f["of"]["hidden"] = 256; }, "hidden is 256 there, and 128 in this run"},
      {[](json& f) { f["of"]["experts"] = 16; }, "experts is 16 there, and 8 in this run"},
      {[](json& f) { f["of"]["top_k"] = 1; }, "top_k is 1 there, and 2 in this run"},
      {[](json& f) { f["of"]["routing"] = "hot"; }, "routing is \"hot\" there, and \"uniform\" in this run"},
      {[](json& f) { f["of"]["dispatched"] = "bf16"; }, "dispatched is \"bf16\" there, and \"fp8\" in this run"},
      {[](json& f) { f["of"]["command"] = "bench moe-layer"; }, "command is \"bench moe-layer\" there"},
      {[](json& f) { f["gpu"] = "NVIDIA H200"; }, "was measured on NVIDIA H200, this run is on CPU ranks"},
      {[&](json& f) { point(f)["tokens"] = 2; }, "has 2 tokens a rank, this run has 1, 3"},
      {[&](json& f) { point(f)["digest"] = "0"; }, "1 tokens a rank have other experts than in this run"},
      {[&](json& f) { point(f)["operation"] = "layer"; }, "weft bench moe shows dispatch, combine, both"},
      {[&](json& f) { point(f)["samples_us"] = {{1.0}}; }, "has no samples of each rank"},
      {[&](json& f) {
         point(f)["samples_us"] = json::array({json::array(), json::array()});
       },
       "has no samples of each rank"},
      {[](json& f) { f["columns"] = json::array(); }, "has no column"},
      {[](json& f) { f.erase("gpu"); }, "is not a file of bench/rivals.py, or a damaged one"},
      {[](json& f) { f["schema"] = "weft-torch-1"; }, "is not a file of bench/rivals.py"}};
  for (const auto& [change, why] : cases) {
    json changed = right;
    change(changed);
    const auto result = run_with("moe", changed);
    EXPECT_EQ(result.code, 2) << why;
    EXPECT_EQ(result.out, "") << why;
    EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
  }
  EXPECT_NE(run(bench("moe", {"--columns", "/nonexistent"})).err.find("/nonexistent: cannot be read"),
            std::string::npos);
}

// Rivals have real experts, and no shared one.
TEST(Columns, OfALayerAreOfRealOnes) {
  for (const auto& more :
       std::vector<std::vector<std::string>>{{"--emulate-ep", "4"}, {"--shared", "--shared-intermediate", "128"}}) {
    auto words = more;
    words.insert(words.end(), {"--tokens-out", file_of_this_process("none.json")});
    const auto result = run(bench("moe-layer", words));
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.err.find("go with neither --emulate-ep nor --shared"), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace weft::cli
