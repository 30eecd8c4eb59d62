// Tuning tables of exchanges: their form in files, the choice of a table, and what it makes of an exchange.
#include <gtest/gtest.h>

#include "ops/moe/exchange_choice.hpp"
#include "ops/moe/exchange_shape.hpp"
#include "support/changed_tuning.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"
#include "tuning/tuning.hpp"
#include "weft/moe.hpp"

namespace weft::detail {
namespace {

const Processor kTunedH200{"NVIDIA H200", 90, 132}, kTunedH100{"NVIDIA H100", 90, 114},
    kTunedB200{"NVIDIA B200", 100, 148};
constexpr ExchangeSize kDeepSeek{.hidden = 7168, .local_experts = 32, .top_k = 8, .cast = RowCast::fp8};

TuningTable exchanges(const Processor& processor, int ranks, const ExchangeSize& size,
                      std::vector<ExchangeStep> steps = {{}}) {
  return {.processor = processor,
          .ranks = ranks,
          .operation = TunedOperation::moe_exchange,
          .exchange = size,
          .origin = "measured",
          .exchange_steps = std::move(steps)};
}

std::vector<TuningTable> exchange_tables() {
  ExchangeSize compact = kDeepSeek;
  compact.layout = RowLayout::rank_compact;
  compact.cast = RowCast::fp8_ue8m0;
  return {
      {.processor = kTunedH200, .ranks = 8, .origin = "measured", .steps = {{}}},
      exchanges(kTunedH200, 8, kDeepSeek,
                {{.up_to = 64},
                 {.up_to = 512, .dispatch = {.blocks = 33, .threads = 256}, .combine = {.blocks = 65, .threads = 128}},
                 {.path = RowPath::ring, .combine = {.blocks = 17}}}),
      exchanges(kTunedH200, 8, compact, {{.path = RowPath::ring}})};
}

TEST(ExchangeTuning, WhatIsWrittenIsRead) {
  std::vector<TuningTable> all = exchange_tables();
  EXPECT_EQ(parse_tuning(to_json(all), "file"), all);
  for (const RowLayout layout : {RowLayout::expert_contiguous, RowLayout::rank_major}) {
    for (const RowCast cast : {RowCast::none, RowCast::fp8_pow2}) {
      ExchangeSize size = kDeepSeek;
      size.layout = layout;
      size.cast = cast;
      all = {exchanges(kTunedB200, 1, size)};
      EXPECT_EQ(parse_tuning(to_json(all), "file"), all);
    }
  }
}

TEST(ExchangeTuning, TheNearestTableServesAndSaysSo) {
  ExchangeSize wider = kDeepSeek, other = kDeepSeek;
  wider.hidden = 8192;
  other.local_experts = 24;
  const std::vector<TuningTable> all = {exchanges(kTunedB200, 8, kDeepSeek), exchanges(kTunedH200, 8, wider),
                                        exchanges(kTunedH200, 6, kDeepSeek), exchanges(kTunedH200, 8, kDeepSeek),
                                        exchanges(kTunedH200, 8, other)};
  const auto chosen = [&](const Processor& processor, int ranks, const ExchangeSize& size) {
    const TuningTable* const table = choose_exchange_tuning(all, processor, ranks, size).table;
    return table != nullptr ? table - all.data() : -1;
  };
  EXPECT_EQ(chosen(kTunedH200, 8, kDeepSeek), 3);
  EXPECT_EQ(chosen(kTunedH200, 8, wider), 1);
  EXPECT_EQ(chosen(kTunedH200, 8, other), 4);
  EXPECT_EQ(chosen(kTunedH100, 8, kDeepSeek), 3);  // of the same compute capability
  EXPECT_EQ(chosen(kTunedB200, 8, kDeepSeek), 0);
  EXPECT_EQ(chosen(kTunedB200, 6, kDeepSeek), 0);
  EXPECT_EQ(chosen(kTunedH200, 7, kDeepSeek), 3);  // rather for more ranks than for fewer
  EXPECT_EQ(chosen(kTunedH200, 5, kDeepSeek), 2);
  EXPECT_EQ(chosen(kTunedH200, 3, kDeepSeek), -1);  // twice as many are another kind of group
  EXPECT_EQ(chosen(kTunedH200, 16, kDeepSeek), -1);
  EXPECT_EQ(chosen({"CPU"}, 8, kDeepSeek), -1);
  const TuningChoice exact = choose_exchange_tuning(all, kTunedH200, 8, kDeepSeek);
  EXPECT_TRUE(exact.exact);
  EXPECT_EQ(exact.reason,
            "NVIDIA H200, 8 ranks (measured): 7168 columns, 32 experts on each rank, top 8, masked rows, cast fp8");
  ExchangeSize near = kDeepSeek;
  near.top_k = 9;
  const TuningChoice nearest = choose_exchange_tuning(all, kTunedH100, 8, near);
  EXPECT_FALSE(nearest.exact);
  EXPECT_EQ(nearest.reason,
            exact.reason +
                ", as there is no table for NVIDIA H100, 8 ranks: 7168 columns, 32 experts on each rank, "
                "top 9, masked rows, cast fp8");
}

// Another layout or cast takes no table, and neither does any number that is twice as large or half.
TEST(ExchangeTuning, ATableServesItsKindOfRowsAlone) {
  const std::vector<TuningTable> all = {exchanges(kTunedH200, 8, kDeepSeek)};
  const auto serves = [&](const ExchangeSize& size) {
    return choose_exchange_tuning(all, kTunedH200, 8, size).table != nullptr;
  };
  for (const auto value : {&ExchangeSize::hidden, &ExchangeSize::local_experts, &ExchangeSize::top_k}) {
    for (const bool twice : {false, true}) {
      ExchangeSize size = kDeepSeek;
      size.*value = twice ? size.*value * 2 : size.*value / 2;
      EXPECT_FALSE(serves(size));
      size.*value += twice ? -1u : 1u;
      EXPECT_TRUE(serves(size));
    }
  }
  for (const RowLayout layout : {RowLayout::expert_contiguous, RowLayout::rank_major, RowLayout::rank_compact}) {
    ExchangeSize size = kDeepSeek;
    size.layout = layout;
    EXPECT_FALSE(serves(size));
  }
  for (const RowCast cast : {RowCast::none, RowCast::fp8_ue8m0, RowCast::fp8_pow2}) {
    ExchangeSize size = kDeepSeek;
    size.cast = cast;
    EXPECT_FALSE(serves(size));
  }
  // Tables of other operations are not taken for one of exchanges, nor the other way round.
  EXPECT_EQ(choose_tuning(exchange_tables(), kTunedH200, 8).table->operation, TunedOperation::all_reduce);
  EXPECT_EQ(choose_exchange_tuning(std::vector<TuningTable>{exchange_tables()[0]}, kTunedH200, 8, {}).table, nullptr);
}

TEST(ExchangeTuning, EveryDifferenceIsInTheFingerprint) {
  const std::vector<TuningTable> all = exchange_tables();
  const auto differs = [&](auto change) {
    std::vector<TuningTable> other = all;
    change(other[1], other[1].exchange_steps[1]);
    EXPECT_NE(fingerprint_of(other), fingerprint_of(all));
  };
  differs([](TuningTable& table, ExchangeStep&) { table.ranks = 4; });
  for (const auto value : {&ExchangeSize::hidden, &ExchangeSize::local_experts, &ExchangeSize::top_k})
    differs([&](TuningTable& table, ExchangeStep&) { table.exchange.*value += 1; });
  differs([](TuningTable& table, ExchangeStep&) { table.exchange.layout = RowLayout::rank_major; });
  differs([](TuningTable& table, ExchangeStep&) { table.exchange.cast = RowCast::none; });
  differs([](TuningTable&, ExchangeStep& step) { step.up_to += 1; });
  differs([](TuningTable&, ExchangeStep& step) { step.path = RowPath::ring; });
  for (const auto half : {&ExchangeStep::dispatch, &ExchangeStep::combine}) {
    differs([&](TuningTable&, ExchangeStep& step) { (step.*half).blocks += 1; });
    differs([&](TuningTable&, ExchangeStep& step) { (step.*half).threads += 128; });
  }
}

TEST(ExchangeTuning, ErrorsNameFileKeyValueAndRange) {
  const std::string good = to_json(exchange_tables());
  const auto error = [&](const std::string& from, const std::string& to) {
    return test::error_of_changed_tuning(good, from, to);
  };
  const std::string step = "my.json: tables[1].steps[1].";
  EXPECT_EQ(error("\"up_to_tokens\": 512", "\"up_to_tokens\": 64"),
            step + "up_to_tokens: 64 is not a whole number between 65 and 1073741824");
  EXPECT_EQ(error("\"up_to_tokens\": 64, ", ""), "my.json: tables[1].steps[0].up_to_tokens: missing");
  EXPECT_EQ(error("\"up_to_tokens\": 512, \"path\": \"slots\"", "\"up_to_tokens\": 512, \"path\": \"automatic\""),
            step + "path: \"automatic\" is not one of slots, ring");
  // Slots do not come back, and rank-compact rows have none.
  EXPECT_EQ(error("\"up_to_tokens\": 64, \"path\": \"slots\"", "\"up_to_tokens\": 64, \"path\": \"ring\""),
            step + "path: \"slots\" is not one of ring");
  EXPECT_EQ(error("{\"path\": \"ring\"}", "{\"path\": \"slots\"}"),
            "my.json: tables[2].steps[0].path: \"slots\" is not one of ring");
  EXPECT_EQ(error("\"dispatch_blocks\": 33", "\"dispatch_blocks\": 1"),
            step + "dispatch_blocks: 1 is not a whole number between 2 and 256");
  EXPECT_EQ(error("\"combine_threads\": 128", "\"combine_threads\": 96"),
            step + "combine_threads: 96 is not a multiple of 128 between 128 and 512");
  EXPECT_EQ(error("\"dispatch_blocks\": 33", "\"send_num_sms\": 33"),
            step +
                "send_num_sms: 33 is not known; known are up_to_tokens, path, dispatch_blocks, dispatch_threads, "
                "combine_blocks, combine_threads");
  EXPECT_EQ(error("\"layout\": \"masked\"", "\"layout\": \"rows\""),
            "my.json: tables[1].layout: \"rows\" is not one of masked, contiguous, rank-major, rank-compact");
  EXPECT_EQ(error("\"cast\": \"fp8\"", "\"cast\": \"e5m2\""),
            "my.json: tables[1].cast: \"e5m2\" is not one of none, fp8, fp8-ue8m0, fp8-pow2");
  EXPECT_EQ(error("\"hidden\": 7168", "\"hidden\": 0"),
            "my.json: tables[1].hidden: 0 is not a whole number between 1 and 1048576");
  EXPECT_EQ(error("\"layout\": \"rank-compact\", \"cast\": \"fp8-ue8m0\"", "\"layout\": \"masked\", \"cast\": \"fp8\""),
            "my.json: tables[2].ranks: 8 is not the only table for NVIDIA H200 of this size");
  EXPECT_EQ(
      error("\"ranks\": 8,\n   \"operation\": \"moe_exchange\"", "\"ranks\": 0,\n   \"operation\": \"moe_exchange\""),
      "my.json: tables[1].ranks: 0 is not a whole number between 1 and 72");
}

// ------------------------------------------------------------------------------------------------------ its buffers

constexpr std::uint32_t kRanks = 2;
MoeExchangeArgs of_tokens(std::uint32_t tokens) {
  MoeExchangeArgs args = test::small_exchange();
  args.tokens = tokens;
  return args;
}
const std::vector<ExchangeStep> kUpTo100 = {{.up_to = 100}, {.path = RowPath::ring}};

TEST(ExchangeTuning, SlotsAreForTheTokensThatGoByThem) {
  const auto expect = [](const MoeExchangeArgs& args, const std::vector<ExchangeStep>& steps, std::uint32_t slot_tokens,
                         std::uint32_t places) {
    const MoeExchangeArgs made = with_tuning(kRanks, args, steps);
    EXPECT_EQ(slots(made), slot_tokens) << args.tokens;
    EXPECT_EQ(ring_rows(kRanks, made), places) << args.tokens;
  };
  expect(of_tokens(100), kUpTo100, 100, 0);  // all by slots: there is no ring
  expect(of_tokens(101), kUpTo100, 100, 128);
  expect(of_tokens(1024), kUpTo100, 100, 1024);  // halves and rounds serve as many tokens as by slots
  expect(of_tokens(4096), kUpTo100, 100, 2048);
  expect(of_tokens(33), {{.path = RowPath::ring}}, 0, 64);
  // A last step by slots says nothing of a ring's tokens: slots are for the usual ones, or for those of a step.
  expect(of_tokens(1024), {{}}, 1024, 0);
  expect(of_tokens(4096), {{}}, 128, 2048);
  expect(of_tokens(4096), {{.up_to = 300, .combine = {.blocks = 9}}, {}}, 300, 2048);
  expect(of_tokens(4096), {{.up_to = 3000}, {.path = RowPath::ring}}, 1024, 2048);  // as many as may have them
}

TEST(ExchangeTuning, TheCallersWayComesFirst) {
  const auto expect_unchanged = [](const MoeExchangeArgs& args) {
    const MoeExchangeArgs made = with_tuning(kRanks, args, kUpTo100), usual = with_tuning(kRanks, args, {});
    EXPECT_EQ(made.path, usual.path);
    EXPECT_EQ(slots(made), slots(usual));
    EXPECT_EQ(ring_rows(kRanks, made), ring_rows(kRanks, usual));
  };
  MoeExchangeArgs args = of_tokens(500);
  args.path = RowPath::slots;
  expect_unchanged(args);
  args.path = RowPath::ring;
  expect_unchanged(args);
  args.slot_tokens = 7;
  expect_unchanged(args);
  args = of_tokens(4096);
  args.slot_tokens = 7;
  expect_unchanged(args);
  args = of_tokens(500);
  args.layout = RowLayout::rank_compact;
  expect_unchanged(args);
  // More replicas than a ring serves.
  args = of_tokens(500);
  args.experts = kMostTallyWords + 1;
  expect_unchanged(args);
  args.experts = kMostTallyWords;
  EXPECT_EQ(with_tuning(kRanks, args, kUpTo100).path, RowPath::ring);
  // Places of a ring that the tokens ask for are the caller's.
  args = of_tokens(4096);
  args.ring_rows = 64;
  EXPECT_EQ(ring_rows(kRanks, with_tuning(kRanks, args, kUpTo100)), 64u);
}

}  // namespace
}  // namespace weft::detail
