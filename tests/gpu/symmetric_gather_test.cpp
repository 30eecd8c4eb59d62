// Copies whose outputs lie in symmetric memory, on GPU ranks: what the CPU tests ask, asked of kernels.
#include <gtest/gtest.h>

#include <random>

#include "gpu/support/gpu_move.hpp"
#include "gpu/support/graph.hpp"
#include "support/move_mixes.hpp"
#include "support/ranks.hpp"
#include "support/symmetric_cases.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

class GpuSymmetricGather : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuSymmetricGather, testing::Values(1, 2, 3, 4, 8));

TEST_P(GpuSymmetricGather, GivesTheBytesOfAnyOtherOutput) {
  const int ranks = GetParam();
  std::vector<Move> moves = symmetric_moves(ranks);
  using MakeConfig = Config (*)();
  for (const MakeConfig config : {MakeConfig{nullptr}, MakeConfig{small_gpu_slots}}) {
    GpuWorld& world = lasting_gpu_world(ranks, config);
    for (Move& move : moves) move.launch = world.launch();
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      auto memory = SymmetricMemory::allocate(communicator, kSymmetricBytes);
      for (const Move& move : moves) run_on_gpu_rank(communicator, gpu, move, static_cast<std::byte*>(memory.data()));
      memory.free();
    }));
  }
}

// So many rows that they take a detour in chunks: relays pass on from their own outputs.
TEST_P(GpuSymmetricGather, OneBusyRank) {
  const int ranks = GetParam();
  if (ranks < 3) GTEST_SKIP() << "two ranks have no third one to go by";
  GpuWorld& world = lasting_gpu_world(ranks, small_gpu_slots);
  const std::int32_t busy = 118 / (ranks - 2) + 1;  // of 64 KiB: more than the 7 MiB that chunks must spare
  std::vector<Move> moves;
  for (int owner : {0, ranks - 1}) {
    Move gather{.kind = Kind::all_gather_v, .widths = {65536}, .fill = Fill::bits, .launch = world.launch()};
    gather.counts.assign(static_cast<std::size_t>(ranks), 1);
    gather.counts[static_cast<std::size_t>(owner)] = busy;
    moves.push_back(with_slots(gather, ranks));
    moves.push_back({.kind = Kind::broadcast,
                     .rows = static_cast<std::size_t>(busy),
                     .widths = {65536},
                     .fill = Fill::bits,
                     .root = owner,
                     .launch = world.launch()});
  }
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    auto memory = SymmetricMemory::allocate(communicator, kSymmetricBytes);
    for (const Move& move : moves) run_on_gpu_rank(communicator, gpu, move, static_cast<std::byte*>(memory.data()));
    memory.free();
  }));
}

// One graph for all counts, whose replays write what a rank has filled anew.
TEST_P(GpuSymmetricGather, OneGraphServesEveryCount) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks, small_gpu_slots);
  const auto n = static_cast<std::size_t>(ranks);
  const auto with = [&](std::vector<std::int32_t> counts, std::uint32_t seed) {
    return Move{.kind = Kind::all_gather_v,
                .widths = {512, 64},
                .fill = Fill::bits,
                .counts = std::move(counts),
                .slot = SlotKind::max,
                .seed = seed,
                .launch = world.launch()};
  };
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    auto memory = SymmetricMemory::allocate(communicator, kSymmetricBytes);
    const RankMove largest = prepare(with(std::vector<std::int32_t>(n, 12), 1), ranks, rank);
    GpuMove gather(gpu, largest, static_cast<std::byte*>(memory.data()));
    {
      const Graph graph(gpu, [&] { gather.call(communicator); });
      std::mt19937 random(7);  // the same on every rank
      for (std::uint32_t turn = 0; turn < 40; ++turn) {
        std::vector<std::int32_t> counts;
        for (int i = 0; i < ranks; ++i) {
          counts.push_back(static_cast<std::int32_t>(random() % 3 == 0 ? 0 : random() % 13));
        }
        const RankMove now = prepare(with(counts, turn), ranks, rank);
        gather.fill(now);
        graph.launch(gpu.stream());
        gather.check(now);
        communicator.check();
      }
    }
    memory.free();
  }));
}

}  // namespace
}  // namespace weft::test
