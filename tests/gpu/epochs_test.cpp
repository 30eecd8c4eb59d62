// Epochs of GPU ranks that begin at 0, pass the middle, or wrap.
#include <gtest/gtest.h>

#include "gpu/support/gpu_layer.hpp"
#include "gpu/support/gpu_norm.hpp"
#include "support/first_epoch.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

class GpuFirstEpochs : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuFirstEpochs, testing::Values(2, 4, 8));

TEST_P(GpuFirstEpochs, OfAllReducesAnExchangeAndNorms) {
  std::vector<Case> cases;
  for (std::uint32_t i = 0; i < 10; ++i) {
    cases.push_back(
        {.count = i * 100, .type = kTypes[i % std::size(kTypes)], .algorithm = kAlgorithms[i / 2 % 3], .seed = i});
  }
  const MoeExchangeArgs args = small_exchange();
  const std::vector<MoeCase> calls{
      {.args = args, .tokens = {2, 6}}, {.args = args, .tokens = {6, 0}}, {.args = args, .tokens = {4}}};
  std::vector<MoeCase> apart = calls;  // made only once by expect_right_apart()
  apart.insert(apart.end(), calls.begin(), calls.end());
  std::vector<Norm> norms;
  for (std::uint32_t i = 0; i < 8; ++i) {
    norms.push_back({.tokens = 3,
                     .hidden = 264,
                     .fp8 = i % 2 == 0,
                     .algorithm = i < 4 ? Algorithm::one_shot : Algorithm::two_shot,
                     .seed = i});
  }
  for (const std::uint32_t first : {0u, 0x7ffffffdu, 0xfffffffdu}) {
    Config config = small_gpu_pieces();
    const FirstEpoch epoch(first);
    GpuWorld world = make_gpu_world(GetParam(), config);
    expect_right(world, cases);
    expect_right(world, calls);
    expect_right_apart(world, apart);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      for (Norm norm : norms) {
        norm.launch = world.launch();
        run_on_gpu_rank(communicator, gpu, norm);
      }
    }));
  }
}

class GpuFirstEpochsOfLayers : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuFirstEpochsOfLayers, testing::Values(1, 2, 4));

// By slots, and by a ring. The first call ends before epochs wrap.
TEST_P(GpuFirstEpochsOfLayers, EveryScheduleHasTheSameBits) {
  const std::uint32_t ranks = GetParam();
  const std::vector<std::vector<LayerCase>> all = layers_of_every_kind(ranks);
  for (const std::uint32_t first : {0x7ffffffdu, 0xfffffffdu}) {
    const FirstEpoch epoch(first);
    GpuWorld world = make_gpu_world(static_cast<int>(ranks), gpu_config());
    for (const std::size_t kind : {std::size_t{0}, all.size() - 2}) {
      const LayerCase& of = all[kind][0];
      const PreparedMoe p = prepare(of.call, ranks, 7);
      const std::vector<LayerOrder> orders = every_order(world, of.call.args);
      expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
        MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
        GpuLayer layer(gpu, communicator, exchange, of, blocks_of_part(world));
        const Bytes plain = layer.made(p, orders[0]);
        for (int turn = 0; turn < 3; ++turn) {
          for (const LayerOrder& order : orders)
            expect_bytes(layer.made(p, order), plain, std::string(name(order.schedule)));
        }
        free_together(gpu, exchange);
      }));
    }
  }
}

}  // namespace
}  // namespace weft::test
