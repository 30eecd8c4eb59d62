// config.json of each style of architecture: their fields have different names.
#include "models/models.hpp"
#include "models/config_file.hpp"
#include "models/presets.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "weft/error.hpp"

namespace weft::cli {
namespace {

ModelShape shape_of(const char* text) {
  return shape_from_json(nlohmann::json::parse(text), "test", "a/file.json");
}

// The message of the error that `text` must cause.
std::string error_of(const char* text) {
  try {
    shape_of(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Models, DeepSeekStyle) {
  const auto shape = shape_of(R"({"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280,
    "intermediate_size": 18432, "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
    "n_group": 8, "topk_group": 4, "n_shared_experts": 1, "first_k_dense_replace": 3})");
  const auto expected = preset("deepseek-v3");
  EXPECT_EQ(shape.hidden, expected.hidden);
  EXPECT_EQ(shape.layers, expected.layers);
  EXPECT_EQ(shape.num_experts, expected.num_experts);
  EXPECT_EQ(shape.top_k, expected.top_k);
  EXPECT_EQ(shape.n_group, expected.n_group);
  EXPECT_EQ(shape.topk_group, expected.topk_group);
  EXPECT_EQ(shape.moe_layers, expected.moe_layers);
  EXPECT_EQ(shape.moe_layers, 58);
}

TEST(Models, QwenStyle) {
  const auto shape = shape_of(R"({"hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "vocab_size": 151936, "intermediate_size": 6144, "num_experts": 128,
    "num_experts_per_tok": 8, "moe_intermediate_size": 768})");
  EXPECT_EQ(shape.num_experts, 128);
  EXPECT_EQ(shape.n_group, 0);
}

TEST(Models, MixtralAndGptOssStyle) {
  const auto mixtral = shape_of(R"({"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "vocab_size": 32000, "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2})");
  EXPECT_EQ(mixtral.num_experts, 8);
  EXPECT_EQ(mixtral.top_k, 2);
  const auto gpt_oss = shape_of(R"({"hidden_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64,
    "vocab_size": 201088, "intermediate_size": 2880, "num_local_experts": 128, "experts_per_token": 4})");
  EXPECT_EQ(gpt_oss.top_k, 4);
}

TEST(Models, DenseStyles) {
  const auto llama = shape_of(R"({"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 28672})");
  EXPECT_FALSE(llama.has_experts());
  const auto null_experts = shape_of(R"({"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "vocab_size": 10, "n_routed_experts": null})");
  EXPECT_FALSE(null_experts.has_experts());
  const auto gpt2 = shape_of(R"({"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257})");
  EXPECT_EQ(gpt2.hidden, 768);
}

TEST(Models, DbrxStyleHidesExpertsInFfnConfig) {
  const auto shape = shape_of(R"({"d_model": 6144, "n_layers": 40, "n_heads": 48, "vocab_size": 100352,
    "attn_config": {"kv_n_heads": 8}, "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}})");
  EXPECT_EQ(shape.num_experts, 16);
  EXPECT_EQ(shape.top_k, 4);
}

TEST(Models, NestedTextConfigWinsOverTheVisionPart) {
  const auto shape = shape_of(R"({"hidden_size": 99, "vision_config": {"hidden_size": 1408},
    "text_config": {"hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40, "vocab_size": 202048,
      "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 16, "num_experts_per_tok": 1}})");
  EXPECT_EQ(shape.hidden, 5120);
}

// Fields that change no message may be absent, or have a value for each layer.
TEST(Models, FieldsThatNothingIsMeasuredWithDoNotMatter) {
  const auto shape = shape_of(R"({"hidden_size": 2048, "num_hidden_layers": 3, "num_attention_heads": [8, 16, 8],
    "num_key_value_heads": [1, 2, null], "intermediate_size": [8192, 16384, 8192], "vocab_size": -1, "n_group": 0,
    "topk_group": 0, "moe_intermediate_size": "wide"})");
  EXPECT_EQ(shape.hidden, 2048);
  EXPECT_EQ(shape.layers, 3);
}

TEST(Models, AListThatRepeatsANumberIsThatNumber) {
  const auto shape = shape_of(R"({"hidden_size": 4096, "num_hidden_layers": 2, "num_experts": [64, 64],
    "moe_topk": [8, 8], "moe_layer_start_index": [1, 1]})");
  EXPECT_EQ(shape.num_experts, 64);
  EXPECT_EQ(shape.top_k, 8);
  EXPECT_EQ(shape.moe_layers, 1);
}

TEST(Models, GroupsOfExpertsAreAllUsedWhereNothingElseIsSaid) {
  const auto shape = shape_of(R"({"hidden_size": 8, "num_hidden_layers": 2, "num_experts": 64, "moe_topk": 8,
    "n_group": 8})");
  EXPECT_EQ(shape.topk_group, 8);
}

