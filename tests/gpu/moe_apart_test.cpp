// Dispatch and combine on GPU ranks whose sends and waits are separate launches.
#include <gtest/gtest.h>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/moe_replays.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

class GpuMoeApart : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoeApart, testing::Values(1, 2, 4));

TEST_P(GpuMoeApart, HalvesInterleave) {
  GpuWorld& world = lasting_gpu_world(static_cast<int>(GetParam()));
  for (const Batch& batch : in_every_layout(every_kind_of_routing(GetParam()), GetParam())) {
    expect_right_apart(world, batch);
  }
}

// Own rows stay out of the slots in joined calls of so many tokens, and not between halves.
TEST_P(GpuMoeApart, ManyTokensInterleave) {
  GpuWorld& world = lasting_gpu_world(static_cast<int>(GetParam()));
  for (const Batch& batch : entries_in_tallies(GetParam())) expect_right_apart(world, batch);
}

// Halves take turns on two streams, without an event of the caller's between those of dispatches, or of combines.
TEST_P(GpuMoeApart, HalvesOnStreamsThatAreOrdered) {
  const std::uint32_t ranks = GetParam();
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 4}}, ranks, 3);
  Config config = gpu_config();
  config.order_streams = true;
  GpuWorld world = make_gpu_world(static_cast<int>(ranks), config);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    GpuMoe moe(gpu, communicator, exchange, world.launch());
    moe.fill(p);
    const int rounds = world.shared() ? kMostAhead / 2 : 20;
    DispatchHandle handle;
    for (int round = 0; round < rounds; ++round) {
      handle = exchange.dispatch_send(moe.dispatch_args(p, gpu.stream(), true));
      exchange.dispatch_wait(handle, moe.dispatch_args(p, gpu.other_stream()));
    }
    moe.check_dispatch(p);
    exchange.combine_send(moe.combine_args(p, handle, gpu.other_stream()));
    exchange.combine_wait(moe.combine_args(p, handle, gpu.stream()));
    moe.check_combine(p);
    free_together(gpu, exchange);
  }));
}

// A graph of both halves, and one graph each for the send and the wait.
TEST_P(GpuMoeApart, GraphsOfHalves) {
  const std::uint32_t ranks = GetParam();
  const MoeExchangeArgs args = small_exchange();
  std::vector<PreparedMoe> prepared;
  for (std::uint32_t i = 0; i < 6; ++i) prepared.push_back(prepare({.args = args, .tokens = {6, 4}}, ranks, i));
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange exchange = MoeExchange::create(communicator, args);
    GpuMoe moe(gpu, communicator, exchange, world.launch());
    const PreparedMoe& p = prepared[0];
    DispatchHandle handle;
    const auto send = [&] { handle = exchange.dispatch_send(moe.dispatch_args(p, gpu.stream())); };
    const auto wait = [&] { exchange.dispatch_wait(handle, moe.dispatch_args(p, gpu.stream())); };
    const auto combine = [&] {
      exchange.combine_send(moe.combine_args(p, handle, gpu.stream()));
      exchange.combine_wait(moe.combine_args(p, handle, gpu.stream()));
    };
    const Graph whole(gpu, [&] {
      send();
      wait();
      combine();
    });
    const Graph sends(gpu, send), waits(gpu, wait), combines(gpu, combine);
    for (std::size_t i = 0; i < 4 * prepared.size(); ++i) {
      const PreparedMoe& now = prepared[i % prepared.size()];
      moe.fill(now);
      if (i % 2 == 0) {
        whole.launch(gpu.stream());
      } else {
        sends.launch(gpu.stream());
        waits.launch(gpu.stream());
        combines.launch(gpu.stream());
      }
      moe.check_dispatch(now);
      moe.check_combine(now);
    }
    free_together(gpu, exchange);
  }));
}

// Two exchanges that differ in row, top-k and weights. The dispatch of each is under way during the combine of the
// other: neither may use the other's slots, signals or handles.
TEST_P(GpuMoeApart, TwoExchangesThatDifferInterleave) {
  const std::uint32_t ranks = GetParam();
  for (const auto& [one, other] : batches_that_differ(ranks)) {
    const Batch &batch = one, &second = other;  // clang 14's lambdas can capture these
    const std::vector<PreparedMoe> prepared[] = {prepare_all(batch, ranks), prepare_all(second, ranks)};
    GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange exchanges[] = {MoeExchange::create(communicator, batch.front().args),
                                 MoeExchange::create(communicator, second.front().args)};
      GpuMoe moe[] = {{gpu, communicator, exchanges[0], world.launch()},
                      {gpu, communicator, exchanges[1], world.launch()}};
      DispatchHandle handles[2];
      // Half step `step` of exchange i sends its dispatch, and the next half step its combine.
      for (std::size_t step = 0; step <= 2 * batch.size(); ++step) {
        const std::size_t i = step % 2, call = step / 2;
        const PreparedMoe* const now = call < batch.size() ? &prepared[i][call] : nullptr;
        const PreparedMoe* const before = step > 0 ? &prepared[1 - i][(step - 1) / 2] : nullptr;
        if (now != nullptr) moe[i].fill(*now);
        if (before != nullptr)
          exchanges[1 - i].combine_send(moe[1 - i].combine_args(*before, handles[1 - i], gpu.stream()));
        if (now != nullptr) handles[i] = exchanges[i].dispatch_send(moe[i].dispatch_args(*now, gpu.stream()));
        if (before != nullptr)
          exchanges[1 - i].combine_wait(moe[1 - i].combine_args(*before, handles[1 - i], gpu.stream()));
        if (now != nullptr) exchanges[i].dispatch_wait(handles[i], moe[i].dispatch_args(*now, gpu.stream()));
        if (before != nullptr) moe[1 - i].check_combine(*before);
        if (now != nullptr) moe[i].check_dispatch(*now);
      }
      for (MoeExchange& exchange : exchanges) free_together(gpu, exchange);
    }));
  }
}

// A graph replays a send twice.
TEST(GpuMoeHalves, GraphsOutOfTurnAreFound) {
  const auto replay = [](GpuRank& gpu, const MoeExchange& exchange, const DispatchArgs& args, auto check) {
    DispatchHandle handle;
    const Graph send(gpu, [&] { handle = exchange.dispatch_send(args); });
    const Graph wait(gpu, [&] { exchange.dispatch_wait(handle, args); });
    send.launch(gpu.stream());
    wait.launch(gpu.stream());
    check();
    send.launch(gpu.stream());
    send.launch(gpu.stream());
    wait.launch(gpu.stream());
    check();
  };
  expect_out_of_turn("a second send", replay);
}

}  // namespace
}  // namespace weft::test
