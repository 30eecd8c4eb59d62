// Dispatches and combines on GPU ranks, one after the other and side by side, of one exchange and of two.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/kernels.hpp"
#include "support/moe_batches.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
using detail::check_cuda;

class GpuMoeSequence : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoeSequence, testing::Values(4));

// A thousand calls of each, some of them before the host's last check. Every result is checked, and each rank is late
// at times of its own.
void make_a_thousand_calls(const MoeExchangeArgs& args, std::uint32_t ranks) {
  std::vector<PreparedMoe> prepared;
  for (std::uint32_t i = 0; i < 16; ++i) {
    constexpr Choice choices[] = {Choice::uniform, Choice::holes, Choice::uniform, Choice::none};
    MoeCase c{.args = args, .tokens = {}, .choice = choices[i % 4], .residual = i % 3 == 0};
    for (std::uint32_t rank = 0; rank < ranks; ++rank) c.tokens.push_back((i * 5 + rank * 3) % (args.tokens + 1));
    prepared.push_back(prepare(c, ranks, i));
  }
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    MoeExchange exchange = MoeExchange::create(communicator, args);
    std::vector<GpuMoe> memory;
    for (int i = 0; i < kMostAhead / 2; ++i) memory.emplace_back(gpu, communicator, exchange, world.launch());
    std::mt19937 random(static_cast<std::uint32_t>(rank));
    const auto nap = [&] {
      if (random() % 4 == 0) delay(std::chrono::microseconds(random() % 300), gpu.stream());
    };
    for (std::size_t call = 0; call < 1000; call += memory.size()) {
      const auto of = [&](std::size_t i) -> const PreparedMoe& { return prepared[(call + i) * 7 % prepared.size()]; };
      for (std::size_t i = 0; i < memory.size(); ++i) memory[i].fill(of(i));
      for (std::size_t i = 0; i < memory.size(); ++i) {
        nap();
        const DispatchHandle handle = memory[i].dispatch(of(i), gpu.stream());
        nap();
        memory[i].combine(of(i), handle, gpu.stream());
      }
      for (std::size_t i = 0; i < memory.size(); ++i) {
        memory[i].check_dispatch(of(i));
        memory[i].check_combine(of(i));
      }
    }
    free_together(gpu, exchange);
  }));
}

TEST_P(GpuMoeSequence, AThousandCallsWithDelays) {
  make_a_thousand_calls(small_exchange(), GetParam());
}

// Up to 48 tokens share 32 places.
TEST_P(GpuMoeSequence, AThousandCallsByARingWithDelays) {
  MoeExchangeArgs args = small_exchange();
  args.tokens = 48;
  args.path = RowPath::ring;
  args.ring_rows = kRingPlaces;
  make_a_thousand_calls(args, GetParam());
}

// The handles of two exchanges in every order. On two streams the dispatch of each runs beside the combine of the
// other.
TEST_P(GpuMoeSequence, TwoExchangesInterleaveAndRunBesideEachOther) {
  const std::uint32_t ranks = GetParam();
  MoeExchangeArgs wide = small_exchange(), narrow = small_exchange();
  narrow.top_k = 1;
  narrow.hidden = 64;
  const PreparedMoe p[] = {prepare({.args = wide, .tokens = {5, 2}}, ranks, 1),
                           prepare({.args = narrow, .tokens = {6, 3}}, ranks, 2)};
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange exchanges[] = {MoeExchange::create(communicator, wide), MoeExchange::create(communicator, narrow)};
    GpuMoe moe[] = {{gpu, communicator, exchanges[0], world.launch()},
                    {gpu, communicator, exchanges[1], world.launch()}};
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    const auto order = [&](cudaStream_t before, cudaStream_t after) {
      check_cuda(cudaEventRecord(event, before), "cudaEventRecord");
      check_cuda(cudaStreamWaitEvent(after, event, 0), "cudaStreamWaitEvent");
    };
    for (int round = 0; round < 40; ++round) {
      const int a = round % 2, b = 1 - a;
      for (const int i : {a, b}) moe[i].fill(p[i]);
      if (round % 4 < 2) {  // on one stream; combines in either order
        const DispatchHandle first = moe[a].dispatch(p[a], gpu.stream());
        const DispatchHandle second = moe[b].dispatch(p[b], gpu.stream());
        const bool in_turn = round % 8 < 4;
        moe[in_turn ? a : b].combine(p[in_turn ? a : b], in_turn ? first : second, gpu.stream());
        moe[in_turn ? b : a].combine(p[in_turn ? b : a], in_turn ? second : first, gpu.stream());
      } else {
        const DispatchHandle first = moe[a].dispatch(p[a], gpu.stream());
        order(gpu.stream(), gpu.other_stream());
        moe[a].combine(p[a], first, gpu.other_stream());                    // beside …
        const DispatchHandle second = moe[b].dispatch(p[b], gpu.stream());  // … this one
        moe[b].combine(p[b], second, gpu.stream());
        order(gpu.other_stream(), gpu.stream());
      }
      for (const int i : {a, b}) {
        moe[i].check_dispatch(p[i]);
        moe[i].check_combine(p[i]);
      }
    }
    check_cuda(cudaEventDestroy(event), "cudaEventDestroy");
    for (MoeExchange& exchange : exchanges) free_together(gpu, exchange);
  }));
}

