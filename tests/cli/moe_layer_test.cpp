// weft bench moe-layer on CPU ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "bench/layer_traffic.hpp"
#include "cli/run.hpp"
#include "gemm/grouped_gemm.hpp"

namespace weft::cli {
namespace {

std::string layer_config() {
  const std::string file = testing::TempDir() + "layer_config.json";
  std::ofstream(file) << R"({"hidden_size": 128, "num_hidden_layers": 3, "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 128})";
  return file;
}

auto run_layer(const std::vector<std::string>& more, const std::string& file = {}) {
  std::vector<std::string> arguments{"bench",     "moe-layer", "--config", layer_config(), "--device",
                                     "cpu",       "--ranks",   "2",        "--tokens",     "1,4",
                                     "--samples", "1",         "--rounds", "1,2,3"};
  if (!file.empty()) arguments.insert(arguments.end(), {"--json", file});
  for (std::size_t i = 0; i < more.size(); i += 2) {
    const auto at = std::ranges::find(arguments, more[i]);
    if (at != arguments.end()) {
      *(at + 1) = more[i + 1];
    } else {
      arguments.insert(arguments.end(), {more[i], more[i + 1]});
    }
  }
  return run(arguments);
}

// Every schedule and number of rounds is measured, and gives the bits of one part after the other; with the experts of
// two ranks, and with those of a rank among four.
TEST(BenchMoeLayer, EverySchedule) {
  const std::string file = testing::TempDir() + "moe_layer.json";
  for (const char* emulated : {"0", "4"}) {
    const auto result = run_layer({"--emulate-ep", emulated}, file);
    ASSERT_EQ(result.code, 0) << result.err;
    const auto json = read_json(file);
    EXPECT_EQ(json.at("local_experts"), emulated[0] == '0' ? 4 : 2);
    std::set<std::string> layers;
    for (const auto& point : json.at("points")) {
      EXPECT_EQ(point.at("verdict"), "ok");
      EXPECT_GT(point.at("us"), 0);
      if (point.at("operation") == "layer" && point.at("tokens") == 4)
        layers.insert(point.at("schedule").get<std::string>() + point.at("rounds").dump() + point.at("path").dump() +
                      point.value("overlap_method", nlohmann::json{}).dump());
    }
    std::set<std::string> all;
    for (const char* path : {"\"slots\"", "\"ring\""}) {
      for (const char* way : {"plain1", "automatic1", "rounds1", "rounds2", "rounds3", "combine-rounds1",
                              "combine-rounds2", "combine-rounds3"})
        all.insert(std::string(way) + path + "null");
      for (const char* way : {"peo2", "peo3"})
        for (const char* method : {"1", "2", "3"}) all.insert(std::string(way) + path + method);
    }
    EXPECT_EQ(layers, all);
  }
}

TEST(BenchMoeLayer, TheTableSaysHow) {
  const auto result = run_layer({"--emulate-ep", "4"});
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* part :
       {"as a rank among 4 would see it", "auto: plain", "combine-rounds", "dispatch + combine", "its owner's sum"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
}

// Each layer's parts follow each other on each rank, within the layer.
TEST(BenchMoeLayer, ATraceHasEveryPartOfEveryLayer) {
  const std::string file = testing::TempDir() + "moe_layer_trace.json";
  const auto result = run_layer({"--rounds", "2", "--path", "ring", "--tokens", "4", "--trace", file});
  ASSERT_EQ(result.code, 0) << result.err;
  std::map<std::pair<int, std::string>, int> parts;  // by rank and name
  std::map<int, double> end;                         // of the part before
  const auto json = read_json(file);
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int rank = event.at("pid");
    ++parts[{rank, event.at("name").get<std::string>()}];
    if (event.at("tid") == 0) continue;
    EXPECT_GE(event.at("ts").get<double>(), end[rank]);
    end[rank] = event.at("ts").get<double>() + event.at("dur").get<double>();
  }
  for (const int rank : {0, 1}) {
    for (const auto& [name, count] : std::map<std::string, int>{{"4 tokens: plain, by ring", 1},
                                                                {"4 tokens: rounds, 2 rounds, by ring", 1},
                                                                {"4 tokens: combine-rounds, 2 rounds, by ring", 1},
                                                                {"dispatch", 2},
                                                                {"dispatch send", 1},
                                                                {"dispatch wait 1", 1},
                                                                {"up 0", 3},
                                                                {"down 1", 2},
                                                                {"combine", 1},
                                                                {"combine send 1", 2},
                                                                {"combine wait", 2}})
      EXPECT_EQ((parts[{rank, name}]), count) << name;
  }
  const auto nowhere = run_layer({"--trace", testing::TempDir() + "no/such/folder"});
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_NE(nowhere.err.find("--trace"), std::string::npos) << nowhere.err;
}

// Experts get the rows of all ranks: of those that run, and of those that they stand for.
TEST(BenchMoeLayer, TheExpectedRowsAreThoseThatAreSent) {
  for (const std::uint32_t emulated : {0u, 2u, 16u}) {
    const LayerShape shape{.experts = 64, .top_k = 6, .ranks = 2, .emulated = emulated};
    std::size_t sent = 0;
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
      const LayerTokens made = make_layer_tokens(shape, rank, 40, 0);
      sent += static_cast<std::size_t>(std::ranges::count_if(made.ids, [](std::int32_t id) { return id >= 0; }));
    }
    EXPECT_DOUBLE_EQ(shape.rows_per_expert(40), static_cast<double>(sent) / shape.exchanged_experts()) << emulated;
  }
}

TEST(BenchMoeLayer, TilesComeFromTheExpectedRowsAlone) {
  EXPECT_EQ(tile_of({.rows_per_expert = 0}), GemmTile::rows_64);
  EXPECT_EQ(tile_of({.rows_per_expert = kRowsForTilesOf128 - 0.5}), GemmTile::rows_64);
  EXPECT_EQ(tile_of({.rows_per_expert = kRowsForTilesOf128}), GemmTile::rows_128);
  EXPECT_EQ(tile_of({.rows_per_expert = 4000, .tile = GemmTile::rows_64}), GemmTile::rows_64);
  EXPECT_EQ(tile_of({.rows_per_expert = 1, .tile = GemmTile::rows_128}), GemmTile::rows_128);
}

TEST(BenchMoeLayer, ImpossibleLayersAreRejected) {
  const auto rejected = [](const std::vector<std::string>& more, const char* says) {
    const auto result = run_layer(more);
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  };
  rejected({"--emulate-ep", "3"}, "8 experts cannot be divided among 3 ranks");
  rejected({"--emulate-ep", "1"}, "--emulate-ep 1 is less than the 2 ranks");
  rejected({"--intermediate", "64"}, "rows of 128 and 64 columns: e4m3 with scales asks for multiples of 128");
  rejected({"--rounds", "17"}, "--rounds");
  rejected({"--peo-methods", "4"}, "between 1 and 3");
  rejected({"--gemm-tile", "128"}, "--gemm-tile is for GPUs");
  rejected({"--gemm-tile", "96"}, "--gemm-tile");
  rejected({"--tokens", "1024", "--intermediate", "131072"}, "CPU ranks multiply in plain loops");
}

}  // namespace
}  // namespace weft::cli
