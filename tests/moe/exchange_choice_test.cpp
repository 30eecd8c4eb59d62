// RowPath::automatic with a tuning table on CPU ranks: the way and the grids of calls, by the most tokens of a rank.
#include "ops/moe/exchange_choice.hpp"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "ops/moe/exchange_state.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"
#include "support/tuned_config.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using detail::ExchangeState;
using detail::ExchangeStep;
using detail::InFlight;
using detail::TuningTable;

constexpr std::uint32_t kChoiceRanks = 2;

// For the exchanges of small_exchange() in this layout.
TuningTable exchange_table_with(std::vector<ExchangeStep> steps, RowLayout layout = RowLayout::expert_masked) {
  return {.processor = {"CPU"},
          .ranks = kChoiceRanks,
          .operation = detail::TunedOperation::moe_exchange,
          .exchange = {.hidden = 256, .local_experts = 4, .top_k = 3, .layout = layout},
          .origin = "measured",
          .exchange_steps = std::move(steps)};
}

// Up to 2 tokens by slots, up to 4 by slots with other grids, then by the ring.
std::vector<ExchangeStep> slots_then_ring() {
  return {{.up_to = 2, .dispatch = {.blocks = 33, .threads = 256}},
          {.up_to = 4, .combine = {.blocks = 2, .threads = 384}},
          {.path = RowPath::ring, .dispatch = {.threads = 128}, .combine = {.threads = 256}}};
}

Config choice_config(const std::vector<TuningTable>& tables) {
  return with_tuning_file(
      smallest_buffers(), tables,
      std::string("ExchangeChoice.") + testing::UnitTest::GetInstance()->current_test_info()->name());
}

const ExchangeState& state_of_newest(const Communicator& communicator) {
  return detail::newest_exchange(communicator.world().state().communicator());
}

Launch launch_of(const ExchangeState& exchange, InFlight::Side side, std::uint32_t most_tokens,
                 detail::Phases phases = detail::kJoined, const Launch& given = {}, bool rounds = false) {
  const DispatchHandle handle{.tokens = 1, .most_tokens = most_tokens};
  return detail::grid_args_of(exchange,
                              {.side = side, .handle = handle, .phases = phases, .rounds = rounds, .launch = given})
      .launch;
}

void expect_launch(const Launch& launch, int blocks, int threads) {
  EXPECT_EQ(launch.blocks, blocks);
  EXPECT_EQ(launch.threads, threads);
}

// The last number of tokens of each step and the first of the next one. Both ranks choose alike, whatever they have.
// Outputs are right, bit for bit, by every way and in every layout.
TEST(ExchangeChoice, EachStepServesItsTokens) {
  for (const RowLayout layout : {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major}) {
    MoeExchangeArgs args = small_exchange();
    args.layout = layout;
    std::vector<std::pair<PreparedMoe, bool>> calls;
    for (const auto& [tokens, most, ring] : {std::tuple{std::vector{2u, 1u}, 2u, false},
                                             {{0u, 3u}, 3u, false},
                                             {{4u, 4u}, 4u, false},
                                             {{1u, 5u}, 5u, true},
                                             {{6u, 6u}, 6u, true},
                                             {{2u, 1u}, 0u, true}})
      calls.emplace_back(prepare({.args = args, .tokens = tokens, .most_tokens = most}, kChoiceRanks, most + 3), ring);
    const Config config = choice_config({exchange_table_with(slots_then_ring(), layout)});
    expect_all_well(run_world(kChoiceRanks, config, [&](Communicator& communicator, int rank) {
      const MoeExchange exchange = MoeExchange::create(communicator, args);
      const ExchangeState& state = state_of_newest(communicator);
      EXPECT_EQ(exchange.args().path, RowPath::automatic);
      EXPECT_EQ(state.shape().slots, 4u);
      for (const auto& [prepared, ring] : calls) {
        EXPECT_EQ(state.takes_ring(prepared.call.most_tokens), ring) << prepared.call.most_tokens;
        exchange_and_check(exchange, prepared, static_cast<std::uint32_t>(rank));
        exchange_by_halves_and_check(exchange, prepared, static_cast<std::uint32_t>(rank));
      }
    }));
  }
}

// A table of rank-compact rows has grids alone.
TEST(ExchangeChoice, RankCompactRowsStayInTheirRing) {
  MoeExchangeArgs args = small_exchange();
  args.layout = RowLayout::rank_compact;
  const PreparedMoe prepared = prepare({.args = args, .tokens = {6, 3}}, kChoiceRanks, 4);
  const auto run = [&](const Config& config, int threads) {
    std::size_t bytes = 0;
    expect_all_well(run_world(kChoiceRanks, config, [&](Communicator& communicator, int rank) {
      const MoeExchange exchange = MoeExchange::create(communicator, args);
      const ExchangeState& state = state_of_newest(communicator);
      EXPECT_TRUE(state.takes_ring(6));
      expect_launch(launch_of(state, InFlight::Side::combine, 6), 0, threads);
      exchange_and_check(exchange, prepared, static_cast<std::uint32_t>(rank));
      if (rank == 0) bytes = state.window_bytes();
    }));
    return bytes;
  };
  const std::vector<ExchangeStep> steps = {{.path = RowPath::ring, .combine = {.threads = 256}}};
  EXPECT_EQ(run(choice_config({exchange_table_with(steps, args.layout)}), 256), run(smallest_buffers(), 0));
}

