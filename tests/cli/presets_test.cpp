// Models that need no file.
#include "models/presets.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/run.hpp"
#include "weft/error.hpp"
#include "weft/moe.hpp"

namespace weft::cli {
namespace {

struct Known {
  std::string name;
  std::int64_t hidden, layers, moe_layers, num_experts, top_k;
};

TEST(Presets, AreTheModelsThatTheirConfigurationsSay) {
  const std::vector<Known> known = {
      {"deepseek-v3", 7168, 61, 58, 256, 8},      {"deepseek-v4-flash", 4096, 43, 43, 256, 6},
      {"deepseek-v4-pro", 7168, 61, 61, 384, 6},  {"glm-4.5", 5120, 92, 89, 160, 8},
      {"gpt-oss-120b", 2880, 36, 36, 128, 4},     {"kimi-k2", 7168, 61, 60, 384, 8},
      {"llama-3.1-405b", 16384, 126, 0, 0, 0},    {"llama-3.1-70b", 8192, 80, 0, 0, 0},
      {"llama-4-maverick", 5120, 48, 24, 128, 1}, {"minimax-m2.5", 3072, 62, 62, 256, 8},
      {"minimax-m3", 6144, 60, 57, 128, 4},       {"qwen3-235b", 4096, 94, 94, 128, 8},
      {"qwen3-30b", 2048, 48, 48, 128, 8},        {"qwen3.5-397b", 4096, 60, 60, 512, 10},
  };
  std::vector<std::string> names;
  for (const Known& model : known) {
    names.push_back(model.name);
    const ModelShape shape = preset(model.name);
    EXPECT_EQ(shape.name, model.name);
    EXPECT_EQ(shape.hidden, model.hidden) << model.name;
    EXPECT_EQ(shape.layers, model.layers) << model.name;
    EXPECT_EQ(shape.moe_layers, model.moe_layers) << model.name;
    EXPECT_EQ(shape.num_experts, model.num_experts) << model.name;
    EXPECT_EQ(shape.top_k, model.top_k) << model.name;
    EXPECT_EQ(shape.all_reduces, 2 * model.layers) << model.name;
    EXPECT_EQ(shape.row_width(), model.hidden) << model.name;
    EXPECT_EQ(shape.warnings, std::vector<std::string>{}) << model.name;
  }
  EXPECT_EQ(preset_names(), names);
  EXPECT_EQ(preset("deepseek-v3").n_group, 8);
  EXPECT_EQ(preset("deepseek-v3").topk_group, 4);
}

TEST(Presets, CaseAndOrganisationDoNotMatter) {
  for (const char* name : {"DeepSeek-V3", "deepseek-ai/DeepSeek-V3", "DEEPSEEK-V3", "any/deepseek-v3"})
    EXPECT_EQ(preset(name).name, "deepseek-v3") << name;
  EXPECT_EQ(preset("Qwen/Qwen3-235B-A22B").name, "qwen3-235b");
  EXPECT_EQ(preset("meta-llama/Meta-Llama-3.1-70B").name, "llama-3.1-70b");
  EXPECT_EQ(preset("Kimi-K2-Instruct").name, "kimi-k2");
  for (const char* name : {"deepseek-v", "deepseek-v4", "", "/", "deepseek-v3/", "gpt-1"})
    EXPECT_THROW(preset(name), Error) << name;
}

TEST(Presets, EveryCommandTakesAModelOrItsFolder) {
  const std::string folder = testing::TempDir() + "presets-model";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << R"({"hidden_size": 256, "num_hidden_layers": 3, "num_experts": 8,
    "num_experts_per_tok": 2, "first_k_dense_replace": 1, "expert_cadence": 2})";
  const std::string warning = "/config.json: field \"expert_cadence\" is not known";
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"bench", "--device", "cpu", "--ranks", "2", "--tokens", "1", "--samples", "1"},
           {"bench", "moe", "--device", "cpu", "--ranks", "2", "--tokens", "1", "--samples", "1"},
           {"bench", "gather", "--device", "cpu", "--ranks", "2", "--tokens", "1", "--samples", "1"},
           {"bench", "norm", "--device", "cpu", "--ranks", "2", "--tokens", "1", "--samples", "1"},
           {"info"}}) {
    auto arguments = command;
    arguments.insert(arguments.end(), {"--config", folder});
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 0) << testing::PrintToString(arguments) << result.err;
    // The warning appears once, with the file's path.
    const auto at = result.err.find(folder + warning);
    EXPECT_NE(at, std::string::npos) << testing::PrintToString(arguments) << result.err;
    EXPECT_EQ(result.err.find(warning, at + folder.size() + 1), std::string::npos) << result.err;
    arguments.back() = "";
    EXPECT_EQ(run(arguments).code, 2) << testing::PrintToString(arguments);
  }
  const auto norm = run({"bench", "norm", "--device", "cpu", "--ranks", "2", "--tokens", "1", "--samples", "1",
                         "--model", "Qwen/Qwen3-30B-A3B"});
  EXPECT_NE(norm.out.find("[1, 2048]"), std::string::npos) << norm.err << norm.out;
  EXPECT_EQ(run({"bench", "norm", "--model", "qwen3-30b", "--hidden", "64"}).code, 2);

  const auto bench =
      run({"bench", "--device", "cpu", "--ranks", "2", "--tokens", "1", "--samples", "1", "--config", folder});
  EXPECT_EQ(bench.out.rfind("presets-model: hidden 256, 3 layers, 2 with experts: 8, top-2\n", 0), 0u) << bench.out;
  EXPECT_NE(bench.out.find("after each block, 6 times per forward pass"), std::string::npos) << bench.out;
  const auto info = run({"info", "--config", folder, "--json", "-"});
  const auto shape = nlohmann::json::parse(info.out).at("moe").at("shape");
  EXPECT_EQ(shape.at("moe_layers"), 2);
  EXPECT_EQ(shape.at("warnings").size(), 1u);
  std::filesystem::remove_all(folder);
}

