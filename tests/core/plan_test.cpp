// Plans and layouts: pure functions with the same result on all ranks.
#include "ops/all_reduce/all_reduce_plan.hpp"
#include "ops/norm/norm_plan.hpp"
#include "tuning/tuning.hpp"
#include "wire/payload.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "protocol/channel.hpp"
#include "support/cases.hpp"

namespace weft::detail {
namespace {

TEST(Layout, AreasDoNotOverlapAndHoldWhatTheirLimitsPromise) {
  for (std::uint32_t size = 1; size <= kMaxRanks; ++size) {
    for (const std::size_t one_shot : {1u, 16u, 255u, 4096u, 1000000u}) {
      for (const std::size_t two_shot : {1u, 16u, 257u, 70000u}) {
        const std::size_t multimem = one_shot == 255 ? 0 : two_shot;
        RegionLayout layout = make_layout(size, one_shot, two_shot);
        const MultimemLayout added = add_multimem(layout, size, multimem);
        const std::uint64_t slots = kBanks * size;
        const std::vector<std::pair<std::uint64_t, std::uint64_t>> areas{
            {layout.headers, slots * sizeof(std::uint64_t)},
            {layout.one_shot, slots * layout.one_shot_packs * sizeof(Pack)},
            {layout.scatter, slots * layout.two_shot_packs * sizeof(Pack)},
            {layout.gather, slots * layout.two_shot_packs * sizeof(Pack)},
            {layout.pipeline_credits, size * layout.pipeline_slots * sizeof(std::uint64_t)},
            {added.signals, 2 * size * added.chunks * sizeof(std::uint64_t)},
            {added.stage, kBanks * added.packs * sizeof(Pack)},
            {added.gather, added.packs * sizeof(Pack)}};
        std::uint64_t end = 0;
        for (const auto& [begin, bytes] : areas) {
          ASSERT_GE(begin, end) << "size " << size;
          ASSERT_EQ(begin % sizeof(Pack), 0u);
          end = begin + bytes;
        }
        ASSERT_LE(end, layout.bytes);
        ASSERT_GE(layout.one_shot_packs * sizeof(Pack), one_shot);
        ASSERT_GE(layout.two_shot_packs * sizeof(Pack) * size, two_shot);
        ASSERT_GE(added.packs * sizeof(Pack), multimem);
        ASSERT_GE(added.chunks * layout.pipeline_packs, added.packs);
      }
    }
  }
}

TEST(Layout, DoesNotWrapAt32Bits) {
  const RegionLayout layout = make_layout(8, std::size_t{1} << 33, std::size_t{1} << 36);
  EXPECT_EQ(layout.one_shot_packs * sizeof(Pack), std::size_t{1} << 33);
  EXPECT_EQ(layout.two_shot_packs * sizeof(Pack), std::size_t{1} << 33);
  EXPECT_GT(layout.bytes, kBanks * 8 * 3 * (std::uint64_t{1} << 33) - 1);
}

PlanQuery query(Device device, std::uint32_t size, DataType type, std::size_t count) {
  return {.device = device,
          .size = size,
          .layout = make_layout(size, 1 << 16, 1 << 20),
          .type = type,
          .op = ReduceOp::sum,
          .count = count};
}

// All blocks of a launch wait for peers, so all must be on the GPU at the same time. There may be more blocks than
// rows, up to 32, if each has at least 128 packs to send.
TEST(Plan, BlocksOfNormsFitOnTheGpu) {
  const auto expect_fits = [](std::uint64_t rows, std::uint64_t row_packs, int max_blocks, int threads) {
    SCOPED_TRACE(fmt::format("{} blocks, {} rows of {} packs, {} threads", max_blocks, rows, row_packs, threads));
    const NormPlan plan = plan_norm({.device = Device::cuda,
                                     .size = 4,
                                     .layout = make_layout(4, 1 << 20, 16 << 20),
                                     .type = DataType::bf16,
                                     .rows = rows,
                                     .row_packs = row_packs,
                                     .launch = {.threads = threads},
                                     .max_blocks = max_blocks});
    EXPECT_GE(plan.blocks, 2);
    EXPECT_LE(plan.blocks, max_blocks);
    EXPECT_LE(plan.norm_blocks, max_blocks);
    const std::uint64_t senders = std::min<std::uint64_t>((rows * row_packs + 127) / 128, 32);
    EXPECT_LE(static_cast<std::uint64_t>(plan.blocks), std::max<std::uint64_t>({rows, senders, 1}) + 1);
    EXPECT_TRUE(threads == 0 || (plan.threads == threads && plan.norm_threads == threads));
  };
  for (const int max_blocks : {2, 3, 16, 132, 256}) {
    for (const std::uint64_t row_packs : {1u, 33u, 256u, 257u, 512u, 896u, 8192u}) {
      for (const std::uint64_t rows : {0u, 1u, 100u, 131u, 132u, 200u, 5000u}) {
        for (const int threads : {0, 32, 512}) expect_fits(rows, row_packs, max_blocks, threads);
      }
    }
  }
}

// An instance has registers for so many threads, and larger launches fail. A row has one thread per pack if possible.
// Otherwise its threads have equal numbers of packs.
TEST(Plan, ThreadsOfNormsFitTheirInstances) {
  const auto expect_threads = [](Algorithm algorithm, std::uint32_t size, DataType type, int most) {
    for (const std::uint64_t row_packs : {1u, 33u, 257u, 512u, 513u, 896u, 1024u, 1025u, 8192u}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks, {}, {} packs", name(algorithm), size, name(type), row_packs));
      const NormPlan plan = plan_norm({.device = Device::cuda,
                                       .size = size,
                                       .layout = make_layout(size, 1 << 20, 16 << 20),
                                       .type = type,
                                       .rows = 8,
                                       .row_packs = row_packs,
                                       .requested = algorithm});
      const std::uint64_t each = (row_packs + static_cast<std::uint64_t>(most) - 1) / static_cast<std::uint64_t>(most);
      EXPECT_EQ(static_cast<std::uint64_t>(plan.threads), ((row_packs + each - 1) / each + 31) / 32 * 32);
      EXPECT_LE(plan.threads, most);
      EXPECT_LE(plan.norm_threads, 1024);
      EXPECT_EQ(plan.norm_threads % 32, 0);
    }
  };
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    for (const std::uint32_t size : {2u, 4u}) expect_threads(algorithm, size, DataType::bf16, 1024);
    for (const std::uint32_t size : {1u, 3u, 6u}) expect_threads(algorithm, size, DataType::bf16, 512);
    for (const std::uint32_t size : {2u, 4u, 8u}) expect_threads(algorithm, size, DataType::f16, 512);
  }
  expect_threads(Algorithm::one_shot, 8, DataType::bf16, 512);
  expect_threads(Algorithm::two_shot, 8, DataType::bf16, 1024);
}

// A row goes through the buffers whole if it fits, else in as few pieces as possible, none of them too long.
TEST(Plan, PiecesOfNormsFitTheBuffers) {
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    for (const std::uint32_t size : {1u, 2u, 3u, 8u}) {
      for (const std::uint64_t bytes : {256u, 1000u, 65536u}) {
        for (const std::uint64_t row_packs : {1u, 16u, 17u, 48u, 49u, 511u, 513u, 8192u}) {
          const RegionLayout layout = make_layout(size, bytes, bytes);
          const NormPlan plan = plan_norm({.device = Device::cpu,
                                           .size = size,
                                           .layout = layout,
                                           .type = DataType::f16,
                                           .rows = 3,
                                           .row_packs = row_packs,
                                           .requested = algorithm});
          const std::uint64_t most =
              algorithm == Algorithm::one_shot ? layout.one_shot_packs : layout.two_shot_packs * size;
          SCOPED_TRACE(fmt::format("{} of {} ranks, {} of {} packs", name(algorithm), size, row_packs, most));
          EXPECT_LE(plan.piece_rows * plan.piece_packs, most);
          EXPECT_GE(plan.piece_rows, 1u);
          EXPECT_EQ(plan.piece_packs == row_packs, row_packs <= most);
          EXPECT_EQ((row_packs + plan.piece_packs - 1) / plan.piece_packs, (row_packs + most - 1) / most);
        }
      }
    }
  }
}

