// weft bench moe-layer on CPU ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "bench/layer_traffic.hpp"
#include "bench/layer_ways.hpp"
#include "cli/run.hpp"
#include "gemm/grouped_gemm.hpp"
#include "ops/moe/rounds.hpp"

namespace weft::cli {
namespace {

// With three experts of a token, sums depend on the order of rounds.
std::string layer_config() {
  const std::string file = testing::TempDir() + "layer_config.json";
  std::ofstream(file) << R"({"hidden_size": 128, "num_hidden_layers": 3, "num_experts": 8, "num_experts_per_tok": 3,
    "moe_intermediate_size": 128})";
  return file;
}

// `more`: options and their values.
auto run_layer(const std::vector<std::string>& more, const std::string& file = {}, const char* flag = nullptr) {
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
  if (flag != nullptr) arguments.emplace_back(flag);
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

// The shared expert's rows are in the output of every schedule: with the bits of an expert that comes first.
TEST(BenchMoeLayer, EveryScheduleHasTheSharedExpert) {
  const std::string file = testing::TempDir() + "moe_layer_shared.json";
  for (const bool emulated : {false, true}) {  // a rank has 4 experts, or 2
    const auto result = run_layer({"--emulate-ep", emulated ? "4" : "0", "--rounds", emulated ? "2,0:2" : "2,1:3",
                                   "--peo-methods", "1,3", "--shared-intermediate", "256"},
                                  file, "--shared");
    ASSERT_EQ(result.code, 0) << result.out << result.err;
    const auto json = read_json(file);
    EXPECT_EQ(json.at("shared_intermediate"), 256);
    std::map<std::string, int> found;
    for (const auto& point : json.at("points")) {
      EXPECT_GT(point.at("us"), 0);
      if (point.at("operation") == "shared expert" || point.value("shared_first", false))
        ++found[point.at("operation").get<std::string>() + " " + point.at("schedule").get<std::string>()];
    }
    // Both numbers of tokens have them; layers also both paths.
    EXPECT_EQ(found, (std::map<std::string, int>{{"shared expert plain", 2}, {"layer plain", 4}}));
  }
}

// Rows and weights in bf16, with numbers of columns that fp8 does not take: every schedule has the bits of plain
// layers, and GEMMs are compared with sums.
TEST(BenchMoeLayer, EveryScheduleInBf16) {
  const std::string file = testing::TempDir() + "moe_layer_bf16.json";
  const auto result = run_layer({"--gemm", "bf16", "--intermediate", "72", "--rounds", "2,1:3", "--peo-methods", "1",
                                 "--shared-intermediate", "40"},
                                file, "--shared");
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_NE(result.out.find("bf16 dispatched and between the GEMMs"), std::string::npos) << result.out;
  const auto json = read_json(file);
  EXPECT_EQ(json.at("gemm"), "bf16");
  std::set<std::string> schedules;
  for (const auto& point : json.at("points")) {
    EXPECT_EQ(point.at("verdict"), "ok") << point;
    if (point.at("operation") == "layer") schedules.insert(point.at("schedule"));
  }
  EXPECT_EQ(schedules, (std::set<std::string>{"plain", "automatic", "rounds", "peo", "combine-rounds"}));
}

// A model says how wide its shared expert is.
TEST(BenchMoeLayer, TheSharedExpertIsTheModels) {
  const std::string config = testing::TempDir() + "layer_with_shared_expert.json";
  std::ofstream(config) << R"({"hidden_size": 128, "num_hidden_layers": 3, "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 128, "n_shared_experts": 2})";
  const auto result = run_layer({"--config", config, "--rounds", "1"}, {}, "--shared");
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* part : {"a shared expert of 256 columns", "plain, shared first", "shared expert: of the cast rows"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
}

