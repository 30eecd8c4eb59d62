// weft bench moe on CPU ranks, and weft info --moe.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/run.hpp"
#include "models/models.hpp"
#include "models/presets.hpp"
#include "weft/moe.hpp"

namespace weft::cli {
namespace {

TEST(BenchMoe, WritesEverySample) {
  const auto config = testing::TempDir() + "moe_config.json", file = testing::TempDir() + "moe.json";
  std::ofstream(config) << R"({"hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 100,
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64})";
  const std::vector<std::string> arguments = {"bench", "moe", "--config", config, "--device",  "cpu",
                                              "--ep",  "2",   "--tokens", "1,3",  "--samples", "2"};
  auto with = arguments;
  with.insert(with.end(), {"--json", file});
  const auto result = run(with);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const auto json = read_json(file);
  EXPECT_EQ(json.at("command"), "bench moe");
  EXPECT_EQ(json.at("model").at("num_experts"), 8);
  EXPECT_EQ(json.at("dispatched"), "fp8");
  // dispatch, combine, both of two sizes
  EXPECT_EQ(std::ranges::count(json.at("points"), "automatic", [](const auto& p) { return p.at("contender"); }), 6);
  for (const auto& point : json.at("points")) {
    EXPECT_EQ(point.at("verdict"), "ok");
    EXPECT_EQ(point.at("samples_us").size(), 2u);
    EXPECT_EQ(point.at("samples_us").at(0).size(), 2u);
    EXPECT_GT(point.at("us").get<double>(), 0);
  }
  with = arguments;
  with.insert(with.end(), {"--csv", "-"});
  EXPECT_EQ(run(with).out.rfind("operation,load,ranks,", 0), 0u);  // stdout has only the table
}

// A model with groups of experts, so that every routing works: 8 experts, 4 on each of 2 ranks.
std::string moe_config() {
  const auto config = fmt::format("{}moe_groups-{}.json", testing::TempDir(), getpid());  // of this test's process
  std::ofstream(config) << R"({"hidden_size": 256, "num_hidden_layers": 1, "num_experts": 8, "num_experts_per_tok": 2,
    "n_group": 4, "topk_group": 2})";
  return config;
}

// Every layout's rows are compared with the reference, sent and returned.
TEST(BenchMoe, EveryKindOfRow) {
  const auto config = moe_config(), file = testing::TempDir() + "moe_rows.json";
  for (const char* layout : {"masked", "contiguous", "rank-major"}) {
    for (const char* row : {"fp8", "fp8-ue8m0", "bf16", "f16"}) {
      for (const bool unweighted : {false, true}) {
        std::vector<std::string> arguments = {
            "bench",     "moe", "--config", config, "--device", "cpu",  "--ep",       "2", "--tokens",  "5",
            "--samples", "1",   "--json",   file,   "--layout", layout, "--dispatch", row, "--routing", "grouped"};
        if (unweighted) arguments.emplace_back("--unweighted");
        const auto result = run(arguments);
        ASSERT_EQ(result.code, 0) << layout << " " << row << ": " << result.err;
        const auto json = read_json(file);
        EXPECT_EQ(json.at("dispatched"), row);
        EXPECT_EQ(json.at("combined"), std::string(row) == "f16" ? "f16" : "bf16");
        EXPECT_EQ(json.at("weighted"), !unweighted);
      }
    }
  }
}

// Every choice of experts, with one launch and with two.
TEST(BenchMoe, EveryRouting) {
  const auto config = moe_config(), file = testing::TempDir() + "moe_routings.json";
  for (const char* routing : {"uniform", "grouped", "zipf", "hot"}) {
    for (const bool apart : {false, true}) {
      std::vector<std::string> arguments = {"bench",     "moe",   "--config",  config, "--device", "cpu",
                                            "--ep",      "3",     "--tokens",  "1,4",  "--json",   file,
                                            "--routing", routing, "--samples", "1"};
      if (apart) arguments.emplace_back("--apart");
      const auto result = run(arguments);
      ASSERT_EQ(result.code, 0) << routing << ": " << result.err;
      const auto json = read_json(file);
      EXPECT_EQ(json.at("routing"), routing);
      EXPECT_EQ(json.at("apart"), apart);
      ASSERT_GE(json.at("points").size(), 6u);
      for (const auto& point : json.at("points")) EXPECT_EQ(point.at("verdict"), "ok");
    }
  }
}

// Scales in columns are right in every layout. Rows without a cast have no scales.
TEST(BenchMoe, ScalesInColumns) {
  const auto config = moe_config(), file = testing::TempDir() + "moe_columns.json";
  std::vector<std::string> arguments = {"bench",  "moe", "--config",      config,   "--device",  "cpu",
                                        "--ep",   "2",   "--tokens",      "6",      "--samples", "1",
                                        "--json", file,  "--scale-order", "columns"};
  arguments.resize(arguments.size() + 4);
  const auto place = arguments.end() - 4;
  for (const char* layout : {"masked", "contiguous", "rank-major"}) {
    for (const char* row : {"fp8", "fp8-ue8m0"}) {
      std::ranges::copy(std::vector<std::string>{"--layout", layout, "--dispatch", row}, place);
      const auto result = run(arguments);
      ASSERT_EQ(result.code, 0) << layout << " " << row << ": " << result.err;
      EXPECT_EQ(read_json(file).at("scale_order"), "columns");
    }
  }
  arguments.back() = "bf16";
  const auto result = run(arguments);
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("scale_order: columns is not rows"), std::string::npos) << result.err;
}