TEST(Plan, PiecesFitTheSlots) {
  for (const Device device : {Device::cpu, Device::cuda}) {
    for (std::uint32_t size = 1; size <= 72; ++size) {
      for (const DataType type : test::kTypes) {
        for (const Algorithm requested :
             {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined}) {
          for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}, std::size_t{1} << 33}) {
            PlanQuery q = query(device, size, type, count);
            q.requested = requested;
            const Plan plan = plan_all_reduce(q);
            const std::uint64_t per_pack = payload_bytes(type) / size_of(type);
            const std::uint64_t packs = (std::min(plan.piece, count) + per_pack - 1) / per_pack;
            ASSERT_GT(plan.piece, 0u);
            if (requested != Algorithm::automatic) {
              ASSERT_EQ(plan.algorithm, requested);
            }
            if (plan.algorithm == Algorithm::one_shot) {
              ASSERT_LE(packs, q.layout.one_shot_packs);
            }
            if (plan.algorithm == Algorithm::two_shot) {
              ASSERT_LE((packs + size - 1) / size, q.layout.two_shot_packs);
            }
            ASSERT_TRUE(plan.piece >= count || plan.piece % per_pack == 0);  // a later piece begins at a pack
          }
        }
      }
    }
  }
}

// Tables of GPUs name one-shot for messages that small buffers cut into many pieces.
TEST(Plan, TwoShotServesWhatOneShotWouldCutIntoMorePieces) {
  for (const std::size_t kib : {64, 512, 1024, 3072, 4096, 6144}) {
    PlanQuery usual = query(Device::cuda, 2, DataType::bf16, kib * 1024 / 2);
    usual.layout = make_layout(2, std::size_t{8} << 20, std::size_t{16} << 20);
    const Plan whole = plan_all_reduce(usual);
    EXPECT_EQ(whole.algorithm, Algorithm::one_shot) << kib;
    PlanQuery small = usual;
    small.layout = make_layout(2, std::size_t{512} << 10, std::size_t{3} << 20);
    const Plan plan = plan_all_reduce(small);
    EXPECT_EQ(plan.algorithm, kib <= 512 ? Algorithm::one_shot : Algorithm::two_shot) << kib;
    if (kib <= 512) {
      EXPECT_EQ(plan.threads, whole.threads);
    }
    small.requested = Algorithm::one_shot;
    EXPECT_EQ(plan_all_reduce(small).algorithm, Algorithm::one_shot);
  }
}