// A joined call in one round takes its step's grid, as far as the launches of its ranks go.
TEST(ExchangeChoice, GridsAreOfJoinedCalls) {
  expect_all_well(run_world(
      kChoiceRanks, choice_config({exchange_table_with(slots_then_ring())}), [&](Communicator& communicator, int) {
        const MoeExchange exchange = MoeExchange::create(communicator, small_exchange());
        const ExchangeState& state = state_of_newest(communicator);
        const auto expect = [&](std::uint32_t most, const Launch& dispatch, const Launch& combine) {
          expect_launch(launch_of(state, InFlight::Side::dispatch, most), dispatch.blocks, dispatch.threads);
          expect_launch(launch_of(state, InFlight::Side::combine, most), combine.blocks, combine.threads);
        };
        expect(2, {.blocks = 2, .threads = 256}, {});  // a CPU rank has two blocks
        expect(3, {}, {.blocks = 2, .threads = 384});
        expect(5, {.threads = 128}, {.threads = 256});
        expect(0, {.threads = 128}, {.threads = 256});  // that of the exchange's 6 tokens
        for (const detail::Phases phases : {detail::kSend, detail::kWait})
          expect_launch(launch_of(state, InFlight::Side::dispatch, 2, phases), 0, 0);
        expect_launch(launch_of(state, InFlight::Side::dispatch, 2, detail::kJoined, {}, true), 0, 0);
      }));
}

TEST(ExchangeChoice, TheCallersNumbersComeFirst) {
  expect_all_well(run_world(kChoiceRanks, choice_config({exchange_table_with(slots_then_ring())}),
                            [&](Communicator& communicator, int) {
                              MoeExchangeArgs args = small_exchange();
                              const MoeExchange automatic = MoeExchange::create(communicator, args);
                              const ExchangeState& state = state_of_newest(communicator);
                              for (const Launch& given : {Launch{.blocks = 2}, Launch{.threads = 64}})
                                expect_launch(launch_of(state, InFlight::Side::dispatch, 2, detail::kJoined, given),
                                              given.blocks, given.threads);
                              // With an explicit way a step's grid serves the calls that go as it says.
                              args.path = RowPath::slots;
                              const MoeExchange slots = MoeExchange::create(communicator, args);
                              const ExchangeState& by_slots = state_of_newest(communicator);
                              EXPECT_FALSE(by_slots.takes_ring(6));
                              expect_launch(launch_of(by_slots, InFlight::Side::dispatch, 2), 2, 256);
                              expect_launch(launch_of(by_slots, InFlight::Side::dispatch, 6), 0, 0);
                              args.path = RowPath::ring;
                              const MoeExchange ring = MoeExchange::create(communicator, args);
                              const ExchangeState& by_ring = state_of_newest(communicator);
                              EXPECT_TRUE(by_ring.takes_ring(2));
                              expect_launch(launch_of(by_ring, InFlight::Side::dispatch, 2), 0, 0);
                              expect_launch(launch_of(by_ring, InFlight::Side::dispatch, 6), 0, 128);
                            }));
}

// Nothing was measured with them.
TEST(ExchangeChoice, OtherExchangesTakeNoTable) {
  const auto with = [](auto change) {
    MoeExchangeArgs args = small_exchange();
    change(args);
    return args;
  };
  const std::vector<MoeExchangeArgs> others = {with([](MoeExchangeArgs& args) { args.blocks = 70; }),
                                               with([](MoeExchangeArgs& args) { args.repeatable = true; }),
                                               with([](MoeExchangeArgs& args) { args.payload_bytes = {4}; }),
                                               with([](MoeExchangeArgs& args) { args.type = RowType::fp8; }),
                                               with([](MoeExchangeArgs& args) { args.cast = RowCast::fp8; }),
                                               with([](MoeExchangeArgs& args) { args.hidden = 512; })};
  const auto run = [&](const Config& config, bool has_table) {
    std::vector<std::size_t> bytes;
    expect_all_well(run_world(kChoiceRanks, config, [&](Communicator& communicator, int rank) {
      for (const MoeExchangeArgs& args : others) {
        const MoeExchange exchange = MoeExchange::create(communicator, args);
        EXPECT_TRUE(state_of_newest(communicator).steps().empty());
        if (rank == 0) bytes.push_back(state_of_newest(communicator).window_bytes());
      }
      const MoeExchange exchange = MoeExchange::create(communicator, small_exchange());
      EXPECT_EQ(state_of_newest(communicator).tuning(),
                has_table ? "CPU, 2 ranks (measured): 256 columns, 4 experts on each rank, top 3, masked rows" : "");
    }));
    return bytes;
  };
  EXPECT_EQ(run(choice_config({exchange_table_with(slots_then_ring())}), true), run(smallest_buffers(), false));
}

// Ranks would wait for each other, if each chose by its own file.
TEST(ExchangeChoice, RanksUseRankZerosTable) {
  const PreparedMoe prepared = prepare({.args = small_exchange(), .tokens = {3, 2}, .most_tokens = 3}, kChoiceRanks, 8);
  const std::vector<TuningTable> zeros = {exchange_table_with({{.up_to = 2}, {.path = RowPath::ring}})};
  const std::vector<TuningTable> ones = {exchange_table_with({{}})};
  const UniqueId id = UniqueId::create();
  const auto errors = run_ranks(kChoiceRanks, [&](int rank) {
    const Config config = with_tuning_file(smallest_buffers(), rank == 0 ? zeros : ones,
                                           "ExchangeChoice.of_rank_" + std::to_string(rank));
    const Communicator communicator = Communicator::from_id(id, rank, kChoiceRanks, config);
    const MoeExchange exchange = MoeExchange::create(communicator, prepared.call.args);
    EXPECT_TRUE(state_of_newest(communicator).takes_ring(3));
    exchange_and_check(exchange, prepared, static_cast<std::uint32_t>(rank));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace weft::test
