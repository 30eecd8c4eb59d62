// config.json of each architecture style: the fields lie under different names.
#include "cli/models.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "weft/error.hpp"

namespace weft::cli {
namespace {

ModelShape shape_of(const char* text) {
  return shape_from_json(nlohmann::json::parse(text), "test");
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

TEST(Models, PresetsAreComplete) {
  const auto names = preset_names();
  EXPECT_EQ(names,
            (std::vector<std::string>{"deepseek-v3", "qwen3-235b", "qwen3-30b", "llama-3.1-70b", "gpt-oss-120b"}));
  for (const auto& name : names) {
    const auto shape = preset(name);
    EXPECT_EQ(shape.name, name);
    EXPECT_GT(shape.hidden, 0) << name;
    EXPECT_GT(shape.layers, 0) << name;
    EXPECT_GT(shape.vocab, 0) << name;
    EXPECT_GT(shape.intermediate, 0) << name;
    EXPECT_EQ(shape.heads % shape.kv_heads, 0) << name;
    EXPECT_EQ(shape.has_experts(), shape.top_k > 0 && shape.moe_intermediate > 0) << name;
  }
  EXPECT_EQ(preset("deepseek-v3").hidden, 7168);
  EXPECT_EQ(preset("deepseek-v3").num_experts, 256);
  EXPECT_EQ(preset("gpt-oss-120b").top_k, 4);
  EXPECT_THROW(preset("deepseek-v4"), Error);
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
  EXPECT_EQ(shape.moe_intermediate, expected.moe_intermediate);
  EXPECT_EQ(shape.n_group, expected.n_group);
  EXPECT_EQ(shape.topk_group, expected.topk_group);
  EXPECT_EQ(shape.shared_experts, expected.shared_experts);
  EXPECT_EQ(shape.dense_layers, expected.dense_layers);
  EXPECT_EQ(shape.vocab, expected.vocab);
  EXPECT_EQ(shape.intermediate, expected.intermediate);
}

TEST(Models, QwenStyle) {
  const auto shape = shape_of(R"({"hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "vocab_size": 151936, "intermediate_size": 6144, "num_experts": 128,
    "num_experts_per_tok": 8, "moe_intermediate_size": 768})");
  EXPECT_EQ(shape.num_experts, 128);
  EXPECT_EQ(shape.moe_intermediate, 768);
  EXPECT_EQ(shape.kv_heads, 4);
  EXPECT_EQ(shape.n_group, 0);
}

TEST(Models, MixtralAndGptOssStyleTakeTheExpertsWidthFromIntermediateSize) {
  const auto mixtral = shape_of(R"({"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "vocab_size": 32000, "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2})");
  EXPECT_EQ(mixtral.num_experts, 8);
  EXPECT_EQ(mixtral.moe_intermediate, 14336);
  const auto gpt_oss = shape_of(R"({"hidden_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64,
    "vocab_size": 201088, "intermediate_size": 2880, "num_local_experts": 128, "experts_per_token": 4})");
  EXPECT_EQ(gpt_oss.top_k, 4);
}

TEST(Models, DenseStyles) {
  const auto llama = shape_of(R"({"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 28672})");
  EXPECT_FALSE(llama.has_experts());
  EXPECT_EQ(llama.intermediate, 28672);
  const auto null_experts = shape_of(R"({"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "vocab_size": 10, "n_routed_experts": null})");
  EXPECT_FALSE(null_experts.has_experts());
  const auto gpt2 = shape_of(R"({"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257})");
  EXPECT_EQ(gpt2.hidden, 768);
  EXPECT_EQ(gpt2.kv_heads, 12);
}

TEST(Models, DbrxStyleHidesExpertsInFfnConfig) {
  const auto shape = shape_of(R"({"d_model": 6144, "n_layers": 40, "n_heads": 48, "vocab_size": 100352,
    "attn_config": {"kv_n_heads": 8}, "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}})");
  EXPECT_EQ(shape.num_experts, 16);
  EXPECT_EQ(shape.top_k, 4);
  EXPECT_EQ(shape.kv_heads, 8);
  EXPECT_EQ(shape.moe_intermediate, 10752);
}

TEST(Models, NestedTextConfigWinsOverTheVisionPart) {
  const auto shape = shape_of(R"({"hidden_size": 99, "vision_config": {"hidden_size": 1408},
    "text_config": {"hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40, "vocab_size": 202048,
      "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 16, "num_experts_per_tok": 1}})");
  EXPECT_EQ(shape.hidden, 5120);
  EXPECT_EQ(shape.moe_intermediate, 8192);
  EXPECT_EQ(shape.intermediate, 16384);
}

TEST(Models, ErrorsNameTheField) {
  EXPECT_NE(error_of(R"({"num_hidden_layers": 1})").find("hidden_size"), std::string::npos);
  EXPECT_NE(error_of(R"({"hidden_size": 64})").find("num_hidden_layers"), std::string::npos);
  EXPECT_NE(error_of(R"({"hidden_size": "64"})").find("\"hidden_size\" is \"64\""), std::string::npos);
  EXPECT_NE(error_of(R"({"hidden_size": -1})").find("hidden_size"), std::string::npos);
  EXPECT_NE(error_of(R"({"hidden_size": 0})").find("must be ≥ 1"), std::string::npos);
  EXPECT_NE(error_of("[1]").find("not a JSON object"), std::string::npos);
  constexpr auto with = [](const char* rest) {
    return std::string(R"({"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9, )") +
           rest;
  };
  EXPECT_NE(error_of(with(R"("num_experts": 4})").c_str()).find("num_experts_per_tok"), std::string::npos);
  EXPECT_NE(error_of(with(R"("num_experts": 4, "num_experts_per_tok": 2})").c_str()).find("moe_intermediate_size"),
            std::string::npos);
  EXPECT_NE(error_of(with(R"("num_experts": 4, "num_experts_per_tok": 5, "moe_intermediate_size": 1})").c_str())
                .find("5 experts per token, but only 4"),
            std::string::npos);
}

TEST(Models, FilesThatAreNoConfigs) {
  EXPECT_THROW(shape_from_config("/nonexistent/config.json"), Error);
  const auto file = testing::TempDir() + "not_json_config.json";
  std::ofstream(file) << "{\"hidden_size\": ";
  EXPECT_THROW(shape_from_config(file), Error);
}

}  // namespace
}  // namespace weft::cli
