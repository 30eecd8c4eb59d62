// Layers of experts on GPU ranks, with GEMMs in plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "gpu/support/captured_kernels.hpp"
#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/kernels.hpp"
#include "gpu/support/plain_gemm.hpp"
#include "support/moe_layers.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

class GpuLayers : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuLayers, testing::Values(1, 2, 4));

// A rank's memory for calls of a layer.
class GpuLayer {
 public:
  GpuLayer(GpuRank& gpu, const Group& group, const MoeExchange& exchange, const LayerCase& of, int blocks)
      : gpu_(gpu),
        group_(group),
        exchange_(exchange),
        layer_(MoeLayer::create(exchange, {.intermediate = kLayerMiddle, .down_cast = of.down_cast})),
        down_cast_(of.down_cast),
        blocks_(blocks),
        moe_(gpu, group, exchange),
        workspace_(gpu.device_memory(layer_.workspace_bytes() + 256)),
        output_bytes_(std::size_t{exchange.args().tokens} * exchange.args().hidden * 2),
        output_(gpu.device_memory(output_bytes_)),
        host_(gpu.host_memory(output_bytes_)) {}

  void fill(const PreparedMoe& p) {
    moe_.fill(p);
    detail::check_cuda(cudaMemsetAsync(output_, 0x5a, output_bytes_, gpu_.stream()), "cudaMemset");
    detail::check_cuda(cudaMemsetAsync(workspace_, 0x5a, layer_.workspace_bytes(), gpu_.stream()), "cudaMemset");
    gpu_.synchronize();
  }
  // The input rows are added to the experts' sums: as a residual, or by a shared expert.
  enum class Added { nothing, residual, shared };
  // Only enqueues.
  void run(const PreparedMoe& p, const LayerOrder& order, Added added = Added::nothing, int cluster = 0) const {
    MoeLayerCall call =
        layer_call(moe_.dispatch_args(p, gpu_.stream()), moe_.combine_args(p, {}, gpu_.stream()), order, workspace_);
    call.output = output_;
    call.up = [&](const ExpertGemm& of) { gemm(of, exchange_.args().cast); };
    call.down = [&](const ExpertGemm& of) { gemm(of, down_cast_); };
    call.stream = gpu_.stream();
    if (added == Added::residual) call.residual = call.input;
    if (added == Added::shared) call.shared = copy_slowly;
    call.send_num_sms = call.recv_num_sms = call.combine_send_num_sms = call.combine_recv_num_sms = blocks_;
    call.cluster = cluster;
    layer_.run(call);
  }
  Bytes output(const PreparedMoe& p) const {
    gpu_.synchronize();
    group_.check();
    const std::size_t bytes =
        std::size_t{p.tokens[static_cast<std::size_t>(group_.rank())].count} * exchange_.args().hidden * 2;
    detail::check_cuda(cudaMemcpyAsync(host_, output_, bytes, cudaMemcpyDeviceToHost, gpu_.stream()), "download");
    gpu_.synchronize();
    return {host_, host_ + bytes};
  }

 private:
  // Slower than all other parts: who does not wait for it finds none of its rows.
  static void copy_slowly(const SharedExpert& of) {
    delay(std::chrono::milliseconds(1), of.stream);
    detail::check_cuda(cudaMemcpyAsync(of.output, of.input, std::size_t{of.tokens} * of.hidden * 2,
                                       cudaMemcpyDeviceToDevice, of.stream),
                       "a copy");
  }
  void gemm(const ExpertGemm& of, RowCast cast) const {
    enqueue({.gemm = of,
             .first_global = exchange_.experts().empty() ? 0 : exchange_.experts()[0],
             .cast = cast,
             .order = exchange_.args().scale_order,
             .rows = static_cast<std::uint32_t>(exchange_.output_rows())});
  }

  GpuRank& gpu_;
  const Group& group_;
  const MoeExchange& exchange_;
  MoeLayer layer_;
  RowCast down_cast_;
  int blocks_;
  GpuMoe moe_;
  std::byte* workspace_;
  std::size_t output_bytes_;
  std::byte *output_, *host_;
};

