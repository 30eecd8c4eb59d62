// weft bench moe on CPU ranks, and weft info --moe.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <regex>
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
  EXPECT_EQ(run(with).out.rfind("operation,load,padding,ranks,", 0), 0u);  // stdout has only the table
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
  for (const char* layout : {"masked", "contiguous", "rank-major", "rank-compact"}) {
    for (const char* row : {"fp8", "fp8-ue8m0", "fp8-pow2", "bf16", "f16"}) {
      for (const char* weights : {"", "--unweighted", "--weights-at-combine"}) {
        const std::string given = weights;
        if (given == "--weights-at-combine" && std::string(layout).starts_with("rank")) continue;
        std::vector<std::string> arguments = {
            "bench",     "moe", "--config", config, "--device", "cpu",  "--ep",       "2", "--tokens",  "5",
            "--samples", "1",   "--json",   file,   "--layout", layout, "--dispatch", row, "--routing", "grouped"};
        if (!given.empty()) arguments.push_back(given);
        const auto result = run(arguments);
        ASSERT_EQ(result.code, 0) << layout << " " << row << ": " << result.err;
        const auto json = read_json(file);
        EXPECT_EQ(json.at("dispatched"), row);
        EXPECT_EQ(json.at("combined"), std::string(row) == "f16" ? "f16" : "bf16");
        EXPECT_EQ(json.at("weighted"), given != "--unweighted");
        EXPECT_EQ(json.at("weights_at_combine"), given == "--weights-at-combine");
      }
    }
  }
}

