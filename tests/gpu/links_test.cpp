// GPUs without NVLink between them, though they reach each other: Weft's kernels do not serve them.
#include <gtest/gtest.h>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/links.hpp"
#include "support/ranks.hpp"
#include "weft/moe.hpp"

namespace weft::test {
namespace {

constexpr const char* kReason = "ranks 0 and 1 are linked by PCIe, not NVLink";

TEST(GpuLinks, APairWithoutNvlinkIsServedByNccl) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "NCCL needs a GPU for every rank, and here is one GPU";
  const PretendedPcie pretended;
  GpuWorld world = make_gpu_world(ranks, gpu_config());
  const auto prepared =
      prepare_for(world, {{.count = 5000, .fill = Fill::integers}, {.count = 3, .fill = Fill::integers}});
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    expect_says(communicator.fabric(), std::string("NCCL: ") + kReason);
    for (const Prepared& p : prepared) {
      run_on_gpu_rank(communicator, gpu, p, rank);
      expect_says(communicator.world().recent_calls().back().operation, " nccl ");
    }
    std::byte* const data = gpu.device_memory(64);
    expect_code(
        [&] {
          all_reduce(communicator, {.input = data,
                                    .output = data,
                                    .count = 4,
                                    .type = DataType::f32,
                                    .algorithm = Algorithm::one_shot,
                                    .stream = gpu.stream()});
        },
        Errc::unsupported, kReason);
    expect_code([&] { MoeExchange::create(communicator, {.tokens = 2, .hidden = 64, .experts = 8, .top_k = 1}); },
                Errc::unsupported, kReason);
    // After the windows have come back, NCCL's calls still work on every rank.
    communicator.release();
    communicator.acquire();
    run_on_gpu_rank(communicator, gpu, prepared.front(), rank);
  }));
}

TEST(GpuLinks, MulticastNeedsNvlinkBetweenAll) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "NCCL needs a GPU for every rank, and here is one GPU";
  const PretendedPcie pretended;
  Config config = gpu_config();
  config.multicast = true;
  expect_code([&] { Communicator::local(ranks, config); }, Errc::unsupported, "Config::multicast: ");
}

TEST(GpuLinks, RanksThatShareGpusHaveNothingToFallBackTo) {
  const PretendedPcie pretended;
  expect_code([&] { Communicator::local(gpu_count() + 1, gpu_config()); }, Errc::unsupported,
              std::string(kReason) + ", and NCCL does not serve ranks that share GPUs");
}

TEST(GpuLinks, WhatIsNotPretendedIsNvlink) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "one GPU has no link";
  const auto communicators = Communicator::local(ranks, gpu_config());
  expect_says(communicators.front().fabric(), "peer memory");
}

}  // namespace
}  // namespace weft::test
