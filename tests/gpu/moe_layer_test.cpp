// Layers of experts on GPU ranks, with GEMMs in plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "gpu/support/captured_kernels.hpp"
#include "gpu/support/gpu_layer.hpp"
#include "gpu/support/graph.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

class GpuLayers : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuLayers, testing::Values(1, 2, 4));

// Every schedule and division gives the bits of one part after the other; eagerly, and by a graph that finds another
// routing in its tensors.
TEST_P(GpuLayers, EveryScheduleHasTheSameBits) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  for (const std::vector<LayerCase>& cases : layers_of_every_kind(ranks)) {
    std::vector<PreparedMoe> prepared;
    for (const LayerCase& of : cases) prepared.push_back(prepare(of.call, ranks, 7));
    const PreparedMoe other = prepare(cases[0].call, ranks, 8);
    const std::vector<LayerOrder> orders = every_order(world, cases[0].call.args);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange exchange = MoeExchange::create(communicator, cases[0].call.args);
      GpuLayer layer(gpu, communicator, exchange, cases[0], blocks_of_part(world));
      std::vector<Bytes> plain;
      for (const PreparedMoe& p : prepared) plain.push_back(layer.made(p, orders[0]));
      const Bytes plain_of_other = layer.made(other, orders[0]);
      for (std::size_t i = 1; i < orders.size(); ++i) {
        const std::size_t which = i % prepared.size();
        expect_bytes(layer.made(prepared[which], orders[i]), plain[which], std::string(name(orders[i].schedule)));
      }
      for (const LayerOrder& order : orders) {
        const Graph graph(gpu, [&] { layer.run(layer.call(prepared[0], order)); });
        for (int turn = 0; turn < 2; ++turn) {
          layer.fill(prepared[0]);
          graph.launch(gpu.stream());
          expect_bytes(layer.output(prepared[0]), plain[0], "a graph of " + std::string(name(order.schedule)));
          layer.fill(other);
          graph.launch(gpu.stream());
          expect_bytes(layer.output(other), plain_of_other, "the graph with another routing");
        }
      }
      free_together(gpu, exchange);
    }));
  }
}

// The parts of dispatch and combine, and no others: each is one kernel. Bits stay the same.
TEST_P(GpuLayers, PartsStartInPairs) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  const LayerCase of = layers_of_every_kind(ranks)[0][0];
  const PreparedMoe p = prepare(of.call, ranks, 7);
  const std::vector<LayerOrder> orders = every_order(world, of.call.args);
  const auto in_rounds = [](const LayerOrder& order) { return order.schedule == LayerSchedule::rounds; };
  const auto found = std::ranges::find_if(orders, in_rounds);
  const LayerOrder& counted = found != orders.end() ? *found : orders[0];
  const std::size_t parts = in_rounds(counted) ? 2 * counted.division.size() + 2 : 2;
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    GpuLayer layer(gpu, communicator, exchange, of, blocks_of_part(world));
    const auto run = [&](const LayerOrder& order, int cluster) {
      MoeLayerCall call = layer.call(p, order);
      call.cluster = cluster;
      layer.run(call);
    };
    const Bytes plain = layer.made(p, orders[0]);
    for (const LayerOrder& order : orders) {
      layer.fill(p);
      run(order, 2);
      expect_bytes(layer.output(p), plain, std::string(name(order.schedule)));
    }
    for (const int cluster : {0, 1, 2}) {
      const std::vector<CapturedKernel> kernels = captured_kernels(gpu, [&] { run(counted, cluster); });
      const auto pairs = std::ranges::count_if(kernels, [](const CapturedKernel& kernel) { return kernel.in_pairs(); });
      EXPECT_EQ(static_cast<std::size_t>(pairs), cluster == 2 ? parts : 0);
      EXPECT_GT(kernels.size(), parts);
    }
    free_together(gpu, exchange);
  }));
}

// Slower than all other parts: who does not wait for it finds none of its rows.
void copy_slowly(const SharedExpert& of) {
  delay(std::chrono::milliseconds(1), of.stream);
  detail::check_cuda(
      cudaMemcpyAsync(of.output, of.input, std::size_t{of.tokens} * of.hidden * 2, cudaMemcpyDeviceToDevice, of.stream),
      "a copy");
}

// A shared expert has a stream of its own, in eager calls and in graphs. Its rows have the bits of a residual.
TEST_P(GpuLayers, SharedExpertsHaveTheBitsOfTheUnsplitOrder) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  if (!may_fork(world)) GTEST_SKIP() << "ranks that share a GPU have one stream each";
  for (const std::vector<LayerCase>& cases : layers_of_every_kind(ranks)) {
    const PreparedMoe first = prepare(cases[0].call, ranks, 7), other = prepare(cases[0].call, ranks, 8);
    const std::vector<LayerOrder> orders = every_order(world, cases[0].call.args);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange exchange = MoeExchange::create(communicator, cases[0].call.args);
      GpuLayer layer(gpu, communicator, exchange, cases[0], blocks_of_part(world));
      const auto with_residual = [&](const PreparedMoe& p) {
        MoeLayerCall call = layer.call(p, orders[0]);
        call.residual = call.input;
        layer.fill(p);
        layer.run(call);
        return layer.output(p);
      };
      const auto run_with_shared = [&](const LayerOrder& order) {
        MoeLayerCall call = layer.call(first, order);
        call.residual = nullptr;
        call.shared = copy_slowly;
        layer.run(call);
      };
      const Bytes of_first = with_residual(first), of_other = with_residual(other);
      for (const LayerOrder& order : {orders[0], orders[3], orders[4]}) {
        const std::string words(name(order.schedule));
        layer.fill(first);
        run_with_shared(order);
        expect_bytes(layer.output(first), of_first, words);
        const Graph graph(gpu, [&] { run_with_shared(order); });
        layer.fill(other);
        graph.launch(gpu.stream());
        expect_bytes(layer.output(other), of_other, "a graph of " + words + " with other rows");
        layer.fill(first);
        graph.launch(gpu.stream());
        expect_bytes(layer.output(first), of_first, "a graph of " + words);
      }
      free_together(gpu, exchange);
    }));
  }
}

}  // namespace
}  // namespace weft::test