TEST(Plan, MultimemServesOnlyWhoAsksForIt) {
  for (const Device device : {Device::cpu, Device::cuda}) {
    for (std::uint32_t size = 1; size <= 72; ++size) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}, std::size_t{1} << 33}) {
        PlanQuery q = query(device, size, DataType::bf16, count);
        q.multimem_packs = 1 << 14;
        ASSERT_FALSE(is_multimem(plan_all_reduce(q).algorithm));
        for (const Algorithm requested : {Algorithm::multimem_one_shot, Algorithm::multimem_two_shot}) {
          q.requested = requested;
          const Plan plan = plan_all_reduce(q);
          ASSERT_EQ(plan.algorithm, requested);
          ASSERT_EQ(plan.piece, q.multimem_packs * 8);
          ASSERT_GE(plan.blocks, 2);
          ASSERT_LE(plan.blocks, static_cast<int>(kMaxBlocks));
          ASSERT_EQ(plan.threads, 512);
        }
      }
    }
  }
}

TEST(Plan, GridsAreWithinTheirLimitsAndTheCallersRequestHolds) {
  for (const int most : {2, 3, 17, 133, 256}) {
    for (std::size_t count = 0; count < 10'000'000; count = count * 3 + 1) {
      PlanQuery q = query(Device::cuda, 8, DataType::bf16, count);
      q.max_blocks = most;
      const Plan plan = plan_all_reduce(q);
      ASSERT_GE(plan.blocks, 2);
      ASSERT_LE(plan.blocks, most);
      ASSERT_LE(plan.blocks, static_cast<int>(kMaxBlocks));
      ASSERT_EQ(plan.threads % 32, 0);
      ASSERT_GE(plan.threads, 32);
      ASSERT_LE(plan.threads, 512);
    }
  }
  PlanQuery q = query(Device::cuda, 8, DataType::bf16, 5000);
  q.launch = {.blocks = 5, .threads = 96};
  EXPECT_EQ(plan_all_reduce(q).blocks, 5);
  EXPECT_EQ(plan_all_reduce(q).threads, 96);
}

