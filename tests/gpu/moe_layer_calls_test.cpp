// Calls of layers on GPU ranks: two in flight at once, choices of tables, and processors.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gpu/support/gpu_layer.hpp"
#include "gpu/support/graph.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

class GpuLayerCalls : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuLayerCalls, testing::Values(1, 2, 4));

struct OrderEvent {
  OrderEvent() { check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate"); }
  ~OrderEvent() { static_cast<void>(cudaEventDestroy(event)); }
  OrderEvent(const OrderEvent&) = delete;
  OrderEvent& operator=(const OrderEvent&) = delete;
  void order(cudaStream_t before, cudaStream_t behind) const {
    check_cuda(cudaEventRecord(event, before), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(behind, event), "cudaStreamWaitEvent");
  }
  cudaEvent_t event = nullptr;
};

// Layers of two exchanges: the second one runs from its begin to its end while the first one is in its first GEMM.
// Eagerly, and in one graph.
TEST_P(GpuLayerCalls, TwoLayersAreInFlightAtOnce) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  const LayerCase of = layers_of_every_kind(ranks)[0][0];
  const PreparedMoe p = prepare(of.call, ranks, 3), other = prepare(of.call, ranks, 4);
  const std::vector<LayerOrder> orders = every_order(world, of.call.args);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange first = MoeExchange::create(communicator, of.call.args);
    MoeExchange second = MoeExchange::create(communicator, of.call.args);
    {
      GpuLayer one(gpu, communicator, first, of, blocks_of_part(world));
      GpuLayer two(gpu, communicator, second, of, blocks_of_part(world));
      const Bytes of_one = one.made(p, orders[0]), of_two = two.made(other, orders[0]);
      const cudaStream_t beside = may_fork(world) ? gpu.other_stream() : gpu.stream();
      const OrderEvent begin, end;
      for (std::size_t i = 0; i < orders.size(); ++i) {
        const LayerOrder &order = orders[i], &order_beside = orders[orders.size() - 1 - i];
        const auto run = [&] {
          MoeLayerCall call = one.call(p, order);
          call.up = [&, up = call.up, within = false](const ExpertGemm& gemm) mutable {
            up(gemm);
            if (std::exchange(within, true)) return;
            MoeLayerCall inner = two.call(other, order_beside);
            inner.stream = beside;
            if (beside != gpu.stream()) begin.order(gpu.stream(), beside);
            two.run(inner);
            if (beside != gpu.stream()) end.order(beside, gpu.stream());
          };
          one.run(call);
        };
        const auto check = [&](const std::string& words) {
          expect_bytes(one.output(p), of_one, words + "the first layer");
          expect_bytes(two.output(other), of_two, words + "the second layer");
        };
        one.fill(p);
        two.fill(other);
        run();
        check("");
        const Graph graph(gpu, run);
        one.fill(p);
        two.fill(other);
        graph.launch(gpu.stream());
        check("in a graph, ");
      }
    }
    free_together(gpu, first);
    free_together(gpu, second);
  }));
}

// The step of a table for the most tokens of a rank gives schedule, rounds and processors.
TEST(GpuLayerChoice, ATableChooses) {
  using detail::LayerStep;
  LayerCase of = layers_of_every_kind(1)[0][0];
  of.call.tokens = {2};
  const PreparedMoe p = prepare(of.call, 1, 3);
  const std::vector<LayerStep> steps{
      {.up_to = 2, .schedule = LayerSchedule::rounds, .rounds = 3, .experts = {1, 6, 1}, .sms = {.up = 5, .down = 6}},
      {.up_to = 4, .sms = {.up = 7}},
      {.schedule = LayerSchedule::combine_rounds, .rounds = 2}};
  const detail::TuningTable table{
      .operation = detail::TunedOperation::moe_layer,
      .layer = {.hidden = 128, .intermediate = kLayerMiddle, .local_experts = 8, .top_k = 3},
      .origin = "measured",
      .layer_steps = steps};
  GpuWorld world = make_gpu_world(1, with_tables(gpu_config(), "gpu_layer_choice", {table}, 1));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    GpuLayer layer(gpu, communicator, exchange, of, 4);
    const Bytes wanted = layer.made(p, {LayerSchedule::plain, {}});
    const auto gemms_of = [&](std::uint32_t most_tokens) {
      std::string gemms;
      MoeLayerCall call = layer.call(p, {LayerSchedule::automatic, {}});
      call.most_tokens = most_tokens;
      for (GroupedGemm* const gemm : {&call.up, &call.down}) {
        *gemm = [&gemms, make = *gemm](const ExpertGemm& made) {
          gemms += " " + std::to_string(made.experts) + ":" + std::to_string(made.num_sms);
          make(made);
        };
      }
      layer.fill(p);
      layer.run(call);
      expect_bytes(layer.output(p), wanted, "the output of automatic");
      return gemms;
    };
    EXPECT_EQ(gemms_of(2), " 1:5 1:6 6:5 6:6 1:5 1:6");
    EXPECT_EQ(gemms_of(4), " 8:7 8:0");
    EXPECT_EQ(gemms_of(5), " 8:0 4:0 4:0");
    free_together(gpu, exchange);
  }));
}

// The blocks of the activations that a call has captured.
std::vector<unsigned> blocks_of_activations(const GpuRank& gpu, const GpuLayer& layer, MoeLayerCall call) {
  std::vector<unsigned> blocks;
  call.observe = [&](const LayerPart& part) {
    if (part.which != LayerPart::Which::activation || part.begins) return;
    cudaStreamCaptureStatus status{};
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    std::size_t count = 0;
    check_cuda(cudaStreamGetCaptureInfo(part.stream, &status, nullptr, nullptr, &nodes, &edges, &count),
               "cudaStreamGetCaptureInfo");
    EXPECT_EQ(count, 1u);
    if (count != 1) return;
    cudaKernelNodeParams kernel{};
    check_cuda(cudaGraphKernelNodeGetParams(nodes[0], &kernel), "cudaGraphKernelNodeGetParams");
    blocks.push_back(kernel.gridDim.x);
  };
  const Graph graph(gpu, [&] { layer.run(call); });
  return blocks;
}

// Beside communication it would take the processors of other parts.
TEST(GpuLayerBudget, TheActivationKeepsToTheProcessorsOfTheUpGemm) {
  const LayerCase of = layers_of_every_kind(1)[0][0];
  const PreparedMoe p = prepare(of.call, 1, 3);
  expect_all_well(run_gpu_world(lasting_gpu_world(1), [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    GpuLayer layer(gpu, communicator, exchange, of, 4);
    MoeLayerCall plain = layer.call(p, {LayerSchedule::plain, {}});
    const Division halves{4, 4};
    MoeLayerCall rounds = layer.call(p, {LayerSchedule::rounds, halves});
    rounds.rounds = rounds_of(halves);
    const std::vector<unsigned> all = blocks_of_activations(gpu, layer, plain);
    ensure(all.size() == 1 && all[0] > 5, "an activation without a limit takes few processors");
    plain.up_num_sms = rounds.up_num_sms = 5;
    EXPECT_EQ(blocks_of_activations(gpu, layer, plain), (std::vector<unsigned>{5}));
    EXPECT_EQ(blocks_of_activations(gpu, layer, rounds), (std::vector<unsigned>{5, 5}));
    free_together(gpu, exchange);
  }));
}

}  // namespace
}  // namespace weft::test