// Every schedule and division gives the bits of one part after the other; eagerly, and by a graph that finds another
// routing in its tensors.
TEST_P(GpuLayers, EveryScheduleHasTheSameBits) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  for (const std::vector<LayerCase>& cases : layers_of_every_kind(ranks)) {
    std::vector<PreparedMoe> prepared;
    for (const LayerCase& of : cases) prepared.push_back(prepare(of.call, ranks, 7));
    const PreparedMoe other = prepare(cases[0].call, ranks, 8);
    const std::vector<LayerOrder> orders = every_order(cases[0].call.args, ranks);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange exchange = MoeExchange::create(communicator, cases[0].call.args);
      GpuLayer layer(gpu, communicator, exchange, cases[0], world.shared() ? 2 : 4);
      const auto made = [&](const PreparedMoe& p, const LayerOrder& order) {
        layer.fill(p);
        layer.run(p, order);
        return layer.output(p);
      };
      std::vector<Bytes> plain;
      for (const PreparedMoe& p : prepared) plain.push_back(made(p, orders[0]));
      const Bytes plain_of_other = made(other, orders[0]);
      // Streams of ranks that share a GPU may share a hardware queue. There a rank's wait may stand before the send
      // that it waits for. So such ranks have one stream each.
      for (std::size_t i = 1; i < orders.size() && !world.shared(); ++i) {
        const std::size_t which = i % prepared.size();
        expect_bytes(made(prepared[which], orders[i]), plain[which], std::string(name(orders[i].schedule)));
      }
      for (const LayerOrder& order : {orders[0], orders[3], orders[4]}) {
        if (world.shared() && order.schedule != LayerSchedule::plain) continue;
        const Graph graph(gpu, [&] { layer.run(prepared[0], order); });
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
  const std::vector<LayerOrder> orders = every_order(of.call.args, ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    GpuLayer layer(gpu, communicator, exchange, of, world.shared() ? 2 : 4);
    layer.fill(p);
    layer.run(p, orders[0]);
    const Bytes plain = layer.output(p);
    for (const LayerOrder& order : orders) {
      if (world.shared() && order.schedule != LayerSchedule::plain) continue;
      layer.fill(p);
      layer.run(p, order, GpuLayer::Added::nothing, 2);
      expect_bytes(layer.output(p), plain, std::string(name(order.schedule)));
    }
    const LayerOrder& last = orders[world.shared() ? 0 : 3];
    const std::size_t rounds = last.division.size();
    const std::size_t parts = last.schedule == LayerSchedule::rounds ? 2 * rounds + 2 : 2;
    for (const int cluster : {0, 1, 2}) {
      const std::vector<CapturedKernel> kernels =
          captured_kernels(gpu, [&] { layer.run(p, last, GpuLayer::Added::nothing, cluster); });
      const auto pairs = std::ranges::count_if(kernels, [](const CapturedKernel& kernel) { return kernel.in_pairs(); });
      EXPECT_EQ(static_cast<std::size_t>(pairs), cluster == 2 ? parts : 0);
      EXPECT_GT(kernels.size(), parts);
    }
    free_together(gpu, exchange);
  }));
}

// A shared expert has a stream of its own, in eager calls and in graphs. Its rows have the bits of a residual.
TEST_P(GpuLayers, SharedExpertsHaveTheBitsOfTheUnsplitOrder) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  if (world.shared()) GTEST_SKIP() << "ranks that share a GPU have one stream each";
  using Added = GpuLayer::Added;
  for (const std::vector<LayerCase>& cases : layers_of_every_kind(ranks)) {
    const PreparedMoe first = prepare(cases[0].call, ranks, 7), other = prepare(cases[0].call, ranks, 8);
    const std::vector<LayerOrder> orders = every_order(cases[0].call.args, ranks);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange exchange = MoeExchange::create(communicator, cases[0].call.args);
      GpuLayer layer(gpu, communicator, exchange, cases[0], 4);
      const auto made = [&](const PreparedMoe& p, const LayerOrder& order, Added added) {
        layer.fill(p);
        layer.run(p, order, added);
        return layer.output(p);
      };
      const Bytes of_first = made(first, orders[0], Added::residual),
                  of_other = made(other, orders[0], Added::residual);
      for (const LayerOrder& order : {orders[0], orders[3], orders[4]}) {
        const std::string words(name(order.schedule));
        expect_bytes(made(first, order, Added::shared), of_first, words);
        const Graph graph(gpu, [&] { layer.run(first, order, Added::shared); });
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
