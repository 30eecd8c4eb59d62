// Dispatch and combine on GPU ranks: the CPU tests' calls with the same reference, bit for bit. So CPU and GPU ranks
// have the same bits, too.
#include <gtest/gtest.h>

#include <random>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/kernels.hpp"
#include "gpu/support/moe_replays.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

// Runs every batch on an exchange of its own.
void run_batches(const std::vector<Batch>& batches, std::uint32_t ranks) {
  for (const Batch& batch : batches) expect_right(lasting_gpu_world(static_cast<int>(ranks)), batch);
}

class GpuMoeCalls : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoeCalls, testing::Values(1, 2, 3, 4, 8));

TEST_P(GpuMoeCalls, EveryKindOfRouting) {
  run_batches(in_every_layout(every_kind_of_routing(GetParam()), GetParam()), GetParam());
}

TEST_P(GpuMoeCalls, RowsOfEveryTypeBitForBit) {
  run_batches(in_every_layout(rows_of_every_type(GetParam()), GetParam()), GetParam());
}

TEST_P(GpuMoeCalls, RowsWithPayloads) {
  run_batches(in_every_layout(rows_with_payloads(GetParam()), GetParam()), GetParam());
}

TEST_P(GpuMoeCalls, PayloadsOfEntriesInTallies) {
  run_batches(payloads_of_entries_in_tallies(GetParam()), GetParam());
}

TEST_P(GpuMoeCalls, CastOnTheWay) {
  run_batches(in_every_layout(casts_on_the_way(GetParam()), GetParam()), GetParam());
}

TEST_P(GpuMoeCalls, EntriesInTallies) {
  run_batches(entries_in_tallies(GetParam()), GetParam());
}

TEST_P(GpuMoeCalls, ExpertsWhereTheCallerWants) {
  run_batches(in_every_layout(experts_where_the_caller_wants(GetParam()), GetParam()), GetParam());
}

TEST_P(GpuMoeCalls, RowsWithoutRoomAreDropped) {
  run_batches(rows_without_room(), GetParam());
}

// More tokens than a block has warps: grids have many blocks, and one rank sends several rows to an expert.
TEST_P(GpuMoeCalls, ManyTokens) {
  const MoeExchangeArgs args{.tokens = 40, .hidden = 512, .experts = 32, .top_k = 8};
  MoeCase c{.args = args, .tokens = {40, 33}, .residual = true};
  c.args.capacity = GetParam() * args.tokens * args.top_k / 4;
  run_batches(in_every_layout({{c}}, GetParam()), GetParam());
}

// The state that a call leaves behind must suit any next call, for late ranks and any grids.
TEST_P(GpuMoeCalls, CountsAndGridsChangeFromCallToCall) {
  const std::uint32_t ranks = GetParam();
  std::mt19937 random(ranks);
  const MoeExchangeArgs args = small_exchange();
  std::vector<PreparedMoe> prepared;
  for (std::uint32_t i = 0; i < 60; ++i) {
    MoeCase c{.args = args, .tokens = {}, .choice = random() % 4 == 0 ? Choice::holes : Choice::uniform};
    for (std::uint32_t rank = 0; rank < ranks; ++rank) c.tokens.push_back(random() % 7);
    prepared.push_back(prepare(c, ranks, i));
  }
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    MoeExchange exchange = MoeExchange::create(communicator, args);
    std::mt19937 own(static_cast<std::uint32_t>(rank));
    const auto nap = [&] { delay(std::chrono::microseconds(own() % 3 == 0 ? 300 : 0), gpu.stream()); };
    for (const PreparedMoe& p : prepared) {
      gpu.reset();
      const Launch launch{.blocks = 2 + static_cast<int>(own() % 5), .threads = 32 * (1 + static_cast<int>(own() % 8))};
      GpuMoe moe(gpu, communicator, exchange, launch);
      moe.fill(p);
      nap();
      const DispatchHandle handle = moe.dispatch(p, gpu.stream());
      nap();
      moe.combine(p, handle, gpu.stream());
      moe.check_dispatch(p);
      moe.check_combine(p);
    }
    free_together(gpu, exchange);
  }));
}

