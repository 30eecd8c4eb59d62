// weft tune: the search for layers of experts, and the program as a whole on CPU ranks.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/layer_figures.hpp"
#include "cli/run.hpp"
#include "cli/tune_tokens.hpp"
#include "support/ranks.hpp"
#include "tune/layer_search.hpp"
#include "tuning/layer_file.hpp"

namespace weft::cli {
namespace {

using detail::LayerStep;

const LayerWay kPlain{}, kRounds{.schedule = LayerSchedule::rounds, .rounds = 2},
    kCombine{.schedule = LayerSchedule::combine_rounds, .rounds = 4, .sms = 16};

// Every division is of all experts, and no way is tried twice.
TEST(TuneLayers, WaysAreOfEverySchedule) {
  for (const std::uint32_t local : {1u, 2u, 4u, 5u, 32u}) {
    for (const int processors : {0, 132}) {
      std::set<std::string> steps;
      const std::vector<LayerWay> ways = layer_ways(local, processors, false);
      for (const LayerWay& way : ways) {
        steps.insert(detail::to_json(step_of(way, processors)));
        EXPECT_LE(way.rounds, local);
        std::uint32_t experts = 0;
        for (const std::uint32_t of_round : way.experts) experts += of_round;
        EXPECT_TRUE(way.experts.empty() || (experts == local && way.experts.size() == way.rounds));
        EXPECT_TRUE(processors != 0 || way.sms == 0);
      }
      EXPECT_EQ(steps.size(), ways.size());
      EXPECT_EQ(ways.front(), kPlain);
      // Plain, and two schedules by three divisions, each with three numbers of processors on a GPU.
      if (local == 32) {
        EXPECT_EQ(ways.size(), processors == 0 ? 7u : 19u);
      }
      EXPECT_LE(layer_ways(local, processors, true).size(), ways.size());
    }
  }
}

// A way that leaves processors to the GEMMs says so.
TEST(TuneLayers, StepsNameTheProcessorsOfEachPart) {
  EXPECT_EQ(step_of(kRounds, 132), (LayerStep{.schedule = LayerSchedule::rounds, .rounds = 2}));
  LayerWay way = kRounds;
  way.sms = 16;
  EXPECT_EQ(step_of(way, 132).sms,
            (detail::LayerSms{.send = 16, .recv = 16, .combine_send = 16, .up = 100, .down = 100}));
  EXPECT_EQ(step_of(kCombine, 132).sms, (detail::LayerSms{.combine_send = 16, .down = 116}));
}

LayerQuery query(LayerStep present) {
  return {.tokens = 64, .present = std::move(present), .ways = {kPlain, kRounds, kCombine}, .processors = 132};
}

TEST(TuneLayers, TheFastestWinsInTurns) {
  std::set<int> turns;
  const auto time = [&](const LayerWay* way, int samples, int turn) {
    EXPECT_EQ(samples, turn == 0 ? 7 : 3);
    turns.insert(turn);
    return way == nullptr ? 12.0 : *way == kCombine ? 8.0 : *way == kRounds ? 9.0 : 10.0;
  };
  const TunedLayer tuned = tune_layer(query({}), time);
  EXPECT_EQ(tuned.step, step_of(kCombine, 132));
  EXPECT_EQ(tuned.time.us, 8.0);
  EXPECT_EQ(tuned.before.us, 12.0);
  EXPECT_FALSE(tuned.as_before);
  EXPECT_EQ(turns.size(), 8u);
}

// The present choice stays if a lucky time does not come again, and if the gain is small.
TEST(TuneLayers, ThePresentChoiceStaysWithoutAClearGain) {
  const LayerStep present = step_of(kRounds, 132);
  for (const double again : {10.0, 9.9}) {
    const TunedLayer tuned = tune_layer(query(present), [&](const LayerWay* way, int, int turn) {
      if (turn == 0) return *way == kCombine ? 5.0 : 10.0;
      return way == nullptr ? 10.0 : again;
    });
    EXPECT_EQ(tuned.step, present);
    EXPECT_TRUE(tuned.as_before);
    EXPECT_EQ(tuned.time.us, 10.0);
  }
  // It is the fastest itself: there are no turns.
  const TunedLayer tuned = tune_layer(query(present), [&](const LayerWay* way, int, int turn) {
    EXPECT_EQ(turn, 0);
    return *way == kRounds ? 5.0 : 10.0;
  });
  EXPECT_EQ(tuned.step, present);
  EXPECT_TRUE(tuned.as_before);
}

// Waits for rows and sends of sums get numbers of their own, and the GEMMs have what is left.
TEST(TuneLayers, WaysApartAreOfOtherNumbers) {
  LayerWay way = kRounds;
  way.sms = 16;
  way.path = RowPath::ring;
  std::set<std::string> steps{detail::to_json(step_of(way, 132))};
  const std::vector<LayerWay> apart = ways_apart(way, 132);
  EXPECT_EQ(apart.size(), 8u);  // of 8, 16 and 32, without the way's own
  for (const LayerWay& one : apart) {
    const detail::LayerSms sms = step_of(one, 132).sms;
    EXPECT_TRUE(steps.insert(detail::to_json(step_of(one, 132))).second);
    EXPECT_EQ(sms.send, sms.recv);
    EXPECT_EQ(sms.combine_recv, 0);
    EXPECT_EQ(sms.recv + sms.combine_send + sms.up, 132);
    EXPECT_EQ(sms.up, sms.down);
    EXPECT_EQ(one.path, RowPath::ring);
    EXPECT_EQ(one.division(), way.division());
  }
  EXPECT_EQ(ways_apart(way, 64).size(), 3u);
  EXPECT_TRUE(ways_apart(way, 0).empty());
}

TEST(TuneLayers, NumbersApartWinIfTheyAreFaster) {
  LayerWay way = kRounds;
  way.sms = 16;
  LayerQuery of = query({});
  of.ways = {kPlain, kRounds, way, kCombine};
  const auto time_with = [&](double rounds, int& apart) {
    return [&apart, rounds](const LayerWay* one, int, int) {
      if (one == nullptr) return 12.0;
      if (!one->numbers) return one->sms == 16 && one->schedule == LayerSchedule::rounds ? rounds : 10.0;
      ++apart;
      return one->numbers->recv == 8 && one->numbers->combine_send == 32 ? 7.0 : 9.0;
    };
  };
  int apart = 0;
  const TunedLayer tuned = tune_layer(of, time_with(9.5, apart));
  EXPECT_EQ(tuned.step.schedule, LayerSchedule::rounds);
  EXPECT_EQ(tuned.step.sms, (detail::LayerSms{.send = 8, .recv = 8, .combine_send = 32, .up = 92, .down = 92}));
  EXPECT_EQ(in_words(tuned.step), "rounds, 2 rounds, 8 SMs for rows and 32 for sums");
  // Slower rounds whose numbers may still win, ones that may not, and a search that shall be quick.
  apart = 0;
  EXPECT_EQ(tune_layer(of, time_with(12.5, apart)).time.us, 7.0);
  EXPECT_NE(apart, 0);
  apart = 0;
  EXPECT_EQ(tune_layer(of, time_with(12.6, apart)).time.us, 10.0);
  of.apart = false;
  EXPECT_EQ(tune_layer(of, time_with(9.5, apart)).time.us, 9.5);
  EXPECT_EQ(apart, 0);
}

// As a table's step serves a call.
TEST(TuneLayers, AStepIsAWayAgain) {
  LayerStep step = step_of(kCombine, 132);
  EXPECT_EQ(step_of(way_of(step, RowPath::ring, 64, 132), 132), step);
  EXPECT_EQ(way_of(step, RowPath::ring, 64, 132).path, RowPath::ring);
  step = {.schedule = LayerSchedule::rounds,
          .rounds = 3,
          .experts = {1, 2, 1},
          .sms = {.send = 90, .recv = 91, .combine_send = 92, .combine_recv = 93, .up = 200, .down = 100}};
  EXPECT_EQ(way_of(step, RowPath::slots, 64, 132).division(), (LayerRounds{3, {1, 2, 1}}));
  EXPECT_EQ(step_of(way_of(step, RowPath::slots, 64, 132), 132).sms,
            (detail::LayerSms{.send = 64, .recv = 64, .combine_send = 64, .combine_recv = 64, .up = 132, .down = 100}));
}

LayerStep step(std::uint32_t up_to, const LayerWay& way) {
  LayerStep made = step_of(way, 132);
  made.up_to = up_to;
  return made;
}
TunedLayer tuned(std::uint32_t tokens, const LayerWay& way) {
  return {.tokens = tokens, .step = step_of(way, 132)};
}

std::vector<LayerStep> steps_of_layers(const std::vector<TunedLayer>& all, std::span<const LayerStep> base) {
  return token_steps_of<LayerStep>(all, base);
}

// Fewer tokens than the least that was measured keep their steps, and so do more than the most.
TEST(TuneLayers, StepsEndBetweenWhatWasMeasured) {
  const std::vector<LayerStep> plain(1), base = {step(10, kCombine), step(500, kPlain), step(UINT32_MAX, kRounds)};
  using Steps = std::vector<LayerStep>;
  EXPECT_EQ(steps_of_layers({tuned(1, kPlain), tuned(64, kRounds), tuned(128, kRounds)}, plain),
            (Steps{step(32, kPlain), step(128, kRounds), step(UINT32_MAX, kPlain)}));
  EXPECT_EQ(steps_of_layers({tuned(1, kPlain), tuned(64, kPlain)}, plain), plain);
  EXPECT_EQ(steps_of_layers({tuned(64, kRounds)}, plain),
            (Steps{step(63, kPlain), step(64, kRounds), step(UINT32_MAX, kPlain)}));
  EXPECT_EQ(steps_of_layers({tuned(64, kRounds)}, base),
            (Steps{step(10, kCombine), step(63, kPlain), step(64, kRounds), step(500, kPlain), base[2]}));
  EXPECT_EQ(steps_of_layers({tuned(11, kRounds), tuned(600, kPlain)}, base),
            (Steps{step(10, kCombine), step(256, kRounds), step(600, kPlain), base[2]}));
  EXPECT_EQ(steps_of_layers({tuned(4, kPlain)}, base),
            (Steps{step(3, kCombine), step(4, kPlain), step(10, kCombine), step(500, kPlain), base[2]}));
}

// ------------------------------------------------------------------------------------------------------- program

class TuneLayerProgram : public TuneTokensProgram {
 protected:
  TuneLayerProgram() : TuneTokensProgram({"layer", "moe_layer", "1,4", {1, 4}, 1, {"slots", "ring"}}) {}
  void begin(const Time& us) const {
    std::vector<std::string> ways{""};
    for (const LayerWay& way : layer_ways(4, 0, true)) ways.push_back(detail::to_json(step_of(way, 0)));
    TuneTokensProgram::begin(ways, us);
  }
};

// By real times, so any choice is right.
TEST_F(TuneLayerProgram, WritesATable) {
  const auto result = run(tune());
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  EXPECT_EQ(result.err, "");
  EXPECT_FALSE(std::filesystem::exists(state_));
  const auto tables = detail::read_tuning(table_);
  ASSERT_EQ(tables.size(), 2u);
  const auto info = run({"info", "--device", "cpu", "--ranks", "2", "--tuning", table_});
  detail::LayerSize size{.hidden = 128, .intermediate = 128, .local_experts = 4, .top_k = 2};
  for (const std::size_t i : {0u, 1u}) {
    EXPECT_EQ(tables[i].operation, detail::TunedOperation::moe_layer);
    EXPECT_EQ(tables[i].processor.name, "CPU");
    EXPECT_EQ(tables[i].ranks, 2);
    size.path = i == 0 ? RowPath::slots : RowPath::ring;
    EXPECT_EQ(tables[i].layer, size);
    const std::string of =
        "128 and 128 columns, 4 experts on each rank, top 2, rows by " + std::string(name(size.path));
    EXPECT_NE(result.out.find("layer of experts, " + of + "\n"), std::string::npos) << result.out;
    EXPECT_NE(info.out.find("Its layers of experts are tuned by: CPU, 2 ranks (measured): " + of), std::string::npos)
        << info.out;
  }
  EXPECT_EQ(info.out.find("is not used"), std::string::npos) << info.out;
  const auto other = run({"info", "--device", "cpu", "--ranks", "3", "--tuning", table_});
  EXPECT_EQ(other.out.find("Its layers"), std::string::npos) << other.out;
  EXPECT_NE(other.out.find("is not used"), std::string::npos) << other.out;
}

// The continued run uses the kept times, odd as they are, and gives each number of tokens its fastest way. Then a layer
// of the bench that leaves its schedule to the table runs so.
TEST_F(TuneLayerProgram, GoesOnAfterAnInterruptionAndTheBenchUsesItsTable) {
  // By the ring all tokens have what few have by slots.
  begin([](const std::string& way, std::uint32_t tokens, const std::string& path) {
    const bool combine = tokens == 1 || path == "ring";
    return way.starts_with(combine ? R"({"schedule": "combine-rounds")" : R"({"schedule": "rounds")") ? 0.5 : 1.0;
  });
  // Tables of other layers stay.
  detail::TuningTable other{.processor = {"CPU"},
                            .ranks = 2,
                            .operation = detail::TunedOperation::moe_layer,
                            .layer = {.hidden = 256, .intermediate = 128, .local_experts = 4, .top_k = 2},
                            .origin = "measured",
                            .layer_steps = {{.up_to = 7}, {.schedule = LayerSchedule::rounds, .rounds = 3}}};
  std::ofstream(table_) << detail::to_json({other});
  const auto result = run(tune());
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("continues with"), std::string::npos) << result.err;
  const auto tables = detail::read_tuning(table_);
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[0], other);
  EXPECT_EQ(tables[2].layer.path, RowPath::ring);
  EXPECT_EQ(tables[2].layer_steps,
            (std::vector<LayerStep>{{.up_to = 4, .schedule = LayerSchedule::combine_rounds, .rounds = 2}, {}}));
  EXPECT_EQ(tables[1].layer_steps,
            (std::vector<LayerStep>{{.up_to = 2, .schedule = LayerSchedule::combine_rounds, .rounds = 2},
                                    {.up_to = 4, .schedule = LayerSchedule::rounds, .rounds = 2},
                                    {}}));
  EXPECT_NE(result.out.find("combine-rounds, 2 rounds  0.50 (0.50…0.50)  1.00 (1.00…1.00)  2.00\n"), std::string::npos)
      << result.out;
  const auto chosen_by = [&](const std::string& path) {
    const auto bench =
        run({"bench",     "moe-layer", "--config", config_, "--device", "cpu", "--ranks",  "2",    "--tokens", "1,4",
             "--samples", "1",         "--rounds", "2",     "--path",   path,  "--tuning", table_, "--json",   "-"});
    EXPECT_EQ(bench.code, 0) << bench.err;
    std::map<int, std::string> chosen;
    const auto report = nlohmann::json::parse(bench.out);
    for (const auto& point : report.at("points"))
      if (point.at("schedule") == "automatic") {
        EXPECT_EQ(point.at("verdict"), "ok");
        chosen[point.at("tokens")] = point.at("chosen");
      }
    return chosen;
  };
  const std::string combine = "combine-rounds, 2 rounds";
  EXPECT_EQ(chosen_by("slots"), (std::map<int, std::string>{{1, combine}, {4, "rounds, 2 rounds"}}));
  EXPECT_EQ(chosen_by("ring"), (std::map<int, std::string>{{1, combine}, {4, combine}}));
}

