// Plans of copies and reduce-scatters: grids, the change to chunks, and relays.
#include "ops/moves/move_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "protocol/channel.hpp"
#include "protocol/detour.hpp"

namespace weft::detail {
namespace {

MoveQuery move_query(Device device, std::uint32_t size, std::uint64_t own, std::uint64_t whole) {
  const bool cpu = device == Device::cpu;
  return {.device = device,
          .size = size,
          .layout = make_layout(size, 1 << 16, 1 << 20, {.slots = cpu ? 8u : 256u, .packs = 1024}),
          .own_bytes = own,
          .whole_bytes = whole,
          .unit_bytes = cpu ? 16u : 48u,
          .wire_packs = cpu ? 2u : 4u,
          .streams = size,
          .max_blocks = 133};
}

// Relays serve one busy rank among three or more. They must save the busiest link at least `worth` bytes for any rows
// of the others.
TEST(MovePlans, DetoursAreForRanksThatHaveMostRows) {
  const auto detour = [](std::uint32_t ranks, std::uint64_t longest, std::uint64_t all, std::uint64_t slots = 8) {
    return takes_detour({.ranks = ranks, .slots = slots, .longest = longest, .worth = 1000}, [=] { return all; });
  };
  EXPECT_TRUE(detour(4, 10'000, 10'000));
  EXPECT_TRUE(detour(3, 10'000, 10'000));
  EXPECT_FALSE(detour(2, 10'000, 10'000));
  EXPECT_FALSE(detour(4, 10'000, 10'000, 3));
  for (const std::uint32_t ranks : {3u, 4u, 8u, 72u}) {
    EXPECT_FALSE(detour(ranks, 10'000, std::uint64_t{10'000} * ranks)) << ranks;
    // With relays its link carries the busy rank's rows once, not once per peer. A saving of exactly `worth` is not
    // enough.
    const std::uint64_t longest = 1000 / (ranks - 2);
    EXPECT_FALSE(detour(ranks, longest, longest, 72)) << ranks;
    EXPECT_TRUE(detour(ranks, longest + 1, longest + 1, 72)) << ranks;
  }
  MoveQuery q = move_query(Device::cuda, 8, 8 << 20, 64 << 20);
  EXPECT_FALSE(plan_move(q).detour);  // the counts will decide
  q.sent_bytes = 64 << 20;
  EXPECT_FALSE(plan_move(q).detour);
  q.sent_bytes = 8 << 20;
  EXPECT_TRUE(plan_move(q).detour);
}

TEST(MovePlans, GridsOfMovesServeWhatARankReceivesAsWellAsWhatItSends) {
  const auto same = [](const MovePlan& a, const MovePlan& b) { return a.blocks == b.blocks && a.threads == b.threads; };
  for (const Device device : {Device::cpu, Device::cuda}) {
    for (const std::uint32_t size : {1u, 2u, 8u, 72u}) {
      for (std::uint64_t bytes = 1; bytes < std::uint64_t{1} << 30; bytes = bytes * 3 + 1) {
        const MovePlan both = plan_move(move_query(device, size, bytes, bytes * size));
        // A rank without rows, or without room for others' rows, has the other direction's threads all the same.
        ASSERT_TRUE(same(plan_move(move_query(device, size, 0, bytes * size)), both)) << bytes;
        ASSERT_TRUE(same(plan_move(move_query(device, size, bytes, 0)), both)) << bytes;
      }
    }
  }
}

// Lines do not depend on blocks, symmetric outputs are slower with warp groups, and a block on a CPU is one thread.
// Senders without two slots each wait for their own credits.
TEST(MovePlans, WarpGroupsOfMovesAreWholeWarpsOfBlocksThatMoveChunks) {
  const std::uint64_t flowing = std::uint64_t{1} << 30;
  for (const int threads : {0, 32, 96, 128, 256, 384, 512}) {
    MoveQuery q = move_query(Device::cuda, 8, flowing, flowing * 8);
    q.launch = {.blocks = 17, .threads = threads};
    const MovePlan plan = plan_move(q);
    EXPECT_TRUE(plan.warp_groups == 1 || plan.threads == 128 * plan.warp_groups) << threads;
    EXPECT_LE(plan.warp_groups, 15);  // hardware barriers of a block besides __syncthreads()
    EXPECT_EQ(plan.warp_groups > 1, plan.threads % 128 == 0 && plan.threads > 128) << threads;
  }
  for (const int blocks : {2, 8, 17, 33, 64, 66, 132}) {
    MoveQuery q = move_query(Device::cuda, 8, flowing, flowing * 8);
    q.launch.blocks = blocks;
    EXPECT_EQ(plan_move(q).warp_groups > 1, static_cast<std::uint64_t>(4 * blocks) <= q.layout.pipeline_slots)
        << blocks;
  }
  EXPECT_EQ(plan_move(move_query(Device::cuda, 8, 1000, 8000)).warp_groups, 1);
  EXPECT_EQ(plan_move(move_query(Device::cpu, 8, flowing, flowing * 8)).warp_groups, 1);
  MoveQuery symmetric = move_query(Device::cuda, 8, flowing, flowing * 8);
  symmetric.symmetric = true;
  EXPECT_EQ(plan_move(symmetric).warp_groups, 1);
}

TEST(MovePlans, GridsOfMovesFitOnTheGpuAndChangeNothingOnTheWire) {
  const std::uint64_t slot_packs = plan_move(move_query(Device::cuda, 8, 0, 0)).slot_packs;
  EXPECT_LE(slot_packs, make_layout(8, 1 << 16, 1 << 20).two_shot_packs);
  for (const int most : {2, 3, 17, 133, 256}) {
    for (std::uint64_t bytes = 0; bytes < std::uint64_t{1} << 34; bytes = bytes * 3 + 1) {
      for (const Launch& launch : {Launch{}, Launch{.blocks = 5}, Launch{.threads = 96}}) {
        MoveQuery q = move_query(Device::cuda, 8, bytes, bytes * 3);
        q.max_blocks = most;
        q.launch = launch;
        const MovePlan plan = plan_move(q);
        ASSERT_EQ(plan.slot_packs, slot_packs);  // all ranks must choose it alike, whatever room they have
        ASSERT_GE(plan.blocks, 2);
        ASSERT_LE(plan.blocks, std::max(most, launch.blocks));
        ASSERT_EQ(plan.threads % 32, 0);
        ASSERT_LE(plan.threads, kMoveThreads);
        if (launch.blocks != 0) {
          ASSERT_EQ(plan.blocks, launch.blocks);
          continue;
        }
        if (launch.threads != 0) {
          ASSERT_EQ(plan.threads, launch.threads);
          continue;
        }
        // A thread for each unit, or all threads that fit.
        const auto threads = static_cast<std::uint64_t>(plan.blocks - 1) * static_cast<std::uint64_t>(plan.threads);
        ASSERT_TRUE(threads * 48 >= bytes * 8 || plan.blocks == most) << bytes;
      }
    }
  }
}

// The longest message of a way, in the wire's packs: a unit that has begun counts.
TEST(MovePlans, ATableSaysWhereWaysChangeAsFarAsBuffersGo) {
  MoveQuery q = move_query(Device::cuda, 4, 0, 0);
  const TuningTable table{.detour_bytes = 4096,
                          .steps = {{.up_to = 470, .algorithm = MoveWay::one_hop},
                                    {.up_to = 490, .algorithm = MoveWay::lines},
                                    {.up_to = 960, .algorithm = MoveWay::lines},
                                    {.algorithm = MoveWay::chunks}}};
  const MovePlan before = plan_move(q);
  q.table = &table;
  EXPECT_EQ(plan_move(q).slot_packs, 80u);
  EXPECT_EQ(plan_move(q).detour_packs, 256u);
  EXPECT_EQ(one_hop_packs(q), 40u);
  EXPECT_EQ(move_way(q, 480, true), MoveWay::one_hop);
  EXPECT_EQ(move_way(q, 480, false), MoveWay::lines);
  EXPECT_EQ(move_way(q, 481, true), MoveWay::lines);
  EXPECT_EQ(move_way(q, 960, true), MoveWay::lines);
  EXPECT_EQ(move_way(q, 961, true), MoveWay::chunks);
  q.group_ranks = 2;  // a crossing's table goes by the rows of its group
  EXPECT_EQ(plan_move(q).slot_packs, 40u);
  EXPECT_EQ(one_hop_packs(q), 40u);
  EXPECT_EQ(move_steps(q, true), table.steps);
  // Without a way there is none, and slots end all.
  const TuningTable chunks{.steps = {{.algorithm = MoveWay::chunks}}}, lines{.steps = {{.algorithm = MoveWay::lines}}},
      one_hop{.steps = {{.algorithm = MoveWay::one_hop}}};
  q.table = &chunks;
  EXPECT_EQ(plan_move(q).slot_packs, 0u);
  EXPECT_EQ(plan_move(q).detour_packs, before.detour_packs);
  q.table = &lines;
  EXPECT_EQ(plan_move(q).slot_packs, q.layout.two_shot_packs);
  EXPECT_EQ(one_hop_packs(q), 0u);
  q.table = &one_hop;
  EXPECT_EQ(one_hop_packs(q), q.layout.one_shot_packs);
}

TEST(MovePlans, ConstantsAreStepsToo) {
  for (const Device device : {Device::cpu, Device::cuda}) {
    for (const std::uint64_t group_ranks : {1u, 2u}) {
      MoveQuery q = move_query(device, 4, 0, 0);
      q.group_ranks = group_ranks;
      for (const bool one_hop : {false, true}) {
        const std::vector<TuningStep> steps = move_steps(q, one_hop);
        for (std::uint64_t bytes = 16; bytes < 64 << 20; bytes = bytes * 9 / 8 + 16) {
          EXPECT_EQ(step_for(steps, bytes, bytes).algorithm, move_way(q, bytes, one_hop)) << bytes;
        }
      }
    }
  }
}

// A step's grid serves a rank whose own message is its; a caller's launch comes first.
TEST(MovePlans, AStepsGridIsTakenAsFarAsItGoes) {
  const TuningTable table{.steps = {{.up_to = 1000, .algorithm = MoveWay::lines, .blocks = 7, .threads = 96},
                                    {.up_to = 2000, .algorithm = MoveWay::lines, .blocks = 200},
                                    {.up_to = 3000, .algorithm = MoveWay::lines},
                                    {.algorithm = MoveWay::chunks, .blocks = 9, .threads = 256}}};
  const auto planned = [&](std::uint64_t own, Launch launch = {}, const TuningTable* with = nullptr) {
    MoveQuery q = move_query(Device::cuda, 4, own, 4 * own);
    q.launch = launch;
    q.table = with != nullptr ? with : &table;
    return plan_move(q);
  };
  EXPECT_EQ(planned(1000).blocks, 7);
  EXPECT_EQ(planned(1000).threads, 96);
  EXPECT_EQ(planned(1001).blocks, 133);
  EXPECT_EQ(planned(1001).threads, 64);
  EXPECT_EQ(planned(2001).blocks, plan_move(move_query(Device::cuda, 4, 2001, 4 * 2001)).blocks);
  EXPECT_EQ(planned(4000).blocks, 9);
  EXPECT_EQ(planned(4000).threads, 256);
  EXPECT_EQ(planned(4000).warp_groups, 2);
  EXPECT_EQ(planned(1000, {.blocks = 5}).blocks, 5);
  EXPECT_EQ(planned(1000, {.blocks = 5}).threads, 96);
  EXPECT_EQ(planned(1000, {.threads = 32}).threads, 32);
  // Slots may end lines before the table does: a grid of lines is none of chunks.
  const TuningTable all_lines{.steps = {{.algorithm = MoveWay::lines, .blocks = 7, .threads = 96}}};
  EXPECT_EQ(planned(1000, {}, &all_lines).blocks, 7);
  EXPECT_EQ(planned(1 << 30, {}, &all_lines).blocks, 133);
}

}  // namespace
}  // namespace weft::detail
