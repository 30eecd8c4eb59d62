// weft tune: the search for exchanges of experts, and the program as a whole on CPU ranks.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/run.hpp"
#include "cli/tune_tokens.hpp"
#include "support/ranks.hpp"
#include "tune/exchange_search.hpp"
#include "tuning/exchange_file.hpp"

namespace weft::cli {
namespace {

using detail::ExchangeStep;

const ExchangeStep kSlots{}, kRing{.path = RowPath::ring};

ExchangeStep up_to(std::uint32_t tokens, ExchangeStep step) {
  step.up_to = tokens;
  return step;
}

ExchangeQuery query_of(const ExchangeStep& present, std::vector<int> blocks = {}) {
  return {.tokens = 64,
          .present = present,
          .paths = {RowPath::slots, RowPath::ring},
          .grids = {.algorithms = {}, .blocks = std::move(blocks), .threads = {128, 512}, .samples = 7}};
}

TEST(TuneExchange, TheFastestWayWinsInTurns) {
  std::set<int> turns;
  const TunedExchange tuned = tune_exchange(query_of(kSlots), [&](const ExchangeStep* step, int samples, int turn) {
    EXPECT_EQ(samples, turn == 0 ? 21 : 3);
    turns.insert(turn);
    return step == nullptr ? 12.0 : *step == kRing ? 8.0 : 10.0;
  });
  EXPECT_EQ(tuned.step, kRing);
  EXPECT_EQ(tuned.time.us, 8.0);
  EXPECT_EQ(tuned.before.us, 12.0);
  EXPECT_FALSE(tuned.as_before);
  EXPECT_EQ(turns.size(), 8u);
}

// Each half has the grid that is fastest for both together; a way far behind gets none.
TEST(TuneExchange, EachHalfGetsItsOwnGrid) {
  std::set<std::string> tried;
  const TunedExchange tuned = tune_exchange(query_of(kRing, {17, 65}), [&](const ExchangeStep* step, int, int) {
    if (step == nullptr) return 20.0;
    tried.insert(detail::to_json(*step));
    double us = step->path == RowPath::ring ? 20.0 : 10.0;
    if (step->dispatch == detail::StepGrid{.blocks = 65, .threads = 128}) us -= 2;
    if (step->combine == detail::StepGrid{.blocks = 17, .threads = 512}) us -= 1;
    return us;
  });
  EXPECT_EQ(tuned.step,
            (ExchangeStep{.dispatch = {.blocks = 65, .threads = 128}, .combine = {.blocks = 17, .threads = 512}}));
  EXPECT_EQ(tuned.time.us, 7.0);
  EXPECT_EQ(tried.size(), 2u + 4u + 4u);
}

// The present choice stays if a lucky time does not come again, and if the gain is small.
TEST(TuneExchange, ThePresentChoiceStaysWithoutAClearGain) {
  for (const double again : {10.0, 9.9}) {
    const TunedExchange tuned = tune_exchange(query_of(kSlots), [&](const ExchangeStep* step, int, int turn) {
      if (turn == 0) return *step == kRing ? 5.0 : 10.0;
      return step == nullptr ? 10.0 : again;
    });
    EXPECT_EQ(tuned.step, kSlots);
    EXPECT_TRUE(tuned.as_before);
  }
}

TunedExchange tuned_for(std::uint32_t tokens, const ExchangeStep& step, bool measured = true) {
  return {.tokens = tokens, .step = step, .time = {.us = 1, .samples = measured ? 1u : 0u}};
}

using ExchangeStepList = std::vector<ExchangeStep>;

TEST(TuneExchange, SlotsComeFirst) {
  const ExchangeStep grid{.combine = {.blocks = 17, .threads = 128}};
  const ExchangeStepList slots = {kSlots}, both = {up_to(128, kSlots), kRing};
  EXPECT_EQ(exchange_steps_of({tuned_for(8, kSlots), tuned_for(128, grid), tuned_for(1024, kRing)}, slots),
            (ExchangeStepList{up_to(64, kSlots), up_to(576, grid), kRing}));
  // The last that was measured goes by the ring, and so do all that are larger.
  EXPECT_EQ(exchange_steps_of({tuned_for(8, kRing)}, slots), (ExchangeStepList{up_to(7, kSlots), kRing}));
  // It goes by slots, and so do all that are smaller.
  EXPECT_EQ(exchange_steps_of({tuned_for(512, kSlots)}, both), (ExchangeStepList{up_to(512, kSlots), kRing}));
  EXPECT_EQ(exchange_steps_of({tuned_for(8, kSlots), tuned_for(128, kSlots)}, slots), slots);
  // One of three disagrees, and loses its grid.
  const ExchangeStep ring_grid{.path = RowPath::ring, .dispatch = {.blocks = 17, .threads = 128}};
  EXPECT_EQ(exchange_steps_of({tuned_for(8, ring_grid), tuned_for(64, kSlots), tuned_for(128, kSlots)}, slots), slots);
  // Tokens that are left yield to a measured one.
  EXPECT_EQ(
      exchange_steps_of({tuned_for(8, kRing), tuned_for(64, kSlots, false), tuned_for(128, kSlots, false)}, slots),
      (ExchangeStepList{up_to(7, kSlots), kRing}));
}

// ------------------------------------------------------------------------------------------------------- program

class TuneExchangeProgram : public TuneTokensProgram {
 protected:
  TuneExchangeProgram() : TuneTokensProgram({"exchange", "moe_exchange", "2,40", {2, 40}, 3}) {}
  void begin(const std::function<double(const std::string& way, std::uint32_t tokens)>& us) const {
    TuneTokensProgram::begin(
        {"", detail::to_json(kSlots), detail::to_json(kRing)},
        [&](const std::string& way, std::uint32_t tokens, const std::string&) { return us(way, tokens); });
  }
  nlohmann::json bench(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"bench", "moe",      "--config", config_,     "--device", "cpu",    "--ranks",
                                 "2",     "--tokens", "2,40",     "--samples", "1",        "--json", "-"};
    all.insert(all.end(), more.begin(), more.end());
    const auto result = run(all);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }
};

// By real times, so any choice is right.
TEST_F(TuneExchangeProgram, WritesATable) {
  const auto result = run(tune({"--layout", "contiguous", "--dispatch", "bf16"}));
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  EXPECT_EQ(result.err, "");
  EXPECT_FALSE(std::filesystem::exists(state_));
  const auto tables = detail::read_tuning(table_);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].operation, detail::TunedOperation::moe_exchange);
  EXPECT_EQ(tables[0].processor.name, "CPU");
  EXPECT_EQ(tables[0].ranks, 2);
  EXPECT_EQ(tables[0].exchange, (detail::ExchangeSize{.hidden = 128,
                                                      .local_experts = 4,
                                                      .top_k = 2,
                                                      .layout = RowLayout::expert_contiguous,
                                                      .cast = RowCast::none}));
  const std::string words = "CPU, 2 ranks (measured): 128 columns, 4 experts on each rank, top 2, contiguous rows";
  EXPECT_NE(result.out.find("128 columns, 4 experts on each rank, top 2, contiguous rows"), std::string::npos)
      << result.out;
  const auto info = run({"info", "--device", "cpu", "--ranks", "2", "--tuning", table_});
  EXPECT_NE(info.out.find("Its dispatches and combines are tuned by: " + words + "\n"), std::string::npos) << info.out;
  EXPECT_EQ(info.out.find("is not used"), std::string::npos) << info.out;
  const auto near = run({"info", "--device", "cpu", "--ranks", "3", "--tuning", table_});
  EXPECT_NE(near.out.find(words + ", as there is no table for CPU, 3 ranks: "), std::string::npos) << near.out;
  const auto far = run({"info", "--device", "cpu", "--ranks", "4", "--tuning", table_});
  EXPECT_EQ(far.out.find("Its dispatches"), std::string::npos) << far.out;
  EXPECT_NE(far.out.find("is not used"), std::string::npos) << far.out;
}

