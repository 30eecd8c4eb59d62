// Layers of experts with replicas, and with experts that move, on GPU ranks.
#include <gtest/gtest.h>

#include "gpu/support/gpu_layer.hpp"
#include "gpu/support/graph.hpp"
#include "support/moving_experts.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

class GpuLayerMaps : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuLayerMaps, testing::Values(1, 2, 4));

// The bits are those of a layer whose experts are the replicas, if the caller chooses among them by the rule.
TEST_P(GpuLayerMaps, ReplicasServeInTurn) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  for (ReplicaCase replicas : replicas_in_turn(ranks)) {
    if (replicas.with.layout >= RowLayout::rank_major) continue;  // no layer has it
    serve_rounds(replicas);
    const LayerCase of{replicas.call, RowCast::none};
    const PreparedMoe p = prepare(replicas.call, ranks, 3), other = prepare(replicas.call, ranks, 4);
    const std::vector<LayerOrder> orders = every_order(world, replicas.with);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange of_replicas = MoeExchange::create(communicator, replicas.with);
      MoeExchange of_experts = MoeExchange::create(communicator, replicas.call.args);
      {
        const int blocks = blocks_of_part(world);
        GpuLayer chosen(gpu, communicator, of_experts, of, blocks);
        GpuLayer served(gpu, communicator, of_replicas, of, blocks, of_experts);
        const Bytes wanted = chosen.made(p, orders[0]), wanted_of_other = chosen.made(other, orders[0]);
        for (const LayerOrder& order : orders) {
          const std::string words(name(order.schedule));
          expect_bytes(served.made(p, order), wanted, words);
          const Graph graph(gpu, [&] { served.run(served.call(p, order)); });
          served.fill(other);
          graph.launch(gpu.stream());
          expect_bytes(served.output(other), wanted_of_other, "a graph of " + words);
        }
      }
      free_together(gpu, of_replicas);
      free_together(gpu, of_experts);
    }));
  }
}

// Calls take the map that they are given. A graph that was captured before the experts moved takes the new map.
TEST_P(GpuLayerMaps, MovedExpertsAreFollowed) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  for (const MovingExperts& of : moving_experts(ranks)) {
    if (of.with.layout >= RowLayout::rank_major) continue;  // no layer has it
    const LayerCase layer{of.of_places, RowCast::none};
    std::vector<PreparedMoe> prepared;
    for (std::uint32_t number = 0; number < 4; ++number) prepared.push_back(of.prepared(number, 3 + number));
    const std::vector<LayerOrder> orders = every_order(world, of.of_places.args);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange moving = MoeExchange::create(communicator, of.with);
      MoeExchange of_places = MoeExchange::create(communicator, of.of_places.args);
      {
        const int blocks = blocks_of_part(world);
        GpuLayer there(gpu, communicator, of_places, layer, blocks);
        GpuLayer here(gpu, communicator, moving, layer, blocks, of_places);
        std::vector<Bytes> wanted;
        for (const PreparedMoe& p : prepared) wanted.push_back(there.made(p, orders[0]));
        const auto run = [&](std::uint32_t number, const LayerOrder& order) {
          MoeLayerCall call = here.call(prepared[number], order);
          call.map = number == 0 ? 0 : 1;
          here.run(call);
        };
        const LayerOrder& captured = orders[may_fork(world) ? 3 : 0];
        const Graph graph(gpu, [&] { run(1, captured); });
        for (std::uint32_t number = 0; number < prepared.size(); ++number) {
          if (number > 1) moving.set_experts(of.map(number), 1, gpu.stream());
          for (const LayerOrder& order : orders) {
            here.fill(prepared[number]);
            run(number, order);
            expect_bytes(here.output(prepared[number]), wanted[number], std::string(name(order.schedule)));
          }
          if (number == 0) continue;  // of the other map
          here.fill(prepared[number]);
          graph.launch(gpu.stream());
          expect_bytes(here.output(prepared[number]), wanted[number], "a graph");
        }
      }
      free_together(gpu, moving);
      free_together(gpu, of_places);
    }));
  }
}

}  // namespace
}  // namespace weft::test
