// Exchanges on GPU ranks that are freed before their communicator.
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <optional>
#include <vector>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/kernels.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
using detail::check_cuda;

// A configuration with room for `exchanges` exchanges.
Config config_for(int exchanges) {
  Config config = gpu_config();
  config.max_groups = 63 - 2 * exchanges;
  config.group_one_shot_bytes = config.group_two_shot_bytes = 1024;
  return config;
}

void use(const MoeExchange& exchange, const PreparedMoe& p, Communicator& communicator, GpuRank& gpu, Launch launch) {
  gpu.reset();
  GpuMoe moe(gpu, communicator, exchange, launch);
  moe.fill(p);
  run_on_gpu_rank(moe, gpu, p);
}

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

class GpuMoeFree : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoeFree, testing::Values(4));

// An exchange that is used, in every layout in turn, and a large one. CUDA takes memory for good when it first runs a
// kernel. So what is left half way through the rounds is compared with the end.
TEST_P(GpuMoeFree, GivesMemoryAndPlaceBackTimeAndAgain) {
  const std::uint32_t ranks = GetParam();
  std::vector<PreparedMoe> prepared;
  for (const Batch& batch : in_every_layout({{{.args = small_exchange(), .tokens = {6, 3}}}}, ranks)) {
    prepared.push_back(prepare(batch[0], ranks, 5));
  }
  const MoeExchangeArgs large{.tokens = 1024, .hidden = 8192, .experts = 8, .top_k = 1};
  const std::size_t large_bytes = moe_exchange_memory(static_cast<int>(ranks), large).window;
  GpuWorld world = make_gpu_world(static_cast<int>(ranks), config_for(2));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    const std::size_t window = communicator.memory().window;
    const auto left = [&] {
      barrier(communicator, {.stream = gpu.stream()});
      gpu.synchronize();  // the ranks of this GPU have freed theirs, too
      return free_bytes();
    };
    std::size_t half_way = 0;
    for (std::size_t round = 0; round < 12; ++round) {
      const PreparedMoe& p = prepared[round % prepared.size()];
      MoeExchange unused = MoeExchange::create(communicator, large);
      MoeExchange used = MoeExchange::create(communicator, p.call.args);
      for (std::size_t call = 0; call <= round % 2; ++call) use(used, p, communicator, gpu, world.launch());
      (round % 2 == 0 ? unused : used).free();
      (round % 2 == 0 ? used : unused).free();
      EXPECT_EQ(communicator.memory().window, window);
      if (round == 5) half_way = left();
    }
    EXPECT_GT(left() + large_bytes, half_way);
  }));
}

// A GPU loses as much memory as moe_exchange_memory() says, rounded up to pages.
TEST_P(GpuMoeFree, TakesWhatTheFormulaSays) {
  const auto ranks = static_cast<int>(GetParam());
  const MoeExchangeArgs large{.tokens = 1024, .hidden = 8192, .experts = 8, .top_k = 1};
  const std::size_t window = moe_exchange_memory(ranks, large).window, pages = std::size_t{4} << 20;
  GpuWorld world = make_gpu_world(ranks, config_for(1));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const auto meet = [&] {
      barrier(communicator, {.stream = gpu.stream()});
      gpu.synchronize();
    };
    MoeExchange::create(communicator, large).free();  // makes the allocations for good
    // CUDA may take memory for itself at any time, but never gives it back: the least of three rounds is Weft's.
    std::size_t taken = SIZE_MAX;
    for (int round = 0; round < 3; ++round) {
      meet();
      const std::size_t before = free_bytes();
      meet();
      MoeExchange exchange = MoeExchange::create(communicator, large);
      meet();
      taken = std::min(taken, before - free_bytes());
      meet();
      exchange.free();
    }
    std::size_t here = 0;  // ranks on this GPU
    for (int other = rank % gpu_count(); other < ranks; other += gpu_count()) ++here;
    EXPECT_GE(taken, here * window);
    EXPECT_LE(taken, here * (window + pages));
  }));
}

TEST_P(GpuMoeFree, LeavesAHoleThatTheNextOneFills) {
  const std::uint32_t ranks = GetParam();
  std::vector<PreparedMoe> p;
  for (std::uint32_t i = 0; i < 4; ++i) {
    MoeExchangeArgs args = small_exchange();
    args.hidden = 256 + 8 * i;
    p.push_back(prepare({.args = args, .tokens = {6, 3}}, ranks, i));
  }
  GpuWorld world = make_gpu_world(static_cast<int>(ranks), config_for(3));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    std::vector<MoeExchange> exchanges;
    for (std::size_t i = 0; i < 3; ++i) exchanges.push_back(MoeExchange::create(communicator, p[i].call.args));
    const auto use_all = [&] {
      for (const std::size_t i : {0u, 2u}) use(exchanges[i], p[i], communicator, gpu, world.launch());
    };
    use_all();
    exchanges[1].free();
    expect_says(error_of([&] { use(exchanges[1], p[1], communicator, gpu, world.launch()); }), "has been freed");
    use_all();
    communicator.release();
    communicator.acquire();
    use_all();
    const MoeExchange next = MoeExchange::create(communicator, p[3].call.args);
    expect_says(error_of([&] { MoeExchange::create(communicator, p[3].call.args); }), "there is room for 3");
    use(next, p[3], communicator, gpu, world.launch());
    use_all();
  }));
}

