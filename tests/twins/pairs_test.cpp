// Calls in clusters of two reach the fabric so, where a GPU takes 133 single blocks. The fabric is a twin, which
// counts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <utility>

#include "comm/state.hpp"
#include "support/launched_calls.hpp"
#include "support/moe_layers.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "tuning/tuning.hpp"
#include "twins/breakable_fabric.hpp"

namespace weft::test {
namespace {

using detail::broken;
using detail::launches;

TEST(Pairs, ReachTheFabricWhereTheyAreAskedFor) {
  broken.few_blocks = kRanks;  // none of them: all take many
  const auto endings = run_world(kRanks, cpu_config(), [](Communicator& communicator, int) {
    const MoeExchange exchange = MoeExchange::create(communicator, exchange_of_launched_calls());
    for (const LaunchedCall& call : calls_with_a_launch()) {
      // A step that copies counts of the host has one block.
      const int single = call.name == "reduce_scatter_v" ? 1 : 0;
      for (const int blocks : {0, 2, 6, 132}) {
        for (const int cluster : {0, 1, 2}) {
          SCOPED_TRACE(call.name + ", blocks " + std::to_string(blocks) + ", cluster " + std::to_string(cluster));
          launches = {};
          call.call(communicator, exchange, {.blocks = blocks, .cluster = cluster});
          EXPECT_GT(launches.kernels, single);
          EXPECT_EQ(launches.in_pairs, cluster == 2 ? launches.kernels - single : 0);
          EXPECT_EQ(launches.odd, 0);
        }
      }
      expect_code([&] { call.call(communicator, exchange, {.blocks = 133, .cluster = 2}); }, Errc::invalid_argument,
                  "launch.blocks: 133 is odd, and launch.cluster is 2");
    }
  });
  broken.few_blocks = -1;
  expect_all_well(endings);
}

// A GPU may have room for fewer pairs than half of its single blocks.
TEST(Pairs, AreNoMoreThanFit) {
  broken.few_blocks = 0;  // 100 single blocks there, and 32 pairs
  const auto endings = run_world(kRanks, cpu_config(), [](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, exchange_of_launched_calls());
    for (const LaunchedCall& call : calls_with_a_launch()) {
      SCOPED_TRACE(call.name);
      call.call(communicator, exchange, {.blocks = rank == 0 ? 64 : 132, .cluster = 2});
      call.call(communicator, exchange, {.blocks = 100, .cluster = 1});
      const int most = rank == 0 ? 64 : 132;
      expect_code([&] { call.call(communicator, exchange, {.blocks = most + 2, .cluster = 2}); },
                  Errc::invalid_argument,
                  fmt::format("launch.blocks: {} is more than the {} that fit in clusters of two", most + 2, most));
    }
    const detail::CommunicatorState& state = communicator.world().state().communicator();
    EXPECT_EQ(state.max_blocks({}), rank == 0 ? 100 : 133);
    EXPECT_EQ(state.max_blocks({.cluster = 2}), rank == 0 ? 65 : 133);
  });
  broken.few_blocks = -1;
  expect_all_well(endings);
}

// A table's numbers may be odd: they are rounded down. GEMMs and the activation are no part of it.
TEST(Pairs, OfALayerAreItsPartsOfDispatchAndCombine) {
  constexpr int ranks = 2;
  const LayerCase of = layers_of_every_kind(ranks)[0][0];
  const PreparedMoe p = prepare(of.call, ranks, 3);
  Config config = smallest_buffers();
  config.tuning_file = testing::TempDir() + "pairs_of_layers.json";
  const detail::TuningTable table{
      .processor = {"CPU"},
      .ranks = ranks,
      .operation = detail::TunedOperation::moe_layer,
      .layer = {.hidden = 128, .intermediate = kLayerMiddle, .local_experts = 4, .top_k = 3},
      .origin = "measured",
      .layer_steps = {{.schedule = LayerSchedule::rounds,
                       .rounds = 3,
                       .sms = {.send = 17, .recv = 17, .combine_send = 19, .combine_recv = 9}}}};
  std::ofstream(config.tuning_file) << detail::to_json({table});
  broken.few_blocks = ranks;  // none of them
  const auto endings = run_world(ranks, config, [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    moe.layer().run(moe.call({LayerSchedule::plain, {}}));
    const Bytes wanted(moe.output().begin(), moe.output().end());
    const std::pair<LayerOrder, int> orders[] = {{{LayerSchedule::plain, {}}, 2},
                                                 {{LayerSchedule::rounds, {1, 3}}, 6},
                                                 {{LayerSchedule::combine_rounds, {1, 3}}, 4},
                                                 {{LayerSchedule::automatic, {}}, 8}};
    for (const auto& [order, parts] : orders) {
      for (const int cluster : {0, 1, 2}) {
        moe.fill(p);
        MoeLayerCall call = moe.call(order);
        call.cluster = cluster;
        launches = {};
        moe.layer().run(call);
        EXPECT_EQ(launches.in_pairs, cluster == 2 ? parts : 0) << name(order.schedule);
        EXPECT_GT(launches.kernels, parts);
        EXPECT_EQ(launches.odd, 0);
        expect_bytes(moe.output(), wanted, "a layer in pairs");
      }
    }
  });
  broken.few_blocks = -1;
  expect_all_well(endings);
}

}  // namespace
}  // namespace weft::test