// A graph serves all calls with so many tokens: rows, routing and counts change in place. Another graph and eager calls
// take turns with it.
TEST_P(GpuMoeCalls, GraphsReplayedWithOtherRoutings) {
  for (const Batch& batch : routings_for_two_graphs(GetParam())) {
    replay_other_routings(lasting_gpu_world(static_cast<int>(GetParam())), batch);
  }
}

// Two batches under way, as in two-batch overlap: one's combine runs beside the other's dispatch.
TEST_P(GpuMoeCalls, DispatchAndCombineOnTwoStreams) {
  const std::uint32_t ranks = GetParam();
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p[] = {prepare({.args = args, .tokens = {5, 2}}, ranks, 1),
                           prepare({.args = args, .tokens = {1, 6}}, ranks, 2)};
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange exchange = MoeExchange::create(communicator, args);
    GpuMoe moe[] = {{gpu, communicator, exchange, world.launch()}, {gpu, communicator, exchange, world.launch()}};
    cudaEvent_t dispatched = nullptr;
    check_cuda(cudaEventCreateWithFlags(&dispatched, cudaEventDisableTiming), "cudaEventCreate");
    for (int round = 0; round < 30; ++round) {
      DispatchHandle handles[2];
      for (int batch = 0; batch < 2; ++batch) moe[batch].fill(p[batch]);
      for (int batch = 0; batch < 2; ++batch) {
        handles[batch] = moe[batch].dispatch(p[batch], gpu.stream());
        check_cuda(cudaEventRecord(dispatched, gpu.stream()), "cudaEventRecord");
        check_cuda(cudaStreamWaitEvent(gpu.other_stream(), dispatched, 0), "cudaStreamWaitEvent");
        moe[batch].combine(p[batch], handles[batch], gpu.other_stream());
      }
      for (int batch = 0; batch < 2; ++batch) {
        moe[batch].check_dispatch(p[batch]);
        moe[batch].check_combine(p[batch]);
      }
    }
    check_cuda(cudaEventDestroy(dispatched), "cudaEventDestroy");
    free_together(gpu, exchange);
  }));
}

// `run` makes and checks the calls three times on two ranks: on each bank, and once more.
template <class Run>
void thrice(const std::vector<PreparedMoe>& batch, Run run) {
  GpuWorld& world = lasting_gpu_world(2);
  for (const PreparedMoe& p : batch) {
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      gpu.reset();
      MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
      GpuMoe moe(gpu, communicator, exchange, world.launch());
      for (int call = 0; call < 3; ++call) {
        moe.fill(p);
        run(moe, gpu, p);
      }
      free_together(gpu, exchange);
    }));
  }
}

// Any bit pattern of a pack counts as arrived.
TEST(GpuMoeRows, OfAllBitPatterns) {
  thrice(all_bit_patterns(), [](const GpuMoe& moe, GpuRank& gpu, const PreparedMoe& p) {
    moe.combine(p, moe.dispatch(p, gpu.stream()), gpu.stream());
    moe.check_dispatch(p);
  });
}

// A sum of a single row returns its bits, except that every NaN becomes the same one.
TEST(GpuMoeSpecialValues, RowsOfOneExpertComeBackAsTheyAre) {
  thrice(results_of_all_bit_patterns(),
         [](const GpuMoe& moe, GpuRank& gpu, const PreparedMoe& p) { run_on_gpu_rank(moe, gpu, p); });
}

TEST_P(GpuMoeCalls, SumsOfSpecialValues) {
  run_batches(in_every_layout(sums_of_special_values(GetParam()), GetParam()), GetParam());
}

TEST(GpuMoeLife, GroupsHaveExchangesAndGoOnAfterReleaseAndAcquire) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  GpuWorld world = make_gpu_world(4, gpu_config());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const Group group = communicator.split(rank % 2);
    const MoeExchange exchange = MoeExchange::create(group, args);
    GpuMoe moe(gpu, group, exchange, world.launch());
    moe.fill(p);
    run_on_gpu_rank(moe, gpu, p);
    communicator.release();
    expect_says(error_of([&] { moe.dispatch(p, gpu.stream()); }), "released");
    communicator.acquire();
    moe.fill(p);
    run_on_gpu_rank(moe, gpu, p);
  }));
}

}  // namespace
}  // namespace weft::test
