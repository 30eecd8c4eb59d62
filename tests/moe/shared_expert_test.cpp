// The shared expert of a layer, on CPU ranks.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "oracle/number.hpp"
#include "support/bytes.hpp"
#include "support/moe_layers.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

class SharedExperts : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SharedExperts, testing::Values(1, 2, 3, 4));

// Half of each number of the input row, plus the residual.
void make_rows(const SharedExpert& of) {
  const std::size_t count = std::size_t{of.tokens} * of.hidden;
  const auto number = [&](const void* row, std::size_t i) {
    return oracle::number_at({static_cast<const std::byte*>(row), count * 2}, DataType::bf16, i);
  };
  for (std::size_t i = 0; i < count; ++i) {
    const double made = number(of.input, i) / 2 + (of.residual != nullptr ? number(of.residual, i) : 0);
    oracle::put({static_cast<std::byte*>(of.output), count * 2}, DataType::bf16, i,
                oracle::round_to(oracle::format_of(DataType::bf16), made));
  }
}

// The order without overlap: the shared expert first, whose rows are then the residual of a plain layer.
Bytes unsplit(CpuLayer& moe, const MoeExchange& exchange) {
  MoeLayerCall call = moe.call({LayerSchedule::plain, {}});
  const AlignedBytes rows(std::size_t{call.tokens} * exchange.args().hidden * 2);
  make_rows({.input = call.input,
             .residual = call.residual,
             .output = rows.span().data(),
             .tokens = call.tokens,
             .hidden = exchange.args().hidden});
  call.residual = rows.span().data();
  moe.layer().run(call);
  return {moe.output().begin(), moe.output().end()};
}

TEST_P(SharedExperts, EveryScheduleHasTheBitsOfTheUnsplitOrder) {
  for (const std::vector<LayerCase>& cases : layers_of_every_kind(GetParam())) {
    std::vector<PreparedMoe> prepared;
    for (const LayerCase& of : cases) prepared.push_back(prepare(of.call, GetParam(), 9));
    const std::vector<LayerOrder> orders = every_order(cases[0].call.args, GetParam());
    expect_all_well(
        run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int rank) {
          const MoeExchange exchange = MoeExchange::create(communicator, cases[0].call.args);
          for (std::size_t i = 0; i < cases.size(); ++i) {
            CpuLayer moe(exchange, cases[i], prepared[i], static_cast<std::uint32_t>(rank));
            const Bytes expected = unsplit(moe, exchange);
            for (const LayerOrder& order : {orders[0], orders[3], orders[4], orders.back()}) {
              moe.fill(prepared[i]);
              MoeLayerCall call = moe.call(order);
              int calls = 0;
              call.shared = [&](const SharedExpert& of) { ++calls, make_rows(of); };
              moe.layer().run(call);
              EXPECT_EQ(calls, call.tokens == 0 ? 0 : 1);
              expect_bytes(moe.output(), expected, "the output of " + std::string(name(order.schedule)));
              const Recording recording = Recording::capture(communicator, [&] { moe.layer().run(call); });
              moe.fill(prepared[i]);
              recording.replay();
              EXPECT_EQ(calls, call.tokens == 0 ? 0 : 2);
              expect_bytes(moe.output(), expected, "a replay of " + std::string(name(order.schedule)));
            }
          }
        }));
  }
}

// The output may be the residual, which the shared expert has read by then.
TEST(SharedExpertsOfTwo, TheOutputMayBeTheResidual) {
  LayerCase of = layers_of_every_kind(2)[0][0];
  of.call.residual = true;
  const PreparedMoe p = prepare(of.call, 2, 3);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    const Bytes expected = unsplit(moe, exchange);
    for (const LayerSchedule schedule : {LayerSchedule::plain, LayerSchedule::rounds}) {
      moe.fill(p);
      MoeLayerCall call = moe.call({schedule, {}});
      const auto* const residual = static_cast<const std::byte*>(call.residual);
      std::copy(residual, residual + expected.size(), static_cast<std::byte*>(call.output));
      call.residual = call.output;
      call.shared = make_rows;
      moe.layer().run(call);
      expect_bytes(moe.output(), expected, std::string(name(schedule)));
    }
  }));
}

// Rows with scales of their own come to it as they were given.
TEST(SharedExpertsOfTwo, ItIsToldTheCallsTensors) {
  LayerCase of = layers_of_every_kind(2)[0][0];
  of.call.args.type = RowType::fp8;
  of.call.args.scale_bytes = 4;
  of.call.residual = true;
  const PreparedMoe p = prepare(of.call, 2, 3);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    const MoeLayer layer = MoeLayer::create(exchange, {.intermediate = kLayerMiddle});
    CpuMoe moe(exchange, p, static_cast<std::uint32_t>(rank));
    Bytes workspace(layer.workspace_bytes() + 256);
    const DispatchArgs there = moe.dispatch();
    const CombineArgs back = moe.combine({});
    for (const LayerOrder& order : {LayerOrder{LayerSchedule::plain, {}}, {LayerSchedule::rounds, {1, 3}}}) {
      MoeLayerCall call = layer_call(there, back, order, workspace.data());
      call.scales = there.scales;
      call.output = back.output;
      call.shared_num_sms = 9;
      call.up_num_sms = 8;
      call.up = call.down = [](const ExpertGemm&) {};
      SharedExpert told;
      call.shared = [&](const SharedExpert& given) { told = given; };
      layer.run(call);
      EXPECT_EQ(told.input, call.input);
      EXPECT_EQ(told.scales, call.scales);
      EXPECT_NE(told.scales, nullptr);
      EXPECT_EQ(told.residual, call.residual);
      EXPECT_EQ(told.tokens, 6u);
      EXPECT_EQ(told.hidden, 128u);
      EXPECT_EQ(told.num_sms, 9);
      EXPECT_EQ(told.stream, nullptr);
      const auto* const begin = static_cast<std::byte*>(call.workspace);
      const auto* const output = static_cast<std::byte*>(told.output);
      EXPECT_EQ((output - begin) % 128, 0);
      EXPECT_TRUE(output >= begin && output + 6 * 128 * 2 <= begin + layer.workspace_bytes());
    }
  }));
}

// Behind the dispatch, or its send: rows of this rank are on their way meanwhile.
TEST(SharedExpertsOfTwo, ObserversHearOfIt) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3);
  using Parts = std::vector<std::string>;
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    const auto parts_of = [&](const LayerOrder& order) {
      Parts parts;
      MoeLayerCall call = moe.call(order);
      call.shared = [&](const SharedExpert& given) { parts.emplace_back("made"), make_rows(given); };
      call.observe = [&](const LayerPart& part) {
        if (part.which == LayerPart::Which::shared || part.begins) parts.emplace_back(name(part.which));
      };
      moe.layer().run(call);
      return parts;
    };
    EXPECT_EQ(parts_of({LayerSchedule::plain, {}}),
              (Parts{"dispatch", "shared expert", "made", "shared expert", "up", "activation", "down", "combine"}));
    EXPECT_EQ(parts_of({LayerSchedule::combine_rounds, {}}),
              (Parts{"dispatch", "shared expert", "made", "shared expert", "up", "activation", "down", "combine send",
                     "combine wait"}));
    EXPECT_EQ(parts_of({LayerSchedule::rounds, {}}),
              (Parts{"dispatch send", "shared expert", "made", "shared expert", "dispatch wait", "up", "activation",
                     "down", "combine send", "combine wait"}));
  }));
}

}  // namespace
}  // namespace weft::test
