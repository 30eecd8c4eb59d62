// Graphs of dispatch and combine that serve calls with other routings.
#pragma once

#include <vector>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/gpu_side.hpp"
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

}  // namespace weft::test