// One rank is late, and all free exchanges at once that have calls enqueued.
TEST_P(GpuMoeFree, FinishesWhatIsEnqueued) {
  const std::uint32_t ranks = GetParam();
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, ranks, 5);
  GpuWorld world = make_gpu_world(static_cast<int>(ranks), config_for(1));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (int round = 0; round < 4; ++round) {
      gpu.reset();
      MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
      GpuMoe moe(gpu, communicator, exchange, world.launch());
      moe.fill(p);
      if (rank == round % static_cast<int>(ranks)) delay(100ms, gpu.stream());
      moe.combine(p, moe.dispatch(p, gpu.stream()), gpu.stream());
      exchange.free();
      moe.check_dispatch(p);
      moe.check_combine(p);
    }
  }));
}

// A replay finds no memory, or another exchange's: it ends with the exchange's name, and touches neither.
TEST_P(GpuMoeFree, GraphsThatHoldOneAreTold) {
  const std::uint32_t ranks = GetParam();
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, ranks, 5);
  for (const bool replaced : {false, true}) {
    GpuWorld world = make_gpu_world(static_cast<int>(ranks), config_for(1));
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
      GpuMoe moe(gpu, communicator, exchange, world.launch());
      moe.fill(p);
      const Graph graph(gpu, [&] { moe.combine(p, moe.dispatch(p, gpu.stream()), gpu.stream()); });
      graph.launch(gpu.stream());
      moe.check_dispatch(p);
      moe.check_combine(p);
      exchange.free();
      std::optional<MoeExchange> next;
      if (replaced) next = MoeExchange::create(communicator, p.call.args);
      for (int replay = 0; replay < 2; ++replay) {
        graph.launch(gpu.stream());
        gpu.synchronize();
        const auto fault = communicator.status();
        ASSERT_TRUE(fault.has_value());
        EXPECT_EQ(fault->code, Errc::released);
      }
      communicator.release();  // how to recover
      communicator.acquire();
      if (!replaced) next = MoeExchange::create(communicator, p.call.args);
      for (int call = 0; call < 3; ++call) use(*next, p, communicator, gpu, world.launch());
    }));
  }
}

// A fault after a stale replay is found, named and told to all ranks as usual.
TEST_P(GpuMoeFree, AStaleReplayHidesNoFault) {
  const std::uint32_t ranks = GetParam();
  const Prepared eager = prepare({.count = 1000}, static_cast<int>(ranks));
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, ranks, 5);
  Config config = config_for(1);
  config.deadline = 0s;  // no rank learns of it by a timeout
  GpuWorld world = make_gpu_world(static_cast<int>(ranks), config);
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    GpuMoe moe(gpu, communicator, exchange, world.launch());
    moe.fill(p);
    auto* const sum = gpu.device_memory(256);
    const Graph stale(gpu, [&] { moe.combine(p, moe.dispatch(p, gpu.stream()), gpu.stream()); });
    const Graph differs(gpu, [&] {
      all_reduce(communicator, {.input = sum,
                                .output = sum,
                                .count = rank == 1 ? 9u : 8u,
                                .algorithm = Algorithm::one_shot,
                                .stream = gpu.stream(),
                                .launch = world.launch()});
    });
    exchange.free();
    if (rank == 0) {
      stale.launch(gpu.stream());
      gpu.synchronize();
      EXPECT_EQ(communicator.status()->code, Errc::released);
    }
    // Only this rank learns of it: its next calls and those of its peers work.
    gpu.reset();
    GpuTensors tensors(gpu, eager, rank);
    all_reduce(communicator, tensors.arguments(gpu.stream()));
    tensors.download(gpu.stream());
    gpu.synchronize();
    tensors.check();
    differs.launch(gpu.stream());
    gpu.synchronize();
    communicator.check();
  });
  for (const Ending& ending : endings) expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "a mismatch");
}

// While the memory is released, a dispatch in a graph finds none, either.
TEST_P(GpuMoeFree, GraphsThatAReleaseFindsAreTold) {
  const std::uint32_t ranks = GetParam();
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, ranks, 5);
  GpuWorld world = make_gpu_world(static_cast<int>(ranks), gpu_config());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    GpuMoe moe(gpu, communicator, exchange, world.launch());
    moe.fill(p);
    const Graph graph(gpu, [&] { moe.combine(p, moe.dispatch(p, gpu.stream()), gpu.stream()); });
    communicator.release();
    graph.launch(gpu.stream());
    gpu.synchronize();
    const auto fault = communicator.status();
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->code, Errc::released);
    communicator.acquire();
    use(exchange, p, communicator, gpu, world.launch());
  }));
}

TEST(GpuMoeFreeing, ARankThatDoesNotCallIsMissed) {
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, 2, 5);
  Config config = config_for(1);
  config.rendezvous_deadline = 2s;
  GpuWorld world = make_gpu_world(2, config);
  std::latch missed(2);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    CountDown told(missed);
    MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    use(exchange, p, communicator, gpu, world.launch());
    if (rank == 0) expect_says(error_of([&] { exchange.free(); }), "free an exchange");
    told.now();
    missed.wait();
    use(exchange, p, communicator, gpu, world.launch());
  }));
}

}  // namespace
}  // namespace weft::test
