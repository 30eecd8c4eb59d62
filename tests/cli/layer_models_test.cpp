// Blocks of layers: configurations of real models, cut down to the fields that are read.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "cli/config_parts.hpp"
#include "models/models.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

std::vector<int> range(int first, int end, int step = 1) {
  std::vector<int> all;
  for (int number = first; number < end; number += step) all.push_back(number);
  return all;
}

struct Model {
  const char* name;
  json config;
  std::int64_t layers, moe_layers, all_reduces, row_width;
};

// 31 layers of Llama-3.3-Nemotron-Super-49B have no attention.
json nemotron_nas() {
  const std::set<int> without = [] {
    std::set<int> all = {6, 7, 11};
    for (const int layer : range(42, 71))
      if (layer != 52) all.insert(layer);
    return all;
  }();
  json blocks = json::array();
  for (const int layer : range(0, 80))
    blocks.push_back({{"attention", {{"no_op", without.contains(layer)}, {"replace_with_linear", false}}},
                      {"ffn", {{"ffn_mult", 2.625}, {"no_op", false}, {"replace_with_linear", false}}}});
  return {{"hidden_size", 8192}, {"num_hidden_layers", 80}, {"block_configs", blocks}};
}

std::vector<Model> models() {
  std::string nemotron_h_56b = "M-M-M-M*";
  for (int i = 0; i < 10; ++i) nemotron_h_56b += i < 9 ? "-M-M-M-M-M*" : "-M-M-M-M-M-";
  const json nemotron_3 = {{"model_type", "nemotron_h"}, {"n_group", 1}, {"topk_group", 1}, {"n_shared_experts", 1}};
  return {
      {"Llama-4-Maverick",
       {{"text_config",
         {{"hidden_size", 5120},
          {"num_hidden_layers", 48},
          {"num_local_experts", 128},
          {"num_experts_per_tok", 1},
          {"interleave_moe_layer_step", 2}}}},
       48,
       24,
       96,
       5120},
      {"Llama-4-Maverick, as transformers saves it",
       {{"hidden_size", 5120},
        {"num_hidden_layers", 48},
        {"num_local_experts", 128},
        {"num_experts_per_tok", 1},
        {"interleave_moe_layer_step", 2},
        {"moe_layers", range(1, 48, 2)}},
       48,
       24,
       96,
       5120},
      {"Jamba",
       {{"model_type", "jamba"},
        {"hidden_size", 4096},
        {"num_hidden_layers", 32},
        {"attn_layer_offset", 4},
        {"attn_layer_period", 8},
        {"expert_layer_offset", 1},
        {"expert_layer_period", 2},
        {"num_experts", 16},
        {"num_experts_per_tok", 2}},
       32,
       16,
       64,
       4096},
      {"Nemotron-3-Nano",
       with(nemotron_3, {{"hidden_size", 2688},
                         {"num_hidden_layers", 52},
                         {"hybrid_override_pattern", "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"},
                         {"n_routed_experts", 128},
                         {"num_experts_per_tok", 6}}),
       52, 23, 52, 2688},
      {"Nemotron-3-Super",
       with(nemotron_3, {{"hidden_size", 4096},
                         {"num_hidden_layers", 88},
                         {"hybrid_override_pattern",
                          "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"},
                         {"n_routed_experts", 512},
                         {"num_experts_per_tok", 22},
                         {"moe_latent_size", 1024}}),
       88, 40, 88, 1024},
      {"a Nemotron-3 with kinds in words",
       with(nemotron_3, {{"hidden_size", 8192},
                         {"layers_block_type", {"mamba", "moe", "attention", "moe", "mlp"}},
                         {"mtp_layers_block_type", {"attention", "moe"}},
                         {"n_routed_experts", 512},
                         {"num_experts_per_tok", 22},
                         {"moe_latent_size", 2048}}),
       5, 2, 5, 2048},
      {"Nemotron-H-56B",
       {{"model_type", "nemotron_h"},
        {"hidden_size", 8192},
        {"num_hidden_layers", 118},
        {"hybrid_override_pattern", nemotron_h_56b}},
       118,
       0,
       118,
       8192},
      {"Nemotron-Super-49B", nemotron_nas(), 80, 0, 129, 8192},
      {"Kimi-K3",
       {{"text_config",
         {{"hidden_size", 7168},
          {"num_hidden_layers", 93},
          {"first_k_dense_replace", 1},
          {"moe_layer_freq", 1},
          {"num_experts", 896},
          {"num_experts_per_token", 16},
          {"num_expert_group", 1},
          {"num_shared_experts", 2},
          {"routed_expert_hidden_size", 3584}}}},
       93,
       92,
       186,
       3584},
      {"Step-3.5",
       {{"hidden_size", 4096},
        {"num_hidden_layers", 45},
        {"moe_num_experts", 288},
        {"moe_top_k", 8},
        {"share_expert_dim", 1280},
        {"moe_layers_enum", fmt::format("{}", fmt::join(range(3, 45), ","))}},
       45,
       42,
       90,
       4096},
      {"step3",
       {{"text_config",
         {{"hidden_size", 7168},
          {"num_hidden_layers", 61},
          {"moe_num_experts", 48},
          {"moe_top_k", 3},
          {"moe_layers_enum", fmt::format("{}", fmt::join(range(4, 60), ", "))}}}},
       61,
       56,
       122,
       7168},
      {"MiMo-V2-Flash",
       {{"hidden_size", 4096},
        {"num_hidden_layers", 48},
        {"n_routed_experts", 256},
        {"num_experts_per_tok", 8},
        {"hybrid_layer_pattern", flags(1, 47)},
        {"moe_layer_freq", flags(1, 47)}},
       48,
       47,
       96,
       4096},
      {"GLM-5.2",
       {{"hidden_size", 6144},
        {"num_hidden_layers", 78},
        {"first_k_dense_replace", 3},
        {"moe_layer_freq", 1},
        {"mlp_layer_types", kinds(3, 75)},
        {"n_routed_experts", 256},
        {"num_experts_per_tok", 8}},
       78,
       75,
       156,
       6144},
      {"ERNIE-4.5-21B",
       {{"hidden_size", 2560},
        {"num_hidden_layers", 28},
        {"moe_num_experts", 64},
        {"moe_num_shared_experts", 2},
        {"moe_k", 6},
        {"moe_layer_start_index", 1},
        {"moe_layer_end_index", 27},
        {"moe_layer_interval", 1}},
       28,
       27,
       56,
       2560},
      // Norms stand between the dense part, the experts and their sum, so each needs an all-reduce.
      {"Gemma-4-26B-A4B",
       {{"text_config",
         {{"hidden_size", 2816},
          {"num_hidden_layers", 30},
          {"enable_moe_block", true},
          {"num_experts", 128},
          {"top_k_experts", 8},
          {"num_kv_shared_layers", 0}}}},
       30,
       30,
       90,
       2816},
      {"LongCat-Flash",
       {{"architectures", {"LongcatFlashForCausalLM"}},
        {"hidden_size", 6144},
        {"num_layers", 28},
        {"expert_ffn_hidden_size", 2048},
        {"n_routed_experts", 512},
        {"zero_expert_num", 256},
        {"zero_expert_type", "identity"},
        {"moe_topk", 12}},
       28,
       28,
       140,
       6144},
  };
}