// A rank's share of the work of four ranks makes the table of four.
TEST_F(TuneLayerProgram, EmulatesALargerParallelism) {
  const auto result = run(tune({"--emulate-ep", "4", "--path", "ring"}));
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  const auto tables = detail::read_tuning(table_);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].ranks, 4);
  EXPECT_EQ(
      tables[0].layer,
      (detail::LayerSize{.hidden = 128, .intermediate = 128, .local_experts = 2, .top_k = 2, .path = RowPath::ring}));
  EXPECT_TRUE(tables[0].note.ends_with(", 4 ranks emulated on 2")) << tables[0].note;
  EXPECT_NE(result.out.find("top 2, rows by ring, 4 ranks emulated on 2\n"), std::string::npos) << result.out;
  const auto info = run({"info", "--device", "cpu", "--ranks", "4", "--tuning", table_});
  EXPECT_NE(info.out.find("Its layers of experts are tuned by: CPU, 4 ranks"), std::string::npos) << info.out;
}

// Steps of a table for as many ranks as are emulated stay, if they are for more tokens than were measured.
TEST_F(TuneLayerProgram, AnEmulatedTableIsTunedAgain) {
  const detail::TuningTable present{
      .processor = {"CPU"},
      .ranks = 4,
      .operation = detail::TunedOperation::moe_layer,
      .layer = {.hidden = 128, .intermediate = 128, .local_experts = 2, .top_k = 2, .path = RowPath::slots},
      .origin = "measured",
      .layer_steps = {{.up_to = 2}, {.schedule = LayerSchedule::rounds, .rounds = 2, .experts = {2, 0}}}};
  std::ofstream(table_) << detail::to_json({present});
  const auto result = run(tune({"--emulate-ep", "4", "--path", "slots"}));
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  const auto tables = detail::read_tuning(table_);
  ASSERT_EQ(tables.size(), 1u);
  // Calls of more tokens than were measured keep their step.
  EXPECT_EQ(tables[0].layer_steps.back(), present.layer_steps.back());
}