// The continued run uses the kept times, odd as they are, and gives each number of tokens its fastest way. Then the
// bench's exchange goes so, and its buffers are for both ways.
TEST_F(TuneExchangeProgram, GoesOnAfterAnInterruptionAndTheBenchUsesItsTable) {
  begin([](const std::string& way, std::uint32_t tokens) {
    return way.find(tokens == 2 ? "slots" : "ring") != std::string::npos ? 0.5 : 1.0;
  });
  const auto result = run(tune());
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("continues with"), std::string::npos) << result.err;
  EXPECT_EQ(detail::read_tuning(table_)[0].exchange_steps, (ExchangeStepList{up_to(20, kSlots), kRing}));
  EXPECT_NE(result.out.find("ring   0.50 (0.50…0.50)  1.00 (1.00…1.00)  2.00\n"), std::string::npos) << result.out;
  const nlohmann::json tuned = bench({"--tuning", table_}), usual = bench({});
  std::map<int, std::string> chosen;
  for (const auto& point : tuned.at("points")) {
    EXPECT_EQ(point.at("verdict"), "ok");
    if (point.at("contender") == "automatic") chosen[point.at("tokens")] = point.at("chosen");
  }
  EXPECT_EQ(chosen, (std::map<int, std::string>{{2, "slots"}, {40, "ring"}}));
  MoeExchangeArgs args{.tokens = 40, .hidden = 128, .experts = 8, .top_k = 2, .cast = RowCast::fp8};
  EXPECT_EQ(usual.at("memory").at("window_bytes"), moe_exchange_memory(2, args).window);
  args.path = RowPath::ring;
  args.slot_tokens = 20;
  args.ring_rows = 64;
  EXPECT_EQ(tuned.at("memory").at("window_bytes"), moe_exchange_memory(2, args).window);
  for (const auto& point : usual.at("points")) EXPECT_FALSE(point.contains("chosen"));
}

