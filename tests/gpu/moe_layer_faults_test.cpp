// GPU ranks that fail inside of a layer: the others learn at once which part it was, and of which round.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "gpu/support/gpu_layer.hpp"
#include "gpu/support/graph.hpp"
#include "support/broken_layers.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

// As every_order() of a GpuWorld: ranks that share a GPU fork no streams.
std::vector<BrokenPart> parts_to_break(std::uint32_t ranks) {
  std::vector<BrokenPart> parts = broken_parts(ranks);
  std::erase_if(parts, [&](const BrokenPart& broken) {
    const bool forks = broken.order.schedule != LayerSchedule::plain || broken.part == LayerPart::Which::shared;
    return forks && static_cast<int>(ranks) > gpu_count();
  });
  return parts;
}

// A rank that is not told would find a timeout.
void expect_the_other_to_know(const LayerCase& of) {
  const PreparedMoe p = prepare(of.call, 2, 3);
  for (const BrokenPart& broken : parts_to_break(2)) {
    GpuWorld world = make_gpu_world(2, gpu_config(10s));
    const std::vector<Ending> endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
      GpuLayer layer(gpu, communicator, exchange, of, blocks_of_part(world));
      layer.made(p, broken.order);
      layer.fill(p);
      MoeLayerCall call = layer.call(p, broken.order);
      if (rank == 1) break_part(call, broken);
      layer.run(call);
      layer.output(p);
    });
    EXPECT_EQ(endings[1].what.substr(0, 12), "it is broken") << broken.words;
    EXPECT_FALSE(endings[1].error) << broken.words;
    expect_fault(endings[0], {Errc::mismatch}, broken.words);
    ASSERT_TRUE(endings[0].error) << broken.words;
    EXPECT_EQ(endings[0].error->fault().peer, 1) << broken.words;
    expect_says(endings[0].what, broken.words);
  }
}

TEST(GpuLayerFaults, ExceptionsAreToldWithPartAndRound) {
  expect_the_other_to_know(layers_of_every_kind(2)[0][0]);
}

TEST(GpuLayerFaults, ExceptionsAreToldByTheRing) {
  expect_the_other_to_know(layers_of_every_kind(2)[5][0]);
}

class GpuLayerFails : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuLayerFails, testing::Values(1, 2));

// All ranks fail alike, so nobody waits. The rest of their calls is void after release(). Under capture, too: there the
// caller's stream has got all streams of the layer back, or the capture could not end.
TEST_P(GpuLayerFails, RanksThatAllFailGoOnAfterRelease) {
  const std::uint32_t ranks = GetParam();
  const LayerCase of = layers_of_every_kind(ranks)[0][0];
  const PreparedMoe p = prepare(of.call, ranks, 3);
  GpuWorld world = make_gpu_world(static_cast<int>(ranks), gpu_config());
  for (const BrokenPart& broken : parts_to_break(ranks)) {
    for (const bool captured : {false, true}) {
      expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
        MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
        GpuLayer layer(gpu, communicator, exchange, of, blocks_of_part(world));
        const Bytes wanted = layer.made(p, broken.order);
        layer.fill(p);
        MoeLayerCall call = layer.call(p, broken.order);
        break_part(call, broken);
        const auto fail = [&] { expect_says(error_of([&] { layer.run(call); }), "it is broken"); };
        if (captured) {
          const Graph graph(gpu, fail);  // which is not launched
        } else {
          fail();
        }
        gpu.synchronize();
        communicator.release();
        communicator.acquire();
        for (int turn = 0; turn < 3; ++turn) expect_bytes(layer.made(p, broken.order), wanted, broken.words);
        free_together(gpu, exchange);
      }));
    }
  }
}

}  // namespace
}  // namespace weft::test
