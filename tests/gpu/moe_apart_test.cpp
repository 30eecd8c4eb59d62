// Dispatch and combine whose sends and waits are launches of their own, on GPU ranks.
#include <gtest/gtest.h>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/graph.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

class GpuMoeApart : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoeApart, testing::Values(1, 2, 4));

// Sends and waits on grids of other sizes, the send of a dispatch between the halves of the combine before it.
TEST_P(GpuMoeApart, HalvesInterleave) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  for (const Batch& batch : in_every_layout(every_kind_of_routing(ranks), ranks)) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      Exchange exchange = Exchange::create(communicator, batch.front().args);
      GpuMoe moe[] = {{gpu, communicator, exchange, world.launch()}, {gpu, communicator, exchange, world.launch()}};
      Ticket tickets[2];
      for (std::size_t i = 0; i <= prepared.size(); ++i) {
        GpuMoe &now = moe[i % 2], &last = moe[1 - i % 2];
        const PreparedMoe* const p = i < prepared.size() ? &prepared[i] : nullptr;
        const PreparedMoe* const before = i > 0 ? &prepared[i - 1] : nullptr;
        if (p != nullptr) now.fill(*p);
        if (before != nullptr) exchange.combine_send(last.combine_args(*before, tickets[1 - i % 2], gpu.stream(), 2));
        if (p != nullptr) tickets[i % 2] = exchange.dispatch_send(now.dispatch_args(*p, gpu.stream(), false, 3));
        if (before != nullptr) exchange.combine_wait(last.combine_args(*before, tickets[1 - i % 2], gpu.stream(), 4));
        if (p != nullptr) exchange.dispatch_wait(tickets[i % 2], now.dispatch_args(*p, gpu.stream(), false, 2));
        if (before != nullptr) last.check_combine(*before);
        if (p != nullptr) now.check_dispatch(*p);
      }
      free_together(gpu, exchange);
    }));
  }
}

// A graph of the halves, and one of the send and one of the wait.
TEST_P(GpuMoeApart, GraphsOfHalves) {
  const std::uint32_t ranks = GetParam();
  const ExchangeArgs args = small_exchange();
  std::vector<PreparedMoe> prepared;
  for (std::uint32_t i = 0; i < 6; ++i) prepared.push_back(prepare({.args = args, .tokens = {6, 4}}, ranks, i));
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    Exchange exchange = Exchange::create(communicator, args);
    GpuMoe moe(gpu, communicator, exchange, world.launch());
    const PreparedMoe& p = prepared[0];
    Ticket ticket;
    const auto send = [&] { ticket = exchange.dispatch_send(moe.dispatch_args(p, gpu.stream())); };
    const auto wait = [&] { exchange.dispatch_wait(ticket, moe.dispatch_args(p, gpu.stream())); };
    const auto combine = [&] {
      exchange.combine_send(moe.combine_args(p, ticket, gpu.stream()));
      exchange.combine_wait(moe.combine_args(p, ticket, gpu.stream()));
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

// A send that is replayed twice.
TEST(GpuMoeHalves, GraphsOutOfTurnAreFound) {
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, 2, 5);
  GpuWorld world = make_gpu_world(2, gpu_config(std::chrono::seconds(5)));
  for (const Ending& ending : run_gpu_world(world, [&](Communicator&communicator, GpuRank&gpu, int) {
         const Exchange exchange = Exchange::create(communicator, p.call.args);
         GpuMoe moe(gpu, communicator, exchange, world.launch());
         moe.fill(p);
         Ticket ticket;
         const Graph send(gpu, [&] { ticket = exchange.dispatch_send(moe.dispatch_args(p, gpu.stream(), true)); });
         const Graph wait(gpu, [&] { exchange.dispatch_wait(ticket, moe.dispatch_args(p, gpu.stream())); });
         send.launch(gpu.stream());
         wait.launch(gpu.stream());
         moe.check_dispatch(p);
         send.launch(gpu.stream());
         send.launch(gpu.stream());
         wait.launch(gpu.stream());
         moe.check_dispatch(p);
       })) {
    expect_fault(ending, {Errc::overlap, Errc::peer_failed}, "a second send");
  }
}

}  // namespace
}  // namespace weft::test