// Each term of an ideal is timed for each way that has one, with uneven rounds too.
TEST(BenchMoeLayer, EveryWayHasItsIdeal) {
  const std::string file = testing::TempDir() + "moe_layer_ideals.json";
  const auto result = run_layer({"--rounds", "1,2,1:3", "--peo-methods", "1"}, file);
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = read_json(file);
  int with_ideal = 0;
  for (const auto& point : json.at("points")) {
    if (point.at("operation") != "layer") continue;
    const std::string schedule = point.at("schedule");
    const bool has_one = schedule == "rounds" || schedule == "combine-rounds" || schedule == "peo";
    EXPECT_EQ(point.contains("ideal_us"), has_one) << point;
    EXPECT_EQ(point.contains("over_parts_us"), schedule == "plain") << point;
    with_ideal += has_one ? 1 : 0;
  }
  // Numbers of tokens, paths, divisions of two schedules, and those of peo.
  EXPECT_EQ(with_ideal, 2 * 2 * (2 * 3 + 2));
  std::set<std::string> best;
  for (const auto& one : json.at("best")) {
    best.insert(one.at("tokens").dump() + " " + one.at("schedule").get<std::string>());
    if (one.at("schedule") == "signals") continue;
    EXPECT_EQ(one.at("times_peo") == 1.0, one.at("schedule") == "peo") << one;
    EXPECT_EQ(one.at("times_combine_rounds") == 1.0, one.at("schedule") == "combine-rounds") << one;
  }
  std::set<std::string> all;
  for (const char* tokens : {"1 ", "4 "})
    for (const char* schedule : {"plain", "automatic", "rounds", "peo", "combine-rounds", "signals"})
      all.insert(std::string(tokens) + schedule);
  EXPECT_EQ(best, all);
}