// The rules of ops/all_reduce/pipelined_all_reduce.hpp.
TEST(Plan, PipelinedBlocksThatMakeAllHopsDivideTheSlotsAndOthersAreTwoOrMore) {
  int with_warp_groups = 0;
  for (const Device device : {Device::cpu, Device::cuda}) {
    for (const std::uint32_t slots : {2u, 8u, 32u, 256u}) {
      for (int blocks = 2; blocks <= 133; ++blocks) {
        for (const int threads : {0, 32, 96, 128, 512}) {
          PlanQuery q = query(device, 2, DataType::bf16, 1 << 20);
          q.layout = make_layout(2, 1 << 16, 1 << 20, {.slots = slots, .packs = 64});
          q.requested = Algorithm::pipelined;
          q.launch = {.blocks = blocks, .threads = threads};
          const Plan plan = plan_all_reduce(q);
          const std::uint32_t teams = static_cast<std::uint32_t>(plan.blocks * plan.warp_groups - 1);
          ASSERT_GE(plan.blocks, 2);
          ASSERT_LE(plan.blocks, blocks);
          ASSERT_TRUE(plan.warp_groups == 1 || plan.threads == 128 * plan.warp_groups);
          ASSERT_LE(plan.warp_groups, 15);  // hardware barriers of a block besides __syncthreads()
          if (plan.apart) {
            ASSERT_GE(teams, 2u);
            ASSERT_EQ(device, Device::cuda);
          } else {
            ASSERT_EQ(slots % (2 * teams), 0u);
          }
          with_warp_groups += plan.apart && plan.warp_groups > 1;
        }
      }
    }
  }
  EXPECT_GT(with_warp_groups, 0);
}

// Large messages take pipelined if the table says so and the rank with the fewest blocks has enough for warp groups.
// This also holds after a split, which leaves a quarter of the GPU's blocks.
TEST(Plan, PipelinedServesRanksWithFewBlocks) {
  const TuningStep steps[] = {{.up_to = 1 << 20, .algorithm = Algorithm::two_shot},
                              {.algorithm = Algorithm::pipelined}};
  PlanQuery q = query(Device::cuda, 4, DataType::bf16, std::size_t{32} << 20);
  q.layout = make_layout(4, 1 << 16, 1 << 20, {.slots = 256, .packs = 64});
  q.steps = steps;
  for (const int blocks : {16, 17, 33, 64, 65, 128, 129}) {
    q.max_blocks = q.least_max_blocks = blocks;
    const Plan plan = plan_all_reduce(q);
    const bool pipelined = (blocks >= 17 && blocks <= 64) || blocks > 128;
    ASSERT_EQ(plan.algorithm, pipelined ? Algorithm::pipelined : Algorithm::two_shot) << blocks;
    if (plan.algorithm == Algorithm::pipelined && blocks <= 64) {
      EXPECT_GT(plan.warp_groups, 1) << blocks;
      EXPECT_EQ(plan.blocks, blocks);
    }
  }
}

// The bytes on the wire must not depend on facts that only one rank knows.
TEST(Plan, GridsChangeNeitherAlgorithmNorPieces) {
  int pipelined = 0;
  for (std::size_t count = 0; count < 40'000'000; count = count * 2 + 1) {
    PlanQuery q = query(Device::cuda, 4, DataType::f32, count);
    q.layout = make_layout(4, 1 << 16, 1 << 20, {.slots = 256, .packs = 64});
    const Plan mine = plan_all_reduce(q);
    q.launch = {.blocks = 3, .threads = 512};
    q.max_blocks = 9;
    const Plan theirs = plan_all_reduce(q);
    ASSERT_EQ(mine.algorithm, theirs.algorithm);
    ASSERT_EQ(mine.piece, theirs.piece);
    pipelined += mine.algorithm == Algorithm::pipelined;
  }
  EXPECT_GT(pipelined, 0);
}

// Two ranks send rows to themselves while latency matters more than bytes.
TEST(Plan, TwoRanksKeepTheirOwnRowsOfLongNorms) {
  const auto keeps_own = [](std::uint32_t size, std::uint64_t rows) {
    return plan_norm({.device = Device::cuda,
                      .size = size,
                      .layout = make_layout(size, 1 << 20, 16 << 20),
                      .type = DataType::bf16,
                      .rows = rows,
                      .row_packs = 512,
                      .requested = Algorithm::one_shot})
        .keeps_own;
  };
  EXPECT_FALSE(keeps_own(2, 32));
  EXPECT_TRUE(keeps_own(2, 33));
  EXPECT_FALSE(keeps_own(3, 33));
}