TEST_F(TuneExchangeProgram, SaysWhereNothingChanged) {
  begin([](const std::string&, std::uint32_t) { return 1.0; });
  const auto result = run(tune());
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("No way is faster than the present one"), std::string::npos) << result.out;
  EXPECT_EQ(detail::read_tuning(table_)[0].exchange_steps, ExchangeStepList(1));
}

// The ring would be faster for few tokens alone: they go by slots all the same, and the program says so.
TEST_F(TuneExchangeProgram, SaysWhichChoiceYields) {
  begin([](const std::string& way, std::uint32_t tokens) {
    return tokens == 2 && way.find("ring") != std::string::npos ? 0.5 : 1.0;
  });
  const auto result = run(tune());
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(detail::read_tuning(table_)[0].exchange_steps, ExchangeStepList(1));
  EXPECT_NE(result.out.find("2 tokens go by slots all the same"), std::string::npos) << result.out;
}

TEST_F(TuneExchangeProgram, EndsWhenItsTimeIsUpAndGoesOn) {
  const std::vector<std::string> arguments = tune({"--seconds", "0.000001"});
  const auto first = run(arguments);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.out.find("were over: moe_exchange of 40 tokens.\n"), std::string::npos) << first.out;
  EXPECT_TRUE(std::filesystem::exists(state_));
  const auto second = run(arguments);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_NE(second.err.find("continues with"), std::string::npos) << second.err;
  EXPECT_EQ(second.out.find("were over"), std::string::npos) << second.out;
  EXPECT_FALSE(std::filesystem::exists(state_));
}

TEST_F(TuneExchangeProgram, ImpossibleOnesAreRejected) {
  const auto rejected = [&](const std::vector<std::string>& arguments, const char* says) {
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  };
  rejected({"tune", "--device", "cpu", "--operation", "exchange", "--output", table_},
           "--operation exchange: --model or --config must say which");
  rejected({"tune", "--device", "cpu", "--layout", "contiguous", "--output", table_},
           "are for layers and exchanges, and no --model");
  rejected(tune({"--intermediate", "64"}), "--intermediate: is for layers, and --operation is exchange");
  std::vector<std::string> layer = tune({"--layout", "rank-major"});
  *(std::ranges::find(layer, "exchange")) = "layer";
  rejected(layer, "--layout, --dispatch: are for exchanges, and --operation is layer");
  EXPECT_FALSE(std::filesystem::exists(table_));
}

}  // namespace
}  // namespace weft::cli
