// Graphs of dispatch and combine that serve calls with other routings, and graphs that are replayed out of turn.
#pragma once

#include <chrono>
#include <vector>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/gpu_side.hpp"
#include "gpu/support/graph.hpp"
#include "support/moe_batches.hpp"

namespace weft::test {

// `batch`: of routings_for_two_graphs().
inline void replay_other_routings(GpuWorld& world, const Batch& batch) {
  const std::vector<PreparedMoe> prepared = prepare_all(batch, static_cast<std::uint32_t>(world.size()));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    gpu.reset();
    MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
    GpuMoe even(gpu, communicator, exchange, world.launch()), odd(gpu, communicator, exchange, world.launch());
    const auto call = [&](const GpuMoe& moe, const PreparedMoe& p) {
      moe.combine(p, moe.dispatch(p, gpu.stream()), gpu.stream());
    };
    const auto check = [](const GpuMoe& moe, const PreparedMoe& p) {
      moe.check_dispatch(p);
      moe.check_combine(p);
    };
    exchange_other_routings(GpuSide(world, gpu, communicator), prepared, even, odd, call, check);
    free_together(gpu, exchange);
  }));
}

// Graphs of one dispatch's launches that `replay` launches out of turn.
template <class Replay>
void expect_out_of_turn(const char* what, Replay replay) {
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, 2, 5);
  GpuWorld world = make_gpu_world(2, gpu_config(std::chrono::seconds(5)));
  const auto body = [&](Communicator& communicator, GpuRank& gpu, int) {
    const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    GpuMoe moe(gpu, communicator, exchange, world.launch());
    moe.fill(p);
    replay(gpu, exchange, moe.dispatch_args(p, gpu.stream(), true), [&] { moe.check_dispatch(p); });
  };
  for (const Ending& ending : run_gpu_world(world, body))
    expect_fault(ending, {Errc::overlap, Errc::peer_failed}, what);
}

}  // namespace weft::test