// Blocks of large norms have roles: some move, others norm. Every launch has both, and all of its blocks fit at once.
TEST(Plan, BlocksOfLargeNormsHaveRoles) {
  NormQuery query{.device = Device::cuda,
                  .size = 2,
                  .layout = make_layout(2, 1 << 20, 64 << 20),
                  .type = DataType::bf16,
                  .rows = 513,
                  .row_packs = 512,
                  .requested = Algorithm::two_shot,
                  .max_blocks = 132};
  const auto movers = [&](auto change) {
    NormQuery changed = query;
    change(changed);
    const NormPlan plan = plan_norm(changed);
    EXPECT_LE(plan.blocks, changed.launch.blocks != 0 ? changed.launch.blocks : changed.max_blocks);
    if (plan.movers != 0) {
      EXPECT_LT(plan.movers, plan.blocks);
      EXPECT_EQ(plan.threads, plan.warp_groups * static_cast<int>(kWarpGroupThreads));
      EXPECT_TRUE(changed.launch.threads == 0 || changed.launch.threads == plan.threads);
    }
    return plan.movers;
  };
  EXPECT_EQ(movers([](NormQuery&) {}), 49);
  EXPECT_EQ(movers([](NormQuery& q) { q.rows = 512; }), 0);
  EXPECT_EQ(movers([](NormQuery& q) { q.size = 4; }), 0);
  EXPECT_EQ(movers([](NormQuery& q) { q.device = Device::cpu; }), 0);
  EXPECT_EQ(movers([](NormQuery& q) { q.type = DataType::f16; }), 0);
  EXPECT_EQ(movers([](NormQuery& q) { q.gamma_f32 = true; }), 0);
  EXPECT_EQ(movers([](NormQuery& q) { q.requested = Algorithm::one_shot; }), 0);
  EXPECT_EQ(movers([](NormQuery& q) { q.row_packs = 8192, q.layout = make_layout(2, 1 << 10, 1 << 10); }), 0);
  for (int threads = 32; threads <= 1024; threads += 32) {
    const bool groups = threads == 256 || threads == 384 || threads == 512;
    EXPECT_EQ(movers([&](NormQuery& q) { q.launch.threads = threads; }) != 0, groups) << threads;
  }
  for (int blocks = 2; blocks <= 132; ++blocks) {
    EXPECT_EQ(movers([&](NormQuery& q) { q.max_blocks = blocks; }) != 0, blocks >= 8) << blocks;
    EXPECT_EQ(movers([&](NormQuery& q) { q.launch.blocks = blocks; }) != 0, blocks >= 8) << blocks;
  }
}

// A norm uses its group's table, like an all-reduce.
TEST(Plan, NormsGoByTheGroupsTable) {
  const TuningStep steps[] = {{.up_to = 1023, .algorithm = Algorithm::two_shot},
                              {.up_to = 4096, .algorithm = Algorithm::one_shot},
                              {.algorithm = Algorithm::pipelined}};
  const auto planned = [&](Device device, std::uint64_t rows, std::span<const TuningStep> table) {
    return plan_norm({.device = device,
                      .size = 4,
                      .layout = make_layout(4, 1 << 20, 16 << 20),
                      .type = DataType::bf16,
                      .rows = rows,
                      .row_packs = 4,
                      .steps = table})
        .algorithm;
  };
  for (const Device device : {Device::cpu, Device::cuda}) {
    EXPECT_EQ(planned(device, 15, steps), Algorithm::two_shot);
    EXPECT_EQ(planned(device, 16, steps), Algorithm::one_shot);
    EXPECT_EQ(planned(device, 64, steps), Algorithm::one_shot);
    EXPECT_EQ(planned(device, 65, steps), Algorithm::two_shot);
    // Without a table of its own: the shipped table for four ranks.
    const std::uint64_t last = (device == Device::cpu ? 2048 : 160 * 1024) / 64;
    EXPECT_EQ(planned(device, last, {}), Algorithm::one_shot);
    EXPECT_EQ(planned(device, last + 1, {}), Algorithm::two_shot);
  }
}

}  // namespace
}  // namespace weft::detail
