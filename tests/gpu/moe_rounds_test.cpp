// Dispatch and combine on GPU ranks in rounds of experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/moe_replays.hpp"
#include "support/first_epoch.hpp"
#include "support/moe_rounds.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

class GpuMoeRounds : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoeRounds, testing::Values(1, 2, 4));

void in_every_division(GpuWorld& world, const std::vector<Batch>& batches) {
  const auto ranks = static_cast<std::uint32_t>(world.size());
  for (const Batch& batch : batches) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    const std::vector<Division> divisions = every_division(batch.front().args, ranks);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      GpuMoe moe(gpu, communicator, exchange, world.launch());
      // Each division has a call, and each call a division.
      const std::size_t turns = std::max(divisions.size(), prepared.size());
      for (std::size_t turn = 0; turn < turns; ++turn) {
        GpuMoeCall call{moe, prepared[turn % prepared.size()], gpu.stream()};
        moe.fill(call.p);
        exchange_in_rounds(exchange, call, divisions[turn % divisions.size()]);
      }
      free_together(gpu, exchange);
    }));
  }
}

void in_every_division(const std::vector<Batch>& batches, std::uint32_t ranks) {
  in_every_division(lasting_gpu_world(static_cast<int>(ranks)), batches);
}

TEST_P(GpuMoeRounds, EveryKindOfRouting) {
  in_every_division(in_rounds(in_every_layout(every_kind_of_routing(GetParam()), GetParam())), GetParam());
}

TEST_P(GpuMoeRounds, CastOnTheWay) {
  in_every_division(casts_on_the_way(GetParam()), GetParam());
}

TEST_P(GpuMoeRounds, RowsWithPayloads) {
  const std::vector<Batch> batches = in_rounds(in_every_layout(rows_with_payloads(GetParam()), GetParam()));
  in_every_division(batches, GetParam());
  in_every_division(on_whole_ring(batches), GetParam());
}

TEST_P(GpuMoeRounds, EveryKindOfRoutingThroughTheRing) {
  in_every_division(on_whole_ring(in_rounds(in_every_layout(every_kind_of_routing(GetParam()), GetParam()))),
                    GetParam());
}

TEST_P(GpuMoeRounds, CastOnTheWayThroughTheRing) {
  in_every_division(on_whole_ring(casts_on_the_way(GetParam())), GetParam());
}

TEST_P(GpuMoeRounds, EpochsWrap) {
  const std::vector<Batch> by_slots{every_kind_of_routing(GetParam())[0]}, by_ring = on_whole_ring(by_slots);
  for (const std::uint32_t first : {0x7ffffffdu, 0xfffffffdu}) {
    const FirstEpoch epoch(first);
    GpuWorld world = make_gpu_world(static_cast<int>(GetParam()), gpu_config());
    in_every_division(world, by_slots);
    in_every_division(world, by_ring);
  }
}

// A call of an exchange with replicas. Its results are those of an exchange whose experts are the replicas.
struct GpuCallOfReplicas : GpuMoeCall {
  std::byte* given;
  DispatchArgs dispatch() const {
    DispatchArgs args = GpuMoeCall::dispatch();
    args.topk_ids = given;
    return args;
  }
};

TEST_P(GpuMoeRounds, ReplicasServeInTurn) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  for (ReplicaCase replicas : replicas_in_turn(ranks)) {
    if (replicas.with.layout == RowLayout::rank_compact) continue;  // has one round
    serve_rounds(replicas);
    const PreparedMoe p = prepare(replicas.call, ranks, 3);
    const std::vector<Division> divisions = every_division(replicas.with, ranks);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      MoeExchange of_replicas = MoeExchange::create(communicator, replicas.with);
      MoeExchange of_experts = MoeExchange::create(communicator, replicas.call.args);
      GpuMoe moe(gpu, communicator, of_experts, world.launch());
      const std::vector<std::int32_t>& given = p.tokens[static_cast<std::size_t>(rank)].given;
      GpuCallOfReplicas call{{moe, p, gpu.stream()}, gpu.device_memory(given.size() * sizeof(std::int32_t))};
      detail::check_cuda(cudaMemcpyAsync(call.given, given.data(), given.size() * sizeof(std::int32_t),
                                         cudaMemcpyHostToDevice, gpu.stream()),
                         "upload");
      for (const Division& division : divisions) {
        moe.fill(p);
        exchange_in_rounds(of_replicas, call, division);
      }
      free_together(gpu, of_replicas);
      free_together(gpu, of_experts);
    }));
  }
}

// Captures all rounds on two streams: sums of each round are sent beside the next round's rows. Replays find other
// routings.
TEST_P(GpuMoeRounds, GraphsOnTwoStreamsWithOtherRoutings) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  std::vector<Batch> batches = in_rounds(routings_for_two_graphs(ranks));
  std::ranges::copy(on_whole_ring(batches), std::back_inserter(batches));
  for (const Batch& batch : batches) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    const Division division = every_division(batch.front().args, ranks)[2];
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      GpuMoe moe(gpu, communicator, exchange, world.launch());
      std::vector<cudaEvent_t> events(division.size() + 1);
      for (cudaEvent_t& event : events)
        detail::check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
      const auto order = [&](cudaEvent_t event, cudaStream_t before, cudaStream_t behind) {
        detail::check_cuda(cudaEventRecord(event, before), "cudaEventRecord");
        detail::check_cuda(cudaStreamWaitEvent(behind, event), "cudaStreamWaitEvent");
      };
      // As for layers: ranks that share a GPU have one stream each (gpu/moe_layer_test.cpp).
      const cudaStream_t second = world.shared() ? gpu.stream() : gpu.other_stream();
      const Graph graph(gpu, [&] {
        DispatchArgs there = moe.dispatch_args(prepared[0], gpu.stream(), false, 3);
        there.rounds = rounds_of(division);
        CombineArgs back = moe.combine_args(prepared[0], exchange.dispatch_send(there), second, 3);
        back.rounds = rounds_of(division);
        for (std::uint32_t round = 0; round < division.size(); ++round) {
          there.round = back.round = round;
          exchange.dispatch_wait(back.handle, there);
          order(events[round], gpu.stream(), second);
          exchange.combine_send(back);
        }
        exchange.combine_wait(back);
        order(events.back(), second, gpu.stream());
      });
      for (std::size_t i = 0; i < 2 * prepared.size(); i += 2) {
        const PreparedMoe& now = prepared[i % prepared.size()];
        moe.fill(now);
        graph.launch(gpu.stream());
        moe.check_dispatch(now);
        moe.check_combine(now);
      }
      for (cudaEvent_t event : events) static_cast<void>(cudaEventDestroy(event));
      free_together(gpu, exchange);
    }));
  }
}

// A wait of a round that is replayed without the one before.
TEST(GpuMoeInRounds, GraphsOutOfTurnAreFound) {
  const Division division{2, 2};
  const auto replay = [&](GpuRank& gpu, const MoeExchange& exchange, DispatchArgs args, auto check) {
    args.rounds = rounds_of(division);
    DispatchHandle handle;
    const Graph send(gpu, [&] { handle = exchange.dispatch_send(args); });
    const Graph first(gpu, [&] { exchange.dispatch_wait(handle, args); });
    args.round = 1;
    const Graph second(gpu, [&] { exchange.dispatch_wait(handle, args); });
    send.launch(gpu.stream());
    first.launch(gpu.stream());
    second.launch(gpu.stream());
    check();
    send.launch(gpu.stream());
    second.launch(gpu.stream());
    check();
  };
  expect_out_of_turn("a round out of turn", replay);
}

}  // namespace
}  // namespace weft::test
