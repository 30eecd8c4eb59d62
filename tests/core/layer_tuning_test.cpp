// Tuning tables of layers: their form in files, and the choice of a table and of a step.
#include <gtest/gtest.h>

#include "support/changed_tuning.hpp"
#include "support/ranks.hpp"
#include "tuning/tuning.hpp"
#include "weft/moe_layer.hpp"

namespace weft::detail {
namespace {

const Processor kProcessor{"NVIDIA H200", 90, 132};
constexpr LayerSize kSize{.hidden = 7168, .intermediate = 2048, .local_experts = 8, .top_k = 6};

TuningTable layers(const LayerSize& size, std::vector<LayerStep> steps) {
  return {.processor = kProcessor,
          .ranks = 8,
          .operation = TunedOperation::moe_layer,
          .layer = size,
          .origin = "measured",
          .layer_steps = std::move(steps)};
}

std::vector<TuningTable> tables() {
  const LayerSize wider{.hidden = 4096, .intermediate = 1536, .local_experts = 8, .top_k = 6};
  LayerSize by_ring = kSize;
  by_ring.path = RowPath::ring;
  return {
      {.processor = kProcessor, .ranks = 8, .origin = "measured", .steps = {{}}},
      layers(kSize, {{.up_to = 64},
                     {.up_to = 128,
                      .schedule = LayerSchedule::rounds,
                      .rounds = 3,
                      .experts = {1, 6, 1},
                      .sms = {.send = 16, .recv = 17, .combine_send = 18, .combine_recv = 19, .up = 100, .down = 101}},
                     {.schedule = LayerSchedule::combine_rounds, .rounds = 2, .sms = {.combine_send = 32}}}),
      layers(wider, {{}}),
      layers(by_ring, {{.schedule = LayerSchedule::rounds, .rounds = 2}})};
}

TEST(LayerTuning, WhatIsWrittenIsRead) {
  EXPECT_EQ(parse_tuning(to_json(tables()), "file"), tables());
}

TEST(LayerTuning, ATableServesItsProcessorRanksAndSizeAlone) {
  const std::vector<TuningTable> all = tables();
  EXPECT_EQ(choose_layer_tuning(all, kProcessor, 8, kSize), &all[1]);
  EXPECT_EQ(choose_layer_tuning(all, kProcessor, 8, all[2].layer), &all[2]);
  EXPECT_EQ(choose_layer_tuning(all, kProcessor, 4, kSize), nullptr);
  EXPECT_EQ(choose_layer_tuning(all, {"NVIDIA H100", 90, 132}, 8, kSize), nullptr);
  for (const auto value :
       {&LayerSize::hidden, &LayerSize::intermediate, &LayerSize::local_experts, &LayerSize::top_k}) {
    LayerSize other = kSize;
    other.*value += 1;
    EXPECT_EQ(choose_layer_tuning(all, kProcessor, 8, other), nullptr);
  }
  // A table that names the way of rows comes first, wherever it stands; one without serves the other way.
  for (const RowPath path : {RowPath::slots, RowPath::ring}) {
    LayerSize by = kSize;
    by.path = path;
    EXPECT_EQ(choose_layer_tuning(all, kProcessor, 8, by), &all[path == RowPath::ring ? 3 : 1]);
    const std::vector<TuningTable> reversed(all.rbegin(), all.rend());
    EXPECT_EQ(choose_layer_tuning(reversed, kProcessor, 8, by), &reversed[path == RowPath::ring ? 0 : 2]);
    by.hidden = all[2].layer.hidden;
    by.intermediate = all[2].layer.intermediate;
    EXPECT_EQ(choose_layer_tuning(all, kProcessor, 8, by), &all[2]);
  }
  // All-reduces have tables of their own, whatever layers have.
  EXPECT_EQ(choose_tuning(all, kProcessor, 8).table, &all[0]);
  EXPECT_EQ(choose_tuning(all, kProcessor, 8, TunedOperation::all_reduce_rms_norm).table, &all[0]);
}

TEST(LayerTuning, TheFirstStepThatReachesServes) {
  const std::vector<LayerStep> steps = tables()[1].layer_steps;
  EXPECT_EQ(&token_step_for(steps, 1), &steps[0]);
  EXPECT_EQ(&token_step_for(steps, 64), &steps[0]);
  EXPECT_EQ(&token_step_for(steps, 65), &steps[1]);
  EXPECT_EQ(&token_step_for(steps, 128), &steps[1]);
  EXPECT_EQ(&token_step_for(steps, 129), &steps[2]);
}

// Ranks compare fingerprints of what they have read: every number of a table counts.
TEST(LayerTuning, EveryDifferenceIsInTheFingerprint) {
  const std::vector<TuningTable> all = tables();
  const auto differs = [&](auto change) {
    std::vector<TuningTable> other = all;
    change(other[1], other[1].layer_steps[1]);
    EXPECT_NE(fingerprint_of(other), fingerprint_of(all));
  };
  differs([](TuningTable& table, LayerStep&) { table.ranks = 4; });
  for (const auto value : {&LayerSize::hidden, &LayerSize::intermediate, &LayerSize::local_experts, &LayerSize::top_k})
    differs([&](TuningTable& table, LayerStep&) { table.layer.*value += 1; });
  differs([](TuningTable& table, LayerStep&) { table.layer.path = RowPath::slots; });
  differs([](TuningTable&, LayerStep& step) { step.up_to += 1; });
  differs([](TuningTable&, LayerStep& step) { step.schedule = LayerSchedule::combine_rounds; });
  differs([](TuningTable&, LayerStep& step) { step.experts = {2, 5, 1}; });
  differs([](TuningTable&, LayerStep& step) { step.experts = {}; });
  for (const auto value : {&LayerSms::send, &LayerSms::recv, &LayerSms::combine_send, &LayerSms::combine_recv,
                           &LayerSms::up, &LayerSms::down})
    differs([&](TuningTable&, LayerStep& step) { step.sms.*value += 1; });
}

TEST(LayerTuning, ErrorsNameFileKeyValueAndRange) {
  const std::string good = to_json(tables());
  const auto error = [&](const std::string& from, const std::string& to) {
    return test::error_of_changed_tuning(good, from, to);
  };
  const std::string step = "my.json: tables[1].steps[1].";
  EXPECT_EQ(error("\"up_to_tokens\": 128", "\"up_to_tokens\": 64"),
            step + "up_to_tokens: 64 is not a whole number between 65 and 1073741824");
  EXPECT_EQ(error("\"up_to_tokens\": 64, ", ""), "my.json: tables[1].steps[0].up_to_tokens: missing");
  EXPECT_EQ(error("{\"schedule\": \"combine-rounds\"", "{\"up_to_tokens\": 900, \"schedule\": \"combine-rounds\""),
            "my.json: tables[1].steps[2].up_to_tokens: 900 is not left out: the last step serves all that is larger");
  for (const std::string schedule : {"peo", "automatic"}) {
    EXPECT_EQ(error("\"schedule\": \"rounds\"", "\"schedule\": \"" + schedule + "\""),
              step + "schedule: \"" + schedule + "\" is not one of plain, rounds, combine-rounds");
  }
  EXPECT_EQ(error("\"rounds\": 2", "\"rounds\": 17"),
            "my.json: tables[1].steps[2].rounds: 17 is not a whole number between 2 and 16");
  EXPECT_EQ(error(", \"rounds\": 2", ""), "my.json: tables[1].steps[2].rounds: missing");
  EXPECT_EQ(error("\"schedule\": \"plain\"", "\"schedule\": \"plain\", \"rounds\": 1"),
            "my.json: tables[1].steps[0].rounds: 1 is not left out: the schedule is plain");
  EXPECT_EQ(error("[1, 6, 1]", "[1, 6, 2]"), step + "rounds: [1,6,2] is not a division of the 8 local_experts");
  EXPECT_EQ(error("[1, 6, 1]", "[1, -6, 1]"),
            step + "rounds: [1,-6,1] is not a list of 1 to 16 whole numbers between 0 and 4096");
  EXPECT_EQ(error("[1, 6, 1]", "[]"), step + "rounds: [] is not a list of 1 to 16 whole numbers between 0 and 4096");
  EXPECT_EQ(error("[1, 6, 1]", "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,8]").substr(0, step.size() + 6), step + "rounds");
  for (const std::string key :
       {"send_num_sms", "recv_num_sms", "combine_send_num_sms", "combine_recv_num_sms", "up_num_sms", "down_num_sms"}) {
    for (const std::string bad : {"1", "257"}) {
      EXPECT_EQ(error("\"schedule\": \"plain\"", "\"schedule\": \"plain\", \"" + key + "\": " + bad),
                "my.json: tables[1].steps[0]." + key + ": " + bad + " is not a whole number between 2 and 256");
    }
  }
  EXPECT_EQ(error("7168", "0"), "my.json: tables[1].hidden: 0 is not a whole number between 1 and 1048576");
  EXPECT_EQ(error("\"local_experts\": 8", "\"local_experts\": 4097"),
            "my.json: tables[1].local_experts: 4097 is not a whole number between 1 and 4096");
  EXPECT_EQ(error("\"top_k\": 6", "\"top_k\": 33"),
            "my.json: tables[1].top_k: 33 is not a whole number between 1 and 32");
  EXPECT_EQ(error("\"top_k\": 6,", ""), "my.json: tables[1].top_k: missing");
  EXPECT_EQ(error("\"path\": \"ring\"", "\"path\": \"automatic\""),
            "my.json: tables[3].path: \"automatic\" is not one of slots, ring");
  EXPECT_EQ(error("\"ranks\": 8,\n   \"operation\": \"moe_layer\"", "\"ranks\": 0,\n   \"operation\": \"moe_layer\""),
            "my.json: tables[1].ranks: 0 is not a whole number between 1 and 72");
  // Two tables for layers of one size; and sizes of layers are no business of all-reduces.
  EXPECT_EQ(error("\"hidden\": 4096, \"intermediate\": 1536", "\"hidden\": 7168, \"intermediate\": 2048"),
            "my.json: tables[2].ranks: 8 is not the only table for NVIDIA H200 of this size");
  EXPECT_EQ(error("\"operation\": \"all_reduce\",", "\"operation\": \"all_reduce\", \"hidden\": 7168,"),
            "my.json: tables[0].hidden: 7168 is not known; known are processor, compute_capability, multiprocessors, "
            "ranks, operation, origin, note, steps");
  EXPECT_EQ(
      error("\"schedule\": \"plain\"", "\"algorithm\": \"one-shot\", \"schedule\": \"plain\""),
      "my.json: tables[1].steps[0].algorithm: \"one-shot\" is not known; known are up_to_tokens, schedule, rounds, "
      "send_num_sms, recv_num_sms, combine_send_num_sms, combine_recv_num_sms, up_num_sms, down_num_sms");
}

}  // namespace
}  // namespace weft::detail