// Every choice of experts, with one launch, with two, and with launches for three rounds.
TEST(BenchMoe, EveryRouting) {
  const auto config = moe_config(), file = testing::TempDir() + "moe_routings.json";
  for (const char* routing : {"uniform", "grouped", "zipf", "hot"}) {
    for (const int rounds : {0, 1, 3}) {
      std::vector<std::string> arguments = {"bench",     "moe",   "--config",  config, "--device", "cpu",
                                            "--ep",      "3",     "--tokens",  "1,4",  "--json",   file,
                                            "--routing", routing, "--samples", "1"};
      if (rounds == 1) arguments.emplace_back("--apart");
      if (rounds > 1) arguments.insert(arguments.end(), {"--rounds", std::to_string(rounds)});
      const auto result = run(arguments);
      ASSERT_EQ(result.code, 0) << routing << ": " << result.err;
      const auto json = read_json(file);
      EXPECT_EQ(json.at("routing"), routing);
      EXPECT_EQ(json.at("apart"), rounds != 0);
      EXPECT_EQ(json.at("rounds"), std::max(rounds, 1));
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
  for (const char* layout : {"masked", "contiguous", "rank-major", "rank-compact"}) {
    for (const char* row : {"fp8", "fp8-ue8m0", "fp8-pow2"}) {
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

// masked: an expert has room for two rows, and all ten tokens want it. Else the rows of a rank share such room.
TEST(BenchMoe, RowsWithoutRoomAreDropped) {
  const auto config = moe_config();
  for (const char* layout : {"masked", "contiguous", "rank-compact"}) {
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

// Payloads are compared in every layout and by every way of rows. Their bytes are counted by hand: 20 and 4 bytes take
// three packs, so 560 bytes travel with 128 of masks.
TEST(BenchMoe, CarriesPayloads) {
  const auto config = moe_config(), file = testing::TempDir() + "moe_payloads.json";
  const std::vector<std::vector<std::string>> ways = {{"--layout", "masked"},
                                                      {"--layout", "masked", "--dispatch", "f16", "--rounds", "2"},
                                                      {"--layout", "contiguous", "--path", "ring", "--apart"},
                                                      {"--layout", "rank-major", "--routing", "hot"},
                                                      {"--layout", "rank-compact", "--csv", "-"}};
  for (const std::vector<std::string>& way : ways) {
    std::vector<std::string> arguments = {"bench",     "moe", "--config",  config, "--device",  "cpu",
                                          "--ep",      "2",   "--tokens",  "3",    "--samples", "1",
                                          "--payload", "20",  "--payload", "4",    "--json",    file};
    arguments.insert(arguments.end(), way.begin(), way.end());
    const auto result = run(arguments);
    ASSERT_EQ(result.code, 0) << way[1] << ": " << result.err;
    const auto json = read_json(file);
    EXPECT_EQ(json.at("payload_bytes"), std::vector<int>({20, 4}));
    const auto& points = json.at("points");
    const std::string note = "Rows are bf16: those that are cast have no payloads";
    EXPECT_EQ(json.at("notes").front() == note, json.at("dispatched") == "bf16") << json.at("notes");
    EXPECT_EQ(points.at(0).at("verdict"), "ok");
    const double rows = points.at(0).at("wire_rows");
    EXPECT_EQ(points.at(0).at("wire_bytes"), 8 + 5 * 8 + 3 * 2 * 16 + rows * 688);
    EXPECT_EQ(points.at(1).at("wire_bytes"), 8 + rows * 512);
    if (way.back() == "-") {
      EXPECT_TRUE(std::regex_search(result.out, std::regex("\ndispatch,,,2,[^\n]*,20\\+4,\n"))) << result.out;
      EXPECT_TRUE(std::regex_search(result.out, std::regex("\ncombine,,,2,[^\n]*[0-9],,\n"))) << result.out;
    } else {
      EXPECT_NE(result.out.find(" dispatched with payloads of 20 + 4 bytes, "), std::string::npos) << result.out;
    }
  }
}

TEST(BenchMoe, PayloadsThatCannotBeAreRejectedWithTheirRange) {
  const auto config = moe_config();
  const std::string of_exchange = "MoeExchangeArgs::payload_bytes";
  const std::vector<std::pair<std::vector<std::string>, std::string>> rejected = {
      {{"--payload", "0"}, "--payload: \"0\" must be a whole number between 4 and 4198400"},
      {{"--payload", "x"}, "--payload: \"x\" must be a whole number between 4 and 4198400"},
      {{"--payload", "6"}, of_exchange + ": 6 is not a multiple of 4 between 4 and 5120"},
      {{"--payload", "20", "--payload", "5104"}, of_exchange + ": 5104 is not a multiple of 4 between 4 and 5100"},
      {{"--payload", "4", "--payload", "4", "--payload", "4", "--payload", "4", "--payload", "4"},
       of_exchange + "'s length: 5 is not 4 at most"},
      {{"--payload", "4", "--dispatch", "fp8"},
       of_exchange + ": 4 is not absent, and rows that are cast have no payloads"}};
  for (const auto& [options, said] : rejected) {
    std::vector<std::string> arguments = {"bench", "moe", "--config", config, "--device",  "cpu",
                                          "--ep",  "2",   "--tokens", "3",    "--samples", "1"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 2) << said;
    EXPECT_NE(result.err.find(said), std::string::npos) << result.err << "\nhas no: " << said;
  }
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
    EXPECT_EQ(memory.front().at("rows"), cast ? "fp8" : "bf16") << name;
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

// The rows that `arguments` give.
nlohmann::json ways_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"info", "--moe", "deepseek-v3"});
  arguments.insert(arguments.end(), {"--json", "-"});
  const auto result = run(arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  return nlohmann::json::parse(result.out).at("moe").at("memory");
}

nlohmann::json way_of(const nlohmann::json& ways, const std::string& name, const std::string& rows) {
  for (const auto& way : ways)
    if (way.at("way") == name && way.at("rows") == rows) return way;
  ADD_FAILURE() << "no " << name << " with " << rows << " in " << ways;
  return {{"buffers_bytes", 0}, {"output_bytes", 0}};
}

// Buffers of other libraries, computed by hand.
struct OthersCase {
  const char *ranks, *tokens, *hidden, *experts, *top_k;
  const char *way, *rows;
  std::size_t bytes;
};

// 1 MiB = 2^20 bytes. V1 and NCCL EP add two banks of signals, a word per expert, which their own tables leave out.
TEST(InfoMoe, ComparesWithOthers) {
  constexpr std::size_t kMiB = 1 << 20, kSignals = 2 * 4 * 256;
  const char *const v1 = "DeepEP V1 low-latency", *const v2 = "DeepEP V2", *const expert_major = "NCCL EP expert-major",
                    *const rank_major = "NCCL EP rank-major";
  const std::vector<OthersCase> cases = {
      {"8", "128", "7168", "256", "8", v1, "fp8", 1820 * kMiB + kSignals},
      {"8", "128", "7168", "256", "8", v1, "bf16", 1820 * kMiB + kSignals},
      {"16", "256", "7168", "256", "8", v1, "fp8", 3640 * kMiB + kSignals},  // the same for any number of ranks
      {"8", "1024", "7168", "256", "8", v1, "fp8", 14560 * kMiB + kSignals},
      {"8", "128", "4096", "128", "8", v1, "fp8", 520 * kMiB + kSignals / 2},
      {"8", "128", "2048", "128", "8", v1, "fp8", 260 * kMiB + kSignals / 2},
      {"8", "128", "7168", "256", "8", v2, "bf16", 16 * kMiB},
      {"8", "256", "7168", "256", "8", v2, "bf16", 30 * kMiB},
      {"8", "1024", "7168", "256", "8", v2, "fp8", 114 * kMiB},
      {"8", "1024", "7168", "256", "8", v2, "bf16", 114 * kMiB},
      // A token's rows are sent as 8 · 14400 bytes, and returned as 4 · 14368. fp8 is sent as 8 · 8128.
      {"8", "1000", "7168", "256", "4", v2, "bf16", 110 * kMiB},
      {"8", "1000", "7168", "256", "4", v2, "fp8", 64 * kMiB},
      {"4", "1000", "7168", "256", "8", v2, "bf16", 56 * kMiB},  // returned once per rank, not once per expert
      {"8", "128", "7168", "256", "8", expert_major, "bf16", 984'025'088},
      {"64", "128", "7168", "512", "8", expert_major, "bf16", 1'938'231'296},
      {"8", "128", "7168", "256", "8", rank_major, "bf16", 59'639'808},
      {"8", "128", "7168", "256", "8", rank_major, "fp8", 59'639'808},
      {"16", "128", "7168", "256", "8", rank_major, "bf16", 89'458'688},
      {"64", "128", "7168", "512", "8", rank_major, "bf16", 268'374'016}};
  for (const OthersCase& one : cases) {
    const auto ways = ways_of({"--ranks", one.ranks, "--tokens", one.tokens, "--hidden", one.hidden, "--experts",
                               one.experts, "--top-k", one.top_k});
    EXPECT_EQ(way_of(ways, one.way, one.rows).at("buffers_bytes"), one.bytes)
        << one.way << ", " << one.rows << ", " << one.ranks << " ranks, " << one.tokens << " tokens";
  }
}

// 8 ranks of 32 experts, 128 tokens. A row of fp8 has 7168 bytes and 56 scales.
TEST(InfoMoe, CountsTheOthersOutputs) {
  const auto ways = ways_of({"--ranks", "8", "--tokens", "128"});
  const std::size_t fp8 = 7168 + 56 * 4, bf16 = 14336, rows = 8 * 128;
  const auto output = [&](const char* way, const char* kind) { return way_of(ways, way, kind).at("output_bytes"); };
  EXPECT_EQ(output("DeepEP V1 low-latency", "fp8"), 32 * rows * fp8);
  EXPECT_EQ(output("DeepEP V1 low-latency", "bf16"), 32 * rows * bf16);
  EXPECT_EQ(output("DeepEP V2", "fp8"), rows * 8 * fp8);  // all eight of a token's experts may be here
  EXPECT_EQ(output("NCCL EP expert-major", "bf16"), 469'762'048u);
  EXPECT_EQ(output("NCCL EP rank-major", "bf16"), 14'680'064u + rows * 8 * 8);
  EXPECT_EQ(way_of(ways_of({"--ranks", "64", "--experts", "256"}), "DeepEP V2", "bf16").at("output_bytes"),
            64 * 128 * 4 * bf16);  // four experts on a rank
}

// Weft's rows are what an exchange of the same arguments takes.
TEST(InfoMoe, CountsWhatAnExchangeTakes) {
  const auto ways = ways_of({"--ranks", "5", "--tokens", "9", "--hidden", "512", "--experts", "12", "--top-k", "3"});
  ASSERT_EQ(ways.size(), 16u);  // four of Weft and four others, for each cast
  for (std::size_t i = 0; i < 16; i += 8) {
    for (std::size_t at = 0; at < 4; ++at) {
      const auto layout = static_cast<RowLayout>(at);
      const auto memory = moe_exchange_memory(5, {.tokens = 9,
                                                  .hidden = 512,
                                                  .experts = 12,
                                                  .top_k = 3,
                                                  .cast = i == 0 ? RowCast::fp8 : RowCast::none,
                                                  .layout = layout,
                                                  .alignment = layout == RowLayout::expert_contiguous ? 128u : 1u});
      const auto& way = ways.at(i + at);
      EXPECT_EQ(way.at("way"), "Weft");
      EXPECT_EQ(way.at("layout"), name(layout));
      EXPECT_EQ(way.at("rows"), i == 0 ? "fp8" : "bf16");
      EXPECT_EQ(way.at("dispatch_bytes"), memory.dispatch);
      EXPECT_EQ(way.at("combine_bytes"), memory.combine);
      EXPECT_EQ(way.at("tables_bytes"), memory.tables);
      EXPECT_EQ(way.at("buffers_bytes"), memory.window);
      EXPECT_EQ(way.at("ring_rows"), memory.ring_rows);
      EXPECT_EQ(way.at("half_tokens"), memory.half_tokens);
      EXPECT_EQ(way.at("output_bytes"), memory.output);
    }
  }
}

// Others have no ring of Weft's.
TEST(InfoMoe, TellsThePlacesOfARing) {
  const auto ways = ways_of({"--ranks", "8", "--tokens", "4096", "--layout", "contiguous"});
  EXPECT_EQ(ways.front().at("ring_rows"), 512);
  EXPECT_EQ(ways.front().at("half_tokens"), 512);
  EXPECT_FALSE(way_of(ways, "DeepEP V2", "bf16").contains("half_tokens"));
}

TEST(InfoMoe, ShowsOnlyTheLayoutAndRowsAskedFor) {
  const auto masked = ways_of({"--layout", "masked", "--dispatch", "fp8-ue8m0"});
  ASSERT_EQ(masked.size(), 3u);
  const char* const names[] = {"Weft", "DeepEP V1 low-latency", "NCCL EP expert-major"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(masked.at(i).at("way"), names[i]);
    EXPECT_EQ(masked.at(i).at("rows"), "fp8-ue8m0");
  }
  EXPECT_EQ(ways_of({"--layout", "contiguous"}).size(), 4u);
  EXPECT_EQ(ways_of({"--layout", "rank-major"}).size(), 4u);
  EXPECT_EQ(ways_of({"--layout", "rank-compact"}).size(), 2u);  // Weft's alone
  EXPECT_EQ(run({"info", "--moe", "deepseek-v3", "--layout", "flat"}).code, 2);
  EXPECT_EQ(run({"info", "--moe", "deepseek-v3", "--dispatch", "f16"}).code, 2);
  EXPECT_EQ(run({"info", "--moe", "deepseek-v3", "--hidden", "100", "--dispatch", "fp8"}).code, 2);
  for (const char* option : {"--hidden", "--experts", "--top-k"}) {
    const auto alone = run({"info", option, "8"});
    EXPECT_EQ(alone.code, 2);
    EXPECT_NE(alone.err.find(std::string(option) + ": needs --moe or --config"), std::string::npos) << alone.err;
  }
}

// The text names the sources of what it has computed, and says that numbers are not the model's.
TEST(InfoMoe, NamesItsSources) {
  const auto result = run({"info", "--moe", "deepseek-v3", "--experts", "288"});
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* said : {"deepseek-v3, changed", "288, top-8", "\nDeepEP V2 ", "  DeepEP V1: low-latency mode",
                           "  DeepEP V2: ElasticBuffer", "  NCCL EP: low-latency mode", "nccl_ep 0.1.0"}) {
    EXPECT_NE(result.out.find(said), std::string::npos) << said << "\n" << result.out;
  }
}

}  // namespace
}  // namespace weft::cli