TEST(Models, ErrorsNameFieldValueAndRange) {
  const auto expect = [](const std::string& fields, const std::string& message) {
    EXPECT_EQ(error_of(("{" + fields + "}").c_str()), "a/file.json: " + message);
  };
  const std::string integer = ", must be an integer between ", list = ", or a list that repeats one";
  const std::string hidden = R"("hidden_size": 8)", dense = hidden + R"(, "num_hidden_layers": 1)";
  expect(R"("num_hidden_layers": 1)", "no field for the hidden size (looked for hidden_size, n_embd, d_model)");
  expect(hidden, "no field for the number of layers (looked for num_hidden_layers, n_layer, n_layers, num_layers)");
  for (const std::string value : {R"("64")", "-1", "0", "1.5", "[]", "[64,32]", "1048577", "9223372036854775808",
                                  "18446744073709551615", "\"Infinity\"", "{}"})
    expect("\"hidden_size\": " + value, "field \"hidden_size\" is " + value + integer + "1 and 1048576" + list);
  std::string widths = "64";  // a long list is not shown whole
  for (int layer = 0; layer < 40; ++layer) widths += ",32";
  expect("\"hidden_size\": [" + widths + "]",
         "field \"hidden_size\" is [" + widths.substr(0, 59) + "…" + integer + "1 and 1048576" + list);
  expect(hidden + R"(, "num_hidden_layers": 65537)",
         "field \"num_hidden_layers\" is 65537" + integer + "1 and 65536" + list);
  expect(dense + R"(, "num_experts": 1048577)", "field \"num_experts\" is 1048577" + integer + "0 and 1048576" + list);
  const std::string experts = dense + R"(, "num_experts": 4)";
  EXPECT_NE(error_of(("{" + experts + "}").c_str()).find("no field for the number of experts per token"),
            std::string::npos);
  expect(experts + R"(, "moe_topk": 5)", "field \"moe_topk\" is 5" + integer + "1 and 4" + list);
  expect(experts + R"(, "moe_topk": 2, "n_group": 3)", "field \"n_group\" is 3" + integer + "0 and 2" + list);
  expect(experts + R"(, "moe_topk": 2, "n_group": 2, "topk_group": 3)",
         "field \"topk_group\" is 3" + integer + "1 and 2" + list);
  expect(experts + R"(, "moe_topk": 2, "first_k_dense_replace": 2)",
         "field \"first_k_dense_replace\" is 2" + integer + "0 and 1" + list);
  EXPECT_EQ(error_of("[1]"), "a/file.json: not a JSON object");
}

// Writes a file with this text for the calling test.
std::string config_file(const std::string& text) {
  // Tests of this file may run at the same time, each in its own process.
  const auto file = fmt::format("{}models-{}.json", testing::TempDir(), getpid());
  std::ofstream(file) << text;
  return file;
}

std::string error_of_file(const std::string& file) {
  try {
    shape_from_config(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

// transformers writes such numbers: time_step_limit of Nemotron-H is [0.0, Infinity].
TEST(Models, NumbersThatJsonDoesNotHaveTroubleTheirFieldAlone) {
  const auto shape = shape_from_config(config_file(R"({"time_step_limit": [0.0, Infinity], "floor": -Infinity,
    "rope": NaN, "note": "a \"quoted\" NaN, Infinity \\", "hidden_size": 4480, "num_hidden_layers": 56})"));
  EXPECT_EQ(shape.hidden, 4480);
  EXPECT_EQ(shape.layers, 56);
  EXPECT_NE(
      error_of_file(config_file(R"({"hidden_size": -Infinity})")).find("\"hidden_size\" is \"-Infinity\", must be"),
      std::string::npos);
}

TEST(Models, FilesThatAreNoConfigs) {
  EXPECT_EQ(error_of_file("/nonexistent/config.json"),
            "cannot read \"/nonexistent/config.json\": No such file or directory");
  EXPECT_EQ(error_of_file("/proc"), "cannot read \"/proc/config.json\": No such file or directory");
  for (const char* text : {"{\"hidden_size\": ", "{\"hidden_size\": 1NaN}", "{\"hidden_size\": Infinity8}",
                           "{\"a\": \"\\", "{\"a\": \"NaN}", "", "{\"a\": -NaN}"})
    EXPECT_NE(error_of_file(config_file(text)).find("is not valid JSON: "), std::string::npos) << text;
  EXPECT_NE(error_of_file(config_file("{\n\"a\": ,")).find("line 2"), std::string::npos);
  // The error begins with the file's path.
  const auto file = config_file(R"({"hidden_size": "wide"})");
  EXPECT_EQ(error_of_file(file).rfind(file + ": field \"hidden_size\" is \"wide\", must be", 0), 0u);
}

TEST(Models, AFolderStandsForItsConfig) {
  const auto folder = fmt::format("{}model-{}", testing::TempDir(), getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << R"({"hidden_size": 64, "num_hidden_layers": 3})";
  const auto shape = shape_from_config(folder);
  EXPECT_EQ(shape.layers, 3);
  EXPECT_EQ(shape.name, std::filesystem::path(folder).filename());
  EXPECT_EQ(shape_from_config(folder + "/").layers, 3);
  std::filesystem::remove_all(folder);
}

// Code that reads a value recurses as deep as the value, and a stack has an end.
TEST(Models, DeepNestingIsAnError) {
  const auto nested = [](const std::string& open, int depth, const std::string& close) {
    std::string text;
    for (int level = 0; level < depth; ++level) text += open;
    text += "1";
    for (int level = 0; level < depth; ++level) text += close;
    return text;
  };
  const std::string too_deep = ": objects and lists are nested ", most = " deep, must be 100 at most";
  for (const auto& [text, depth] : {std::pair(nested("{\"text_config\":", 50'000, "}"), "50000"),
                                    std::pair(R"({"a": )" + nested("[", 400'000, "]") + "}", "400001"),
                                    std::pair(nested("[", 400'000, ""), "400000")}) {
    const auto file = config_file(text);
    EXPECT_EQ(error_of_file(file), file + too_deep + depth + most);
  }
  EXPECT_EQ(parse_config(nested("[", 100, "]"), "file").dump(), nested("[", 100, "]"));
  // Brackets in strings are no nesting.
  EXPECT_EQ(parse_config("\"" + nested("[", 200, "") + "\\\"[\"", "file").size(), 1u);
}

}  // namespace
}  // namespace weft::cli
