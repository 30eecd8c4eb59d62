// LayerSchedule::automatic on CPU ranks: tables choose schedule, rounds and processors by the most tokens of a rank.
#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/layer/part_blocks.hpp"
#include "support/moe_layers.hpp"
#include "support/ranks.hpp"
#include "support/tuned_config.hpp"
#include "support/world.hpp"
#include "tuning/tuning.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

using detail::LayerStep;
using detail::TuningTable;
using PartNames = std::vector<std::string>;

constexpr std::uint32_t kLayerRanks = 2;

// A table for the layers of layers_of_every_kind(2)[0].
TuningTable layer_table_with(std::vector<LayerStep> steps) {
  return {.processor = {"CPU"},
          .ranks = kLayerRanks,
          .operation = detail::TunedOperation::moe_layer,
          .layer = {.hidden = 128, .intermediate = kLayerMiddle, .local_experts = 4, .top_k = 3},
          .origin = "measured",
          .layer_steps = std::move(steps)};
}

// Up to 2 tokens in uneven rounds, up to 4 plain, then combine in two rounds.
std::vector<LayerStep> three_steps() {
  return {{.up_to = 2,
           .schedule = LayerSchedule::rounds,
           .rounds = 3,
           .experts = {1, 2, 1},
           .sms = {.send = 16, .recv = 17, .combine_send = 18, .combine_recv = 19, .up = 100, .down = 101}},
          {.up_to = 4, .sms = {.up = 102}},
          {.schedule = LayerSchedule::combine_rounds, .rounds = 2}};
}

Config config_with_tables(const std::vector<TuningTable>& tables) {
  return with_tuning_file(smallest_buffers(), tables, testing::UnitTest::GetInstance()->current_test_info()->name());
}

// Its parts in their order, and what the GEMMs were told: "down 0 of 2 experts, 101 SMs".
PartNames parts_of(const CpuLayer& moe, MoeLayerCall call) {
  PartNames parts;
  call.observe = [&](const LayerPart& part) {
    if (part.begins) parts.push_back(std::string(name(part.which)) + " " + std::to_string(part.round));
  };
  for (GroupedGemm* const gemm : {&call.up, &call.down}) {
    *gemm = [&parts, make = *gemm](const ExpertGemm& of) {
      parts.back() += " of " + std::to_string(of.experts) + " experts, " + std::to_string(of.num_sms) + " SMs";
      make(of);
    };
  }
  moe.layer().run(call);
  return parts;
}

const PartNames kPlainParts = {"dispatch 0", "up 0 of 4 experts, 0 SMs", "activation 0", "down 0 of 4 experts, 0 SMs",
                               "combine 0"};

MoeLayerCall automatic_call(CpuLayer& moe, std::uint32_t most_tokens) {
  MoeLayerCall call = moe.call({LayerSchedule::automatic, {}});
  call.most_tokens = most_tokens;
  return call;
}

LayerCase layer_case_of(std::vector<std::uint32_t> tokens) {
  LayerCase of = layers_of_every_kind(kLayerRanks)[0][0];
  of.call.tokens = std::move(tokens);
  return of;
}

// Each step, its last number of tokens and the first of the next one; a rank with fewer tokens chooses as the others
// do. The bits are those of one part after the other.
TEST(LayerChoice, EachStepServesItsTokens) {
  const PartNames in_rounds = {"dispatch send 0",
                               "dispatch wait 0",
                               "up 0 of 1 experts, 100 SMs",
                               "activation 0",
                               "down 0 of 1 experts, 101 SMs",
                               "combine send 0",
                               "dispatch wait 1",
                               "up 1 of 2 experts, 100 SMs",
                               "activation 1",
                               "down 1 of 2 experts, 101 SMs",
                               "combine send 1",
                               "dispatch wait 2",
                               "up 2 of 1 experts, 100 SMs",
                               "activation 2",
                               "down 2 of 1 experts, 101 SMs",
                               "combine send 2",
                               "combine wait 0"};
  const PartNames plain = {"dispatch 0", "up 0 of 4 experts, 102 SMs", "activation 0", "down 0 of 4 experts, 0 SMs",
                           "combine 0"};
  const PartNames combined = {
      "dispatch 0",     "up 0 of 4 experts, 0 SMs",   "activation 0",   "down 0 of 2 experts, 0 SMs",
      "combine send 0", "down 1 of 2 experts, 0 SMs", "combine send 1", "combine wait 0"};
  const LayerCase of = layer_case_of({2, 1});
  const PreparedMoe p = prepare(of.call, kLayerRanks, 3);
  const auto body = [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    moe.layer().run(moe.call({LayerSchedule::plain, {}}));
    const Bytes wanted(moe.output().begin(), moe.output().end());
    // Without most_tokens it is the exchange's 6.
    for (const auto& [most, parts] :
         {std::pair{2u, &in_rounds}, {3u, &plain}, {4u, &plain}, {5u, &combined}, {0u, &combined}}) {
      moe.fill(p);
      EXPECT_EQ(parts_of(moe, automatic_call(moe, most)), *parts) << most;
      expect_bytes(moe.output(), wanted, "the output of automatic");
    }
  };
  expect_all_well(run_world(kLayerRanks, config_with_tables({layer_table_with(three_steps())}), body));
}