// An exchange with replicas gives the bits of one whose experts are the replicas, if the caller chooses among them by
// the rule.
TEST_P(GpuMoeSequence, ReplicasServeTokensInTurn) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  for (const ReplicaCase& replicas : replicas_in_turn(ranks)) {
    std::vector<PreparedMoe> prepared;
    for (std::uint32_t i = 0; i < 4; ++i) prepared.push_back(prepare(replicas.call, ranks, i));
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      MoeExchange of_replicas = MoeExchange::create(communicator, replicas.with);
      MoeExchange of_experts = MoeExchange::create(communicator, replicas.call.args);
      GpuMoe moe(gpu, communicator, of_experts, world.launch());
      std::byte* const ids = gpu.device_memory(replicas.with.tokens * replicas.with.top_k * sizeof(std::int32_t));
      for (const PreparedMoe& p : prepared) {
        const std::vector<std::int32_t>& given = p.tokens[static_cast<std::size_t>(rank)].given;
        moe.fill(p);
        check_cuda(cudaMemcpyAsync(ids, given.data(), given.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice,
                                   gpu.stream()),
                   "upload");
        DispatchArgs args = moe.dispatch_args(p, gpu.stream());
        args.topk_ids = ids;
        const DispatchHandle handle = of_replicas.dispatch(args);
        moe.check_dispatch(p);
        of_replicas.combine(moe.combine_args(p, handle, gpu.stream()));
        moe.check_combine(p);
      }
      free_together(gpu, of_replicas);
      free_together(gpu, of_experts);
    }));
  }
}

// The others have waited longest for the rank that begins late. No rank waits for itself.
TEST_P(GpuMoeSequence, ALateRankIsNamedByItsWait) {
  const std::uint32_t ranks = GetParam();
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, ranks, 5);
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    GpuMoe moe(gpu, communicator, exchange, world.launch());
    auto* const waits = reinterpret_cast<std::uint64_t*>(gpu.device_memory(ranks * sizeof(std::uint64_t)));
    const auto begin_late = [&](std::uint32_t late) {
      check_cuda(cudaMemsetAsync(waits, 0xff, ranks * sizeof(std::uint64_t), gpu.stream()), "cudaMemsetAsync");
      barrier(communicator, {.stream = gpu.stream()});
      gpu.synchronize();
      if (static_cast<std::uint32_t>(rank) == late) delay(300ms, gpu.stream());
    };
    const auto expect_named = [&](std::uint32_t late) {
      std::vector<std::uint64_t> seen(ranks);
      check_cuda(cudaMemcpy(seen.data(), waits, ranks * sizeof(std::uint64_t), cudaMemcpyDeviceToHost), "download");
      EXPECT_EQ(seen[static_cast<std::size_t>(rank)], 0u);
      for (std::uint32_t source = 0; source < ranks; ++source) {
        EXPECT_NE(seen[source], ~std::uint64_t{0});
        if (source != late && static_cast<std::uint32_t>(rank) != late) {
          EXPECT_GT(seen[late], seen[source]);
        }
      }
    };
    for (std::uint32_t late = 0; late < ranks; ++late) {
      moe.fill(p);
      begin_late(late);
      DispatchArgs dispatch = moe.dispatch_args(p, gpu.stream());
      dispatch.source_wait_ns = waits;
      const DispatchHandle handle = exchange.dispatch(dispatch);
      moe.check_dispatch(p);
      expect_named(late);
      begin_late(late);
      CombineArgs combine = moe.combine_args(p, handle, gpu.stream());
      combine.source_wait_ns = waits;
      exchange.combine(combine);
      moe.check_combine(p);
      expect_named(late);
    }
    free_together(gpu, exchange);
  }));
}

// A graph for the largest number of tokens serves fewer: a token whose ids are −1 is not sent.
TEST(GpuMoePadding, AGraphServesFewerTokensThanItWasMadeFor) {
  constexpr std::uint32_t ranks = 4;
  GpuWorld& world = lasting_gpu_world(ranks);
  for (const std::vector<PreparedMoe>& prepared : fewer_tokens_than_recorded(ranks)) {
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange exchange = MoeExchange::create(communicator, prepared[0].call.args);
      GpuMoe moe(gpu, communicator, exchange, world.launch());
      const Graph graph(gpu, [&] {
        const DispatchHandle handle = moe.dispatch(prepared[0], gpu.stream());
        moe.combine(prepared[0], handle, gpu.stream());
      });
      for (std::size_t replay = 0; replay < 2 * prepared.size(); ++replay) {
        const PreparedMoe& p = prepared[replay % prepared.size()];
        moe.fill(p);
        graph.launch(gpu.stream());
        moe.check_dispatch(p);
        moe.check_combine(p);
      }
      free_together(gpu, exchange);
    }));
  }
}

// A rank without tokens reads and writes none, so its token tensors may be null, in one call and in halves.
TEST(GpuMoeIdle, RanksWithoutTokensNeedNoTensorsOfThem) {
  GpuWorld& world = lasting_gpu_world(2);
  for (const Batch& batch : in_every_layout({{{.args = small_exchange(), .tokens = {6, 0}, .residual = true}}}, 2)) {
    const PreparedMoe p = prepare(batch[0], 2, 5);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange exchange = MoeExchange::create(communicator, batch[0].args);
      GpuMoe moe(gpu, communicator, exchange, world.launch());
      DispatchArgs to = moe.dispatch_args(p, gpu.stream());
      CombineArgs back = moe.combine_args(p, {}, gpu.stream());
      if (to.tokens == 0) {
        to.input = to.topk_ids = to.topk_weights = nullptr;
        back.residual = back.output = nullptr;
      }
      for (const bool halves : {false, true}) {
        moe.fill(p);
        back.handle = halves ? exchange.dispatch_send(to) : exchange.dispatch(to);
        if (halves) exchange.dispatch_wait(back.handle, to);
        moe.check_dispatch(p);
        halves ? exchange.combine_send(back) : exchange.combine(back);
        if (halves) exchange.combine_wait(back);
        moe.check_combine(p);
      }
      free_together(gpu, exchange);
    }));
  }
}

}  // namespace
}  // namespace weft::test
