// The fields that decide which layers have experts, and the blocks of each layer.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/config_parts.hpp"
#include "models/models.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

std::string error_of(const json& config) {
  try {
    shape_of(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "no error: " << config.dump();
  return {};
}

// A model of 10 layers with 4 experts.
json ten_layers(const json& more) {
  return with({{"hidden_size", 8}, {"num_hidden_layers", 10}, {"num_experts", 4}, {"num_experts_per_tok", 2}}, more);
}

TEST(Layers, EachRuleAsItsFamilyMeansIt) {
  const std::vector<std::pair<json, int>> cases = {
      {json::object(), 10},
      {{{"first_k_dense_replace", 3}, {"moe_layer_freq", 2}}, 3},  // 4, 6, 8
      {{{"moe_layer_freq", 3}}, 4},                                // 0, 3, 6, 9
      {{{"decoder_sparse_step", 3}}, 3},                           // 2, 5, 8
      {{{"decoder_sparse_step", 2}, {"mlp_only_layers", {1, 2, 3}}}, 3},
      {{{"interleave_moe_layer_step", 4}}, 2},
      {{{"interleave_moe_layer_step", 1}}, 10},
      {{{"moe_layers", {0, 9}}}, 2},
      {{{"moe_layers", nullptr}, {"interleave_moe_layer_step", 2}}, 5},
      {{{"moe_layer_freq", {0, 1, 0, 1, 0, 1, 0, 1, 0, true}}}, 5},
      {{{"moe_layer_start_index", 2}, {"moe_layer_end_index", 7}, {"moe_layer_interval", 2}}, 3},  // 3, 5, 7
      {{{"moe_layer_start_index", {4, 2}}, {"moe_layer_end_index", {10, 5}}}, 8},
      {{{"moe_layer_start_index", 2}, {"moe_layer_end_index", -1}}, 8},
      {{{"expert_layer_period", 4}, {"expert_layer_offset", 3}}, 2},  // 3, 7
      {{{"num_dense_layers", 2}}, 8},
      {{{"moe_layer_num_skipped", 1}}, 9},
      {{{"moe_layers_enum", "0,5, 9"}}, 3},
  };
  for (const auto& [fields, wanted] : cases) {
    const ModelShape shape = shape_of(ten_layers(fields));
    EXPECT_EQ(shape.moe_layers, wanted) << fields.dump();
    EXPECT_EQ(shape.all_reduces, 20) << fields.dump();
    EXPECT_EQ(shape.warnings, std::vector<std::string>{}) << fields.dump();
  }
  // A model that names no family belongs to none.
  EXPECT_EQ(shape_of(ten_layers({{"architectures", "Longcat"}, {"model_type", 3}})).all_reduces, 20);
  // If no layer has experts, the model has none.
  const ModelShape none = shape_of(ten_layers({{"interleave_moe_layer_step", 0}}));
  EXPECT_FALSE(none.has_experts());
  EXPECT_EQ(none.all_reduces, 20);
  EXPECT_FALSE(shape_of(ten_layers({{"num_experts", 1}, {"num_experts_per_tok", 1}})).has_experts());
}

TEST(Layers, WhatCannotBeIsRefusedByName) {
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"moe_layers", {1, 10}}}, "\"moe_layers[1]\" is 10, must be an integer between 0 and 9"},
      {{{"moe_layers", 3}}, "\"moe_layers\" is 3, must be a list of integers"},
      {{{"moe_layers_enum", "3,x"}}, "\"moe_layers_enum\" is \"3,x\", must be numbers of layers between 0 and 9"},
      {{{"moe_layers_enum", "10"}}, "\"moe_layers_enum\" is \"10\""},
      {{{"moe_layer_freq", {0, 1}}}, "\"moe_layer_freq\" has 2 entries, and there are 10 layers"},
      {{{"moe_layer_freq", flags(0, 9)}}, "\"moe_layer_freq\" has 9 entries"},
      {{{"moe_layer_freq", 0}}, "\"moe_layer_freq\" is 0, must be an integer between 1"},
      {{{"mlp_layer_types", kinds(5, 4)}}, "\"mlp_layer_types\" has 9 entries"},
      {{{"mlp_layer_types", {"moist"}}}, "\"mlp_layer_types\" has 1 entries"},
      {{{"mlp_layer_types", std::vector<std::string>(10, "moist")}}, "is \"moist\", must be dense or sparse"},
      {{{"mlp_only_layers", {-1}}}, "\"mlp_only_layers[0]\" is -1"},
      {{{"expert_layer_period", 2}}, "no field for the offset of layers with experts"},
      {{{"expert_layer_offset", 1}}, "no field for the period of layers with experts"},
      {{{"expert_layer_period", 2}, {"expert_layer_offset", 2}},
       "\"expert_layer_offset\" is 2, must be an integer between 0 and 1"},
      {{{"moe_layers", {1, 3}}, {"interleave_moe_layer_step", 4}},
       "fields \"moe_layers\" and \"interleave_moe_layer_step\" contradict each other: layer 1 has experts only by the "
       "former"},
      {{{"moe_layers", {1, 3}}, {"moe_layers_enum", "1,3,5"}},
       "fields \"moe_layers_enum\" and \"moe_layers\" contradict each other: layer 5"},
      {{{"hybrid_override_pattern", "MEME"}}, "\"hybrid_override_pattern\" has 4 layers, must have 10"},
      {{{"hybrid_override_pattern", "MEMEMEMEX*"}},
       "\"hybrid_override_pattern\" is \"MEMEMEMEX*\", must be made of M (mamba), * (attention), - (mlp) and E (moe)"},
      {{{"layers_block_type", std::vector<std::string>(10, "mlp+")}, {"model_type", "nemotron_h"}},
       "\"layers_block_type\" is \"mlp+\", must be mamba, attention, mlp or moe"},
      {{{"layers_block_type", {"mamba", "hybrid"}}}, "\"layers_block_type\" is \"hybrid\", must be"},
      {{{"block_configs", json::array()}}, "\"block_configs\" is [], must be absent if there are experts"},
      {{{"moe_latent_size", 0}}, "\"moe_latent_size\" is 0, must be an integer between 1 and"},
      {{{"routed_expert_hidden_size", "wide"}}, "\"routed_expert_hidden_size\" is \"wide\""},
      {{{"zero_expert_num", 4}}, "\"zero_expert_num\" is 4, must be 0 or absent, except in LongCat models"},
      {{{"num_experts", nullptr}, {"hybrid_override_pattern", "MEMEMEMEME"}},
       "5 layers have experts, and no field says how many"},
  };
  for (const auto& [fields, message] : cases) {
    const std::string error = error_of(ten_layers(fields));
    EXPECT_EQ(error.rfind("config.json: ", 0), 0u) << error;
    EXPECT_NE(error.find(message), std::string::npos) << error << "\n" << message;
  }
  const auto block = [](const json& attention, const json& ffn) {
    return json{
        {"hidden_size", 8}, {"num_hidden_layers", 1}, {"block_configs", {{{"attention", attention}, {"ffn", ffn}}}}};
  };
  const json plain = {{"no_op", false}};
  EXPECT_EQ(shape_of(block(plain, plain)).all_reduces, 2);
  EXPECT_EQ(shape_of(block(nullptr, plain)).all_reduces, 1);
  EXPECT_EQ(shape_of(block(plain, {{"no_op", true}})).gathers, 0);
  EXPECT_NE(error_of(block({{"replace_with_linear", true}}, plain)).find("\"block_configs[0].attention\" is"),
            std::string::npos);
  EXPECT_NE(error_of(block(plain, {{"moe", {{"num_local_experts", 8}}}})).find("\"block_configs[0].ffn\" is"),
            std::string::npos);
  json other = block(plain, plain);
  other["block_configs"][0] = {{"block_type", "moe"}};
  EXPECT_NE(error_of(other).find("\"block_configs[0]\" is {\"block_type\":\"moe\"}, must be an object with"),
            std::string::npos);
}