// Without a table, however the one round is given.
TEST(LayerChoice, OneRoundOfAllExpertsIsPlain) {
  const LayerCase of = layer_case_of({2});
  const PreparedMoe p = prepare(of.call, kLayerRanks, 3);
  expect_all_well(run_world(kLayerRanks, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    const std::uint32_t all = 4;
    MoeLayerCall call = automatic_call(moe, 0);
    call.rounds = {.count = 1, .experts = &all};
    EXPECT_EQ(parts_of(moe, call), kPlainParts);
  }));
}

// A table is for one processor, number of ranks and shape. Nothing else takes it.
TEST(LayerChoice, OtherLayersDoNotTakeATable) {
  const TuningTable right = layer_table_with({{.schedule = LayerSchedule::rounds, .rounds = 2}});
  std::vector<TuningTable> others(6, right);
  others[0].processor.name = "another CPU";
  others[1].ranks = kLayerRanks + 1;
  others[2].layer.hidden *= 2;
  others[3].layer.intermediate *= 2;
  others[4].layer.local_experts *= 2;
  others[5].layer.top_k += 1;
  const LayerCase of = layer_case_of({2});
  const PreparedMoe p = prepare(of.call, kLayerRanks, 3);
  const auto parts_with = [&](const std::vector<TuningTable>& tables, const PartNames& first, std::size_t parts) {
    expect_all_well(run_world(kLayerRanks, config_with_tables(tables), [&](Communicator& communicator, int rank) {
      const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
      CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
      const PartNames made = parts_of(moe, automatic_call(moe, 2));
      EXPECT_EQ(made.size(), parts);
      EXPECT_EQ(PartNames(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(first.size())), first);
    }));
  };
  parts_with(others, kPlainParts, kPlainParts.size());
  others.push_back(right);
  parts_with(others, {"dispatch send 0", "dispatch wait 0"}, 12);
}

// One exchange has both ways. A table for one way serves its calls, and one that names none serves the others.
TEST(LayerChoice, TablesAreByTheWayOfRows) {
  TuningTable by_ring = layer_table_with({{.up_to = 4, .schedule = LayerSchedule::rounds, .rounds = 3}, {}}),
              either = layer_table_with({{.up_to = 1}, {.schedule = LayerSchedule::combine_rounds, .rounds = 2}}),
              by_slots = layer_table_with({{.schedule = LayerSchedule::rounds, .rounds = 2}});
  by_ring.layer.path = RowPath::ring;
  by_slots.layer.path = RowPath::slots;
  LayerCase of = layers_of_every_kind(kLayerRanks)[5][0];
  of.call.args.slot_tokens = 2;
  of.call.args.layout = RowLayout::expert_masked;
  of.call.args.capacity = kLayerRanks * of.call.args.tokens * of.call.args.top_k;
  of.call.args.alignment = 1;
  of.call.tokens = {1};
  const PreparedMoe p = prepare(of.call, kLayerRanks, 3);
  const auto parts_with = [&](const std::vector<TuningTable>& tables, std::vector<std::size_t> parts) {
    expect_all_well(run_world(kLayerRanks, config_with_tables(tables), [&](Communicator& communicator, int rank) {
      const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
      CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
      std::vector<std::size_t> made;
      for (const std::uint32_t most : {1u, 2u, 3u, 4u, 5u})
        made.push_back(parts_of(moe, automatic_call(moe, most)).size());
      EXPECT_EQ(made, parts);
    }));
  };
  const std::size_t plain = kPlainParts.size(), combined = 8, two = 12, three = 17;
  parts_with({by_ring}, {plain, plain, three, three, plain});
  parts_with({by_ring, either}, {plain, combined, three, three, plain});
  parts_with({by_slots, either}, {two, two, combined, combined, combined});
  parts_with({by_slots, by_ring}, {two, two, three, three, plain});
}