// Dispatched rows have the width of the experts' input. Experts that get no rows are not counted.
TEST(Presets, DispatchedRowsMayBeNarrow) {
  const std::string file = testing::TempDir() + "presets-latent.json";
  const auto write = [&](const std::string& more) {
    std::ofstream(file) << R"({"hidden_size": 512, "num_hidden_layers": 2, "num_experts": 8, "num_experts_per_tok": 2)"
                        << more << "}";
  };
  write(R"(, "moe_latent_size": 128)");
  const auto info = run({"info", "--config", file, "--tokens", "4", "--ranks", "2", "--json", "-"});
  ASSERT_EQ(info.code, 0) << info.err;
  const MoeExchangeMemory narrow =
      moe_exchange_memory(2, {.tokens = 4, .hidden = 128, .experts = 8, .top_k = 2, .cast = RowCast::fp8});
  EXPECT_EQ(nlohmann::json::parse(info.out).at("moe").at("memory").at(0).at("window_bytes"), narrow.window);

  write(R"(, "model_type": "longcat_flash", "num_layers": 2, "zero_expert_num": 4)");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"info", "--config", file}, {"bench", "moe", "--config", file}}) {
    const auto refused = run(arguments);
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("zero_expert_num is 4"), std::string::npos) << refused.err;
  }
  const auto bench =
      run({"bench", "--device", "cpu", "--ranks", "2", "--tokens", "1", "--samples", "1", "--config", file});
  EXPECT_EQ(bench.code, 0) << bench.err;
  EXPECT_NE(bench.out.find("zero_expert_num is 4"), std::string::npos) << bench.out;
  EXPECT_NE(bench.out.find("10 times per forward pass"), std::string::npos) << bench.out;
}

}  // namespace
}  // namespace weft::cli