// Four experts on each of two ranks. A row goes to a rank once, for all of its experts there.
TEST(BenchMoeLayer, RowsOfTheFirstAndTheLastRound) {
  const LayerShape shape{.experts = 8, .top_k = 3, .ranks = 2};
  const LayerTokens tokens{.ids = {0, 3, 4, 1, 2, 7, 5, -1, 6}, .weights = {}, .sources = {}, .firsts = {}};
  const std::uint32_t experts[] = {1, 2, 1};
  const detail::Rounds rounds = detail::divide(4, {.count = 3, .experts = experts});
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(ids_of_rows(shape, tokens, SomeRows::all, rounds), tokens.ids);
  EXPECT_EQ(ids_of_rows(shape, tokens, SomeRows::first, rounds), (Ids{0, 3, 4, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(ids_of_rows(shape, tokens, SomeRows::last, rounds), (Ids{0, 3, -1, -1, -1, 7, -1, -1, -1}));
  // A round of peo has its own experts alone.
  EXPECT_EQ(ids_of_round(shape, tokens, rounds.experts(0)), (Ids{0, -1, 4, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(ids_of_round(shape, tokens, rounds.experts(1)), (Ids{-1, -1, -1, 1, 2, -1, 5, -1, 6}));
  EXPECT_EQ(ids_of_round(shape, tokens, rounds.experts(2)), (Ids{-1, 3, -1, -1, -1, 7, -1, -1, -1}));
}

// Parts of some rows leave no rows for others, so nothing that computes or compares comes behind them.
TEST(BenchMoeLayer, PartsOfSomeRowsComeLast) {
  const std::vector<TimedLayer> timed = timed_layers({.rounds = "2,1:30:1", .sms = "0,16"}, 32);
  const auto of_some = [](const TimedLayer& one) {
    return one.part == TimedPart::first_dispatch || one.part == TimedPart::last_combine;
  };
  const auto first = std::ranges::find_if(timed, of_some);
  EXPECT_TRUE(std::all_of(first, timed.end(), of_some));
  // Two divisions, on 16 processors and on all, by both paths; and combines of the last expert.
  EXPECT_EQ(timed.end() - first, 2 * 2 * 2 * 2 + 2);
  for (auto one = timed.begin(); one != timed.end(); ++one)
    for (auto other = timed.begin(); other != one; ++other)
      EXPECT_FALSE(one->part == other->part && one->way == other->way) << name(one->part) << " " << in_words(one->way);
}

TEST(BenchMoeLayer, TheTableSaysHow) {
  const auto result = run_layer({"--emulate-ep", "4"});
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* part :
       {"as a rank among 4 would see it", "auto: plain", "combine-rounds", "dispatch + combine", "its owner's sum",
        "combine of the last round", "best of", "(signals)", "over parts", "D + U + max(W, C - C1) + C1"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
}

// Each layer's parts follow each other on each rank, within the layer.
TEST(BenchMoeLayer, ATraceHasEveryPartOfEveryLayer) {
  const std::string file = testing::TempDir() + "moe_layer_trace.json";
  const auto result = run_layer({"--rounds", "2", "--path", "ring", "--tokens", "4", "--peo-methods", "1,3", "--trace",
                                 file, "--shared-intermediate", "128"},
                                {}, "--shared");
  ASSERT_EQ(result.code, 0) << result.err;
  std::map<std::pair<int, std::string>, int> parts;  // by rank and name
  std::map<std::pair<int, int>, int> lanes;          // of the last waits, by rank
  std::map<int, double> end;                         // of the part before
  const auto json = read_json(file);
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int rank = event.at("pid");
    ++parts[{rank, event.at("name").get<std::string>()}];
    if (event.at("name") == "dispatch wait 1") ++lanes[{rank, event.at("tid").get<int>()}];
    if (event.at("tid") == 0) continue;
    EXPECT_GE(event.at("ts").get<double>(), end[rank]);
    end[rank] = event.at("ts").get<double>() + event.at("dur").get<double>();
  }
  for (const int rank : {0, 1}) {
    for (const auto& [name, count] : std::map<std::string, int>{{"4 tokens: plain, by ring", 1},
                                                                {"4 tokens: rounds, 2 rounds, by ring", 1},
                                                                {"4 tokens: combine-rounds, 2 rounds, by ring", 1},
                                                                {"4 tokens: plain, shared first, by ring", 1},
                                                                {"4 tokens: peo, method 1, 2 rounds, by ring", 1},
                                                                {"4 tokens: peo, method 3, 2 rounds, by ring", 1},
                                                                {"dispatch", 3},
                                                                {"dispatch send", 1},
                                                                {"dispatch send 1", 2},
                                                                {"dispatch wait 1", 3},
                                                                {"up 0", 6},
                                                                {"up 1", 3},
                                                                {"down 1", 4},
                                                                {"combine", 2},
                                                                {"combine send 1", 4},
                                                                {"combine wait", 2},
                                                                {"combine wait 1", 2},
                                                                {"shared expert", 6}})
      EXPECT_EQ((parts[{rank, name}]), count) << name;
    // Method 3 waits beside the next send.
    EXPECT_EQ((lanes[{rank, static_cast<int>(Lane::there)}]), 2);
    EXPECT_EQ((lanes[{rank, static_cast<int>(Lane::taking)}]), 1);
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
  rejected({"--rounds", "2,1:2"}, "--rounds: 1:2 are 3 experts, and a rank has 4");
  rejected({"--rounds", "1:x"}, "--rounds");
  rejected({"--rounds", "4:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0"}, "--rounds: 17 rounds; there are 16 at most");
  rejected({"--peo-methods", "4"}, "between 1 and 3");
  rejected({"--gemm-tile", "128"}, "--gemm-tile is for GPUs");
  rejected({"--gemm", "f16"}, "--gemm");
  rejected({"--gemm", "bf16", "--intermediate", "60"}, "rows of 128 and 60 columns: bf16 asks for multiples of 8");
  rejected({"--gemm-tile", "96"}, "--gemm-tile");
  const auto rejected_shared = [](const std::vector<std::string>& more, const char* says) {
    const auto result = run_layer(more, {}, "--shared");
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  };
  rejected_shared({}, "has no width of a shared expert: give --shared-intermediate");
  rejected_shared({"--shared-intermediate", "192"},
                  "a shared expert of 192 columns: e4m3 with scales asks for multiples of 128");
  rejected_shared({"--shared-intermediate", "1048576"}, "CPU ranks multiply in plain loops");
  rejected({"--tokens", "1024", "--intermediate", "131072"}, "CPU ranks multiply in plain loops");
}

}  // namespace
}  // namespace weft::cli