// Ranks would not meet, if each chose by its own file.
TEST(LayerChoice, RanksUseRankZerosTable) {
  const std::vector<TuningTable> zeros = {layer_table_with({{.schedule = LayerSchedule::rounds, .rounds = 2}})};
  const std::vector<TuningTable> ones = {layer_table_with({{.schedule = LayerSchedule::rounds, .rounds = 3}})};
  const std::string stem = testing::TempDir() + "LayerChoice.of_rank_";
  std::ofstream(stem + "0.json") << detail::to_json(zeros);
  std::ofstream(stem + "1.json") << detail::to_json(ones);
  const LayerCase of = layer_case_of({3});
  const PreparedMoe p = prepare(of.call, kLayerRanks, 3);
  const UniqueId id = UniqueId::create();
  const auto errors = run_ranks(kLayerRanks, [&](int rank) {
    Config config = smallest_buffers();
    config.tuning_file = stem + std::to_string(rank) + ".json";
    const Communicator communicator = Communicator::from_id(id, rank, kLayerRanks, config);
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    EXPECT_EQ(parts_of(moe, automatic_call(moe, 3)).size(), 12u);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// A choice that an exchange would reject is plain: a ring with fewer places than tokens.
TEST(LayerChoice, ExchangesThatCannotDivideStayPlain) {
  LayerCase of = layer_case_of({2});
  MoeExchangeArgs& args = of.call.args;
  args.path = RowPath::ring;
  args.tokens = 40;
  args.ring_rows = 32;
  args.capacity = kLayerRanks * args.tokens * args.top_k;
  const PreparedMoe p = prepare(of.call, kLayerRanks, 3);
  const Config config = config_with_tables({layer_table_with({{.schedule = LayerSchedule::rounds, .rounds = 2}})});
  expect_all_well(run_world(kLayerRanks, config, [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    EXPECT_EQ(parts_of(moe, automatic_call(moe, 33)), kPlainParts);
    EXPECT_EQ(parts_of(moe, automatic_call(moe, 32)).size(), 12u);
    MoeExchangeArgs repeats = args;
    repeats.repeatable = true;
    const MoeExchange repeatable = MoeExchange::create(communicator, repeats);
    CpuLayer once(repeatable, of, p, static_cast<std::uint32_t>(rank));
    EXPECT_EQ(parts_of(once, automatic_call(once, 32)), kPlainParts);
    MoeLayerCall divided = once.call({LayerSchedule::combine_rounds, {}});
    divided.rounds.count = 2;
    // More often than it has handles: so nothing has been dispatched.
    for (int i = 0; i < 3; ++i) {
      expect_says(error_of([&] { once.layer().run(divided); }),
                  "rounds.count: 2 is not 1, and the exchange is repeatable");
    }
    EXPECT_EQ(parts_of(once, automatic_call(once, 32)), kPlainParts);
  }));
}

// Numbers of processors that a call gives stay; rounds are the table's alone.
TEST(LayerChoice, TheCallersNumbersComeFirst) {
  const LayerCase of = layer_case_of({2});
  const PreparedMoe p = prepare(of.call, kLayerRanks, 3);
  const auto body = [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    MoeLayerCall call = automatic_call(moe, 2);
    call.up_num_sms = 7;
    const PartNames parts = parts_of(moe, call);
    EXPECT_EQ(parts[2], "up 0 of 1 experts, 7 SMs");
    EXPECT_EQ(parts[4], "down 0 of 1 experts, 101 SMs");
  };
  expect_all_well(run_world(kLayerRanks, config_with_tables({layer_table_with(three_steps())}), body));
  expect_all_well(run_world(1, smallest_buffers(), [&](Communicator& communicator, int) {
    LayerCase alone = layers_of_every_kind(1)[0][0];
    const PreparedMoe prepared = prepare(alone.call, 1, 3);
    const MoeExchange exchange = MoeExchange::create(communicator, alone.call.args);
    CpuLayer moe(exchange, alone, prepared, 0);
    MoeLayerCall call = automatic_call(moe, 0);
    call.rounds.count = 2;
    expect_says(error_of([&] { moe.layer().run(call); }), "rounds.count: 2 is not 1, and the schedule is automatic");
  }));
}

// The step of its capture, and functions of its own.
TEST(LayerChoice, RecordingsKeepWhatTheTableChose) {
  const LayerCase of = layer_case_of({2, 1});
  const PreparedMoe p = prepare(of.call, kLayerRanks, 3);
  const auto body = [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    moe.layer().run(moe.call({LayerSchedule::plain, {}}));
    const Bytes wanted(moe.output().begin(), moe.output().end());
    std::vector<std::uint32_t> rounds;
    MoeLayerCall call = automatic_call(moe, 2);
    call.up = [&rounds, up = call.up](const ExpertGemm& gemm) { rounds.push_back(gemm.round), up(gemm); };
    const Recording recording = Recording::capture(communicator, [&] { moe.layer().run(call); });
    call.up = call.down = [](const ExpertGemm&) { throw std::runtime_error("not the recording's own function"); };
    moe.fill(p);
    recording.replay();
    EXPECT_EQ(rounds, (std::vector<std::uint32_t>{0, 1, 2}));
    expect_bytes(moe.output(), wanted, "a replay of automatic");
  };
  expect_all_well(run_world(kLayerRanks, config_with_tables({layer_table_with(three_steps())}), body));
}

TEST(LayerChoice, TheActivationKeepsToTheProcessorsOfTheUpGemm) {
  MoeLayerCall call;
  EXPECT_EQ(detail::blocks_of_activation(call, 132), 132);
  call.up_num_sms = 100;
  EXPECT_EQ(detail::blocks_of_activation(call, 132), 100);
  EXPECT_EQ(detail::blocks_of_activation(call, 66), 66);
}

TEST(LayerChoice, AutomaticIsTheDefault) {
  EXPECT_EQ(MoeLayerCall{}.schedule, LayerSchedule::automatic);
}

}  // namespace
}  // namespace weft::test