TEST_F(TuneLayerProgram, SaysWhereNothingChanged) {
  begin([](const std::string&, std::uint32_t, const std::string&) { return 1.0; });
  const auto result = run(tune());
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("No schedule is faster than the present one"), std::string::npos) << result.out;
  const auto tables = detail::read_tuning(table_);
  ASSERT_EQ(tables.size(), 2u);
  for (const detail::TuningTable& table : tables) EXPECT_EQ(table.layer_steps, std::vector<LayerStep>(1));
}

TEST_F(TuneLayerProgram, EndsWhenItsTimeIsUpAndGoesOn) {
  const std::vector<std::string> arguments = tune({"--seconds", "0.000001", "--path", "slots"});
  const auto first = run(arguments);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.out.find("were over: moe_layer of 4 tokens by slots.\n"), std::string::npos) << first.out;
  EXPECT_TRUE(std::filesystem::exists(state_));
  const auto second = run(arguments);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_NE(second.err.find("continues with"), std::string::npos) << second.err;
  EXPECT_EQ(second.out.find("were over"), std::string::npos) << second.out;
  EXPECT_FALSE(std::filesystem::exists(state_));
}

TEST_F(TuneLayerProgram, ImpossibleOnesAreRejected) {
  const auto rejected = [&](const std::vector<std::string>& arguments, const char* says) {
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  };
  rejected({"tune", "--device", "cpu", "--operation", "layer", "--output", table_},
           "--model or --config must say which");
  rejected({"tune", "--device", "cpu", "--operation", "norm", "--config", config_, "--output", table_},
           "are for layers and exchanges, and --operation is norm");
  rejected(tune({"--intermediate", "64"}), "asks for multiples of 128");
  rejected(tune({"--emulate-ep", "1"}), "--emulate-ep 1 is less than the 2 ranks");
  rejected({"tune", "--device", "cpu", "--ranks", "2", "--config", config_, "--emulate-ep", "4", "--output", table_},
           "--emulate-ep: is for layers alone, and --operation is all");
  rejected(
      {"tune", "--device", "cpu", "--operation", "exchange", "--config", config_, "--path", "ring", "--output", table_},
      "--path: is for layers, and --operation is exchange");
  rejected({"tune", "--device", "cpu", "--ranks", "2", "--operation", "layer", "--config", config_, "--tokens", "1024",
            "--emulate-ep", "4", "--path", "slots", "--output", table_},
           "--path slots: rows for that many tokens have none");
  rejected(
      {"tune", "--device", "cpu", "--ranks", "2", "--operation", "layer", "--model", "deepseek-v3", "--output", table_},
      "CPU ranks multiply in plain loops");
  EXPECT_FALSE(std::filesystem::exists(table_));
}

}  // namespace
}  // namespace weft::cli