// Warnings name unread fields that may be about layers.
TEST(Layers, UnknownFieldsWarn) {
  const ModelShape shape = shape_of(ten_layers({{"num_SkippedLayers", 3},
                                                {"expert_every", 2},
                                                {"layer_types", {"full_attention"}},
                                                {"input_layernorm_eps", 1e-5},
                                                {"num_hash_layers", 3},
                                                {"dense_layers", nullptr},
                                                {"vocab_size", 10}}));
  EXPECT_EQ(shape.warnings,
            (std::vector<std::string>{
                "config.json: field \"expert_every\" is not known: its effect on layers or experts is ignored",
                "config.json: field \"num_SkippedLayers\" is not known: its effect on layers or experts is ignored"}));
  // A model without experts may have fields about experts, without a warning.
  EXPECT_EQ(shape_of({{"hidden_size", 8},
                      {"num_hidden_layers", 2},
                      {"num_experts_per_tok", 2},
                      {"mlp_only_layers", json::array()},
                      {"decoder_sparse_step", 0}})
                .warnings,
            std::vector<std::string>{});
}

TEST(Layers, AreSaidInWords) {
  const auto words = [](const json& more) { return in_words(shape_of(ten_layers(more))); };
  EXPECT_EQ(words({{"first_k_dense_replace", 3}}), "hidden 8, 10 layers, 7 with experts: 4, top-2");
  EXPECT_EQ(words({{"n_group", 2}, {"topk_group", 1}}),
            "hidden 8, 10 layers, 10 with experts: 4, top-2 in 1 of 2 groups");
  EXPECT_EQ(words({{"moe_latent_size", 4}}), "hidden 8, 10 layers, 10 with experts: 4, top-2, dispatched rows of 4");
  EXPECT_EQ(words({{"num_experts", 0}}), "hidden 8, 10 layers");
}

}  // namespace
}  // namespace weft::cli