TEST(LayersOfModels, AreCountedRight) {
  for (const Model& model : models()) {
    const ModelShape shape = shape_of(model.config);
    EXPECT_EQ(shape.layers, model.layers) << model.name;
    EXPECT_EQ(shape.moe_layers, model.moe_layers) << model.name;
    EXPECT_EQ(shape.all_reduces, model.all_reduces) << model.name;
    EXPECT_EQ(shape.row_width(), model.row_width) << model.name;
    EXPECT_EQ(shape.has_experts(), model.moe_layers != 0) << model.name;
    EXPECT_EQ(shape.warnings, std::vector<std::string>{}) << model.name;
  }
}

// With data-parallel attention tokens are gathered before each feed-forward part that a layer has.
TEST(LayersOfModels, GathersFollowFeedForwardParts) {
  for (const Model& model : models()) {
    const std::string name = model.name;
    const ModelShape shape = shape_of(model.config);
    const std::int64_t wanted = name == "Nemotron-3-Nano"            ? 23
                                : name == "Nemotron-3-Super"         ? 40
                                : name == "Nemotron-H-56B"           ? 54
                                : name == "LongCat-Flash"            ? 56
                                : name.find("in words") != name.npos ? 3
                                                                     : shape.layers;
    EXPECT_EQ(shape.gathers, wanted) << name;
  }
}

}  // namespace
}  // namespace weft::cli