// masked: an expert has room for two rows, and all ten tokens want it. contiguous: the experts of a rank share such
// room.
TEST(BenchMoe, RowsWithoutRoomAreDropped) {
  const auto config = moe_config();
  for (const char* layout : {"masked", "contiguous"}) {
    const auto result = run({"bench", "moe", "--config", config, "--device", "cpu", "--ep", "2", "--tokens", "5",
                             "--samples", "1", "--layout", layout, "--capacity", "2", "--routing", "hot"});
    EXPECT_EQ(result.code, 0) << layout << ": " << result.err;
    EXPECT_NE(result.out.find("2 rows kept"), std::string::npos) << result.out;
  }
}

// Bytes on the wire and in memory, computed by hand. 3 of 4 tokens are sent to 1 peer. A row has 512 bytes of bf16 and
// 128 bytes of masks.
TEST(BenchMoe, CountsTheWireAndTheMemory) {
  const auto config = moe_config(), file = testing::TempDir() + "moe_wire.json";
  const auto result = run({"bench", "moe", "--config", config, "--device", "cpu", "--ep", "2", "--tokens", "3,4",
                           "--samples", "1", "--dispatch", "bf16", "--json", file});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = read_json(file);
  const auto& points = json.at("points");
  const double rows = points.at(0).at("wire_rows");
  ASSERT_GT(rows, 0);
  // A header; 4 counts and the number of tokens; 3 records and, in every fourth call, the fourth token's; rows.
  EXPECT_EQ(points.at(0).at("wire_bytes"), 8 + 5 * 8 + (3 + 0.25) * 2 * 16 + rows * 640);
  EXPECT_EQ(points.at(1).at("wire_bytes"), 8 + rows * 512);
  EXPECT_EQ(points.at(2).at("wire_bytes"), 8 + 5 * 8 + (3 + 0.25) * 2 * 16 + rows * 640 + 8 + rows * 512);
  const MoeExchangeMemory memory = moe_exchange_memory(2, {.tokens = 4, .hidden = 256, .experts = 8, .top_k = 2});
  EXPECT_EQ(json.at("memory").at("window_bytes"), memory.window);
  EXPECT_EQ(json.at("memory").at("dispatch_bytes"), memory.dispatch);
  EXPECT_EQ(json.at("memory").at("output_bytes"), 4 * 8 * 512);
}

// Every model that has experts. Rows are fp8 if they are a multiple of 128 columns, else bf16 with a note.
TEST(BenchMoe, ServesEveryPreset) {
  const auto file = testing::TempDir() + "moe_presets.json";
  int without_cast = 0;
  for (const std::string& name : preset_names()) {
    const ModelShape model = preset(name);
    if (!model.has_experts()) continue;
    const bool cast = model.hidden % 128 == 0;
    without_cast += cast ? 0 : 1;
    const std::string said = "Rows are bf16: hidden " + std::to_string(model.hidden);
    const auto info = run({"info", "--moe", name, "--tokens", "1", "--json", file});
    ASSERT_EQ(info.code, 0) << name << ": " << info.err;
    const auto memory = read_json(file).at("moe").at("memory");
    EXPECT_EQ(memory.size(), cast ? 2u : 1u) << name;
    EXPECT_EQ(memory.back().at("rows"), "bf16") << name;
    EXPECT_EQ(info.out.find(said) == std::string::npos, cast) << info.out;
    const auto bench = run({"bench", "moe", "--model", name, "--device", "cpu", "--ep", "2", "--tokens", "1",
                            "--samples", "1", "--json", file});
    ASSERT_EQ(bench.code, 0) << name << ": " << bench.err;
    EXPECT_EQ(read_json(file).at("dispatched"), cast ? "fp8" : "bf16") << name;
    EXPECT_EQ(bench.out.find(said) == std::string::npos, cast) << bench.out;
  }
  EXPECT_GT(without_cast, 0);
  const auto asked = run({"bench", "moe", "--model", "gpt-oss-120b", "--device", "cpu", "--ep", "2", "--tokens", "1",
                          "--dispatch", "fp8"});
  EXPECT_EQ(asked.code, 2);  // an explicit choice is not replaced
}

TEST(BenchMoe, GroupsThatAModelDoesNotHaveAreSaid) {
  const auto result = run({"bench", "moe", "--model", "qwen3-30b", "--device", "cpu", "--ep", "2", "--tokens", "1",
                           "--routing", "grouped"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("--routing grouped: qwen3-30b has no groups of experts"), std::string::npos) << result.err;
}

// The memory of other libraries for DeepSeek-V3, computed by hand: 256 experts, 128 tokens, rows of 14336 bytes. A
// header sent with a row has 16 bytes (NCCL EP: 32, and rank-major 80). A returned row has 224 bytes of scales. Signals
// have 1024 bytes. Rank-major results go from ranks · 128 slots to 8 · 128, which takes more than the sent rows.
TEST(InfoMoe, ComparesWithOthers) {
  for (const auto& [ranks, by_rank] : {std::pair{8, 59'639'808u}, {64, 268'371'968u}}) {  // only by_rank differs
    const auto result =
        run({"info", "--moe", "deepseek-v3", "--tokens", "128", "--ranks", std::to_string(ranks), "--json", "-"});
    ASSERT_EQ(result.code, 0) << result.err;
    const auto report = nlohmann::json::parse(result.out);
    ASSERT_EQ(report.at("moe").at("memory").size(), 2u);
    for (const auto& memory : report.at("moe").at("memory")) {
      EXPECT_EQ(memory.at("deepep_bytes"), 1'908'410'368u);
      EXPECT_EQ(memory.at("nccl_ep_bytes"), 984'025'088u);
      EXPECT_EQ(memory.at("nccl_ep_rank_major_bytes"), by_rank);
    }
  }
}

}  // namespace
}  // namespace weft::cli
