// Experts that move while an exchange serves, on GPU ranks: captured graphs take the new map, and handles in flight
// keep the old one.
#include <gtest/gtest.h>

#include <vector>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/kernels.hpp"
#include "support/moving_experts.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
using detail::check_cuda;

class GpuMoeMoving : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoeMoving, testing::Values(2, 4));

// A rank's memory for calls of the exchange whose experts move, with the ids that its caller gives.
class GpuMovingSide {
 public:
  GpuMovingSide(GpuRank& gpu, const Group& group, const MoeExchange& of_places, Launch launch)
      : moe(gpu, group, of_places, launch), gpu_(gpu), rank_(static_cast<std::size_t>(group.rank())) {
    const MoeExchangeArgs& args = of_places.args();
    ids_ = gpu.device_memory(std::size_t{args.tokens} * args.top_k * sizeof(std::int32_t));
  }
  void fill(const PreparedMoe& p) {
    moe.fill(p);
    const std::vector<std::int32_t>& given = p.tokens[rank_].given;
    check_cuda(
        cudaMemcpyAsync(ids_, given.data(), given.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice, gpu_.stream()),
        "upload");
    gpu_.synchronize();
  }
  DispatchHandle dispatch(const MoeExchange& moving, const PreparedMoe& p, std::uint32_t map) const {
    DispatchArgs args = moe.dispatch_args(p, gpu_.stream());
    args.topk_ids = ids_;
    args.map = map;
    return moving.dispatch(args);
  }
  void combine(const MoeExchange& moving, const PreparedMoe& p, DispatchHandle handle) const {
    moving.combine(moe.combine_args(p, handle, gpu_.stream()));
  }
  void check(const PreparedMoe& p) const {
    moe.check_dispatch(p);
    moe.check_combine(p);
  }

  GpuMoe moe;

 private:
  GpuRank& gpu_;
  std::size_t rank_;
  std::byte* ids_;
};

// One graph, captured before the experts move, serves all maps. Behind each set_experts() the stream has a replay: the
// host waits for neither.
TEST_P(GpuMoeMoving, GraphsTakeTheNewMap) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  for (const MovingExperts& of : moving_experts(ranks)) {
    std::vector<PreparedMoe> prepared;
    for (std::uint32_t number = 0; number < 5; ++number) prepared.push_back(of.prepared(number, 3));
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      MoeExchange moving = MoeExchange::create(communicator, of.with);
      MoeExchange of_places = MoeExchange::create(communicator, of.of_places.args);
      {
        GpuMovingSide side(gpu, communicator, of_places, world.launch());
        side.fill(prepared[1]);
        const Graph graph(gpu, [&] { side.combine(moving, prepared[1], side.dispatch(moving, prepared[1], 1)); });
        graph.launch(gpu.stream());
        side.check(prepared[1]);
        for (std::uint32_t number = 2; number < 5; ++number) {
          side.fill(prepared[number]);
          if (static_cast<std::uint32_t>(rank) == number % ranks) delay(2ms, gpu.stream());
          moving.set_experts(of.map(number), 1, gpu.stream());
          graph.launch(gpu.stream());
          side.check(prepared[number]);
        }
        side.fill(prepared[0]);  // the other map has stayed
        side.combine(moving, prepared[0], side.dispatch(moving, prepared[0], 0));
        side.check(prepared[0]);
      }
      free_together(gpu, moving);
      free_together(gpu, of_places);
    }));
  }
}

// The map changes while a dispatch before it still waits in the stream, and between that and its combine.
TEST_P(GpuMoeMoving, CallsInTheStreamKeepTheirMap) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  for (const MovingExperts& of : moving_experts(ranks)) {
    const std::vector<PreparedMoe> prepared{of.prepared(0, 5), of.prepared(2, 6)};
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      MoeExchange moving = MoeExchange::create(communicator, of.with);
      MoeExchange of_places = MoeExchange::create(communicator, of.of_places.args);
      GpuMovingSide first(gpu, communicator, of_places, world.launch());
      GpuMovingSide second(gpu, communicator, of_places, world.launch());
      for (std::uint32_t round = 0; round < ranks; ++round) {
        moving.set_experts(of.map(0), 0, gpu.stream());
        first.fill(prepared[0]);
        second.fill(prepared[1]);
        if (static_cast<std::uint32_t>(rank) == round) delay(20ms, gpu.stream());
        const DispatchHandle early = first.dispatch(moving, prepared[0], 0);
        moving.set_experts(of.map(2), 0, gpu.stream());
        const DispatchHandle late = second.dispatch(moving, prepared[1], 0);
        moving.set_experts(of.map(1), 0, gpu.stream());
        first.combine(moving, prepared[0], early);
        second.combine(moving, prepared[1], late);
        first.check(prepared[0]);
        second.check(prepared[1]);
      }
      free_together(gpu, moving);
      free_together(gpu, of_places);
    }));
  }
}

// No rank may change a map while its stream is captured: replays would write it anew.
TEST_P(GpuMoeMoving, IsNotCaptured) {
  const std::uint32_t ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  const MovingExperts of = moving_experts(ranks)[0];
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange moving = MoeExchange::create(communicator, of.with);
    const Graph graph(gpu, [&] {
      expect_code([&] { moving.set_experts(of.map(2), 0, gpu.stream()); }, Errc::invalid_argument,
                  "recorded or captured");
    });
    free_together(gpu, moving);
  }));
}

}  // namespace
}  // namespace weft::test
