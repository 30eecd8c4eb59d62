// Plans of launches in clusters of two: every grid is even, and fits where single blocks would.
#include "comm/pairs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "ops/all_reduce/all_reduce_plan.hpp"
#include "ops/moe/exchange_grid.hpp"
#include "ops/moe/exchange_shape.hpp"
#include "ops/moves/move_plan.hpp"
#include "ops/norm/norm_plan.hpp"
#include "protocol/channel.hpp"

namespace weft::detail {
namespace {

constexpr Launch kPairs{.cluster = 2};

RegionLayout layout_with(std::uint32_t slots) {
  return make_layout(2, 1 << 16, 1 << 20, {.slots = slots, .packs = 64});
}
// `most`: blocks that fit; two always do.
void expect_pairs(int blocks, int most) {
  EXPECT_EQ(blocks % 2, 0) << blocks;
  EXPECT_GE(blocks, 2);
  EXPECT_LE(blocks, most);
}

TEST(Pairs, LeaveOutTheBlockWithoutAPartner) {
  EXPECT_EQ(whole_pairs(133, kPairs), 132);
  EXPECT_EQ(whole_pairs(132, kPairs), 132);
  EXPECT_EQ(whole_pairs(1, kPairs), 2);
  EXPECT_EQ(whole_pairs(133, {}), 133);
  EXPECT_EQ(whole_pairs(133, {.cluster = 1}), 133);
}

TEST(Pairs, OfAllReducesKeepAlgorithmAndPieces) {
  for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot,
                                    Algorithm::pipelined, Algorithm::multimem_two_shot}) {
    for (const int most : {2, 3, 17, 33, 133, 256}) {
      for (std::size_t count = 0; count < 40'000'000; count = count * 3 + 1) {
        PlanQuery query{.device = Device::cuda,
                        .size = 2,
                        .layout = layout_with(256),
                        .multimem_packs = 1 << 16,
                        .type = DataType::bf16,
                        .op = ReduceOp::sum,
                        .count = count,
                        .requested = algorithm,
                        .max_blocks = most};
        const Plan single = plan_all_reduce(query);
        query.launch = kPairs;
        const Plan pairs = plan_all_reduce(query);
        expect_pairs(pairs.blocks, most);
        EXPECT_EQ(pairs.algorithm, single.algorithm);
        EXPECT_EQ(pairs.piece, single.piece);
        query.launch.blocks = 2;
        EXPECT_EQ(plan_all_reduce(query).blocks, 2);
      }
    }
  }
}

// The rules of ops/all_reduce/pipelined_all_reduce.hpp hold for them, too.
TEST(Pairs, OfPipelinedAllReducesServeAllSlots) {
  for (const std::uint32_t slots : {2u, 8u, 32u, 256u}) {
    for (int blocks = 0; blocks <= 132; blocks += 2) {
      for (const int threads : {0, 32, 96, 512}) {
        const Plan plan = plan_all_reduce({.device = Device::cuda,
                                           .size = 2,
                                           .layout = layout_with(slots),
                                           .type = DataType::bf16,
                                           .op = ReduceOp::sum,
                                           .count = 1 << 20,
                                           .requested = Algorithm::pipelined,
                                           .launch = {.blocks = blocks, .threads = threads, .cluster = 2},
                                           .max_blocks = 133});
        const auto teams = static_cast<std::uint32_t>(plan.blocks * plan.warp_groups - 1);
        expect_pairs(plan.blocks, blocks == 0 ? 132 : blocks);
        EXPECT_TRUE(plan.apart ? teams >= 2 : slots % (2 * teams) == 0) << slots << " slots, " << blocks << " blocks";
      }
    }
  }
}

TEST(Pairs, OfNormsHaveRolesAsSingleBlocksDo) {
  int in_roles = 0;
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    for (const int most : {2, 3, 17, 133}) {
      for (const std::uint64_t row_packs : {1u, 512u, 8192u}) {
        for (const std::uint64_t rows : {0u, 1u, 2u, 100u, 131u, 513u}) {
          NormQuery query{.device = Device::cuda,
                          .size = 2,
                          .layout = make_layout(2, 1 << 20, 64 << 20),
                          .type = DataType::bf16,
                          .rows = rows,
                          .row_packs = row_packs,
                          .requested = algorithm,
                          .max_blocks = most};
          const NormPlan single = plan_norm(query);
          query.launch = kPairs;
          const NormPlan pairs = plan_norm(query);
          expect_pairs(pairs.blocks, most);
          expect_pairs(pairs.norm_blocks, most);
          EXPECT_EQ(pairs.piece_rows, single.piece_rows);
          EXPECT_EQ(pairs.movers != 0, single.movers != 0);
          EXPECT_LT(pairs.movers, pairs.blocks);
          in_roles += pairs.movers != 0;
        }
      }
    }
  }
  EXPECT_GT(in_roles, 0);
}

TEST(Pairs, OfMovesChangeNothingOnTheWire) {
  for (const int most : {2, 3, 17, 133, 256}) {
    for (std::uint64_t bytes = 0; bytes < std::uint64_t{1} << 34; bytes = bytes * 3 + 1) {
      MoveQuery query{.device = Device::cuda,
                      .size = 8,
                      .layout = make_layout(8, 1 << 16, 1 << 20, {.slots = 256, .packs = 1024}),
                      .own_bytes = bytes,
                      .whole_bytes = bytes * 3,
                      .unit_bytes = 48,
                      .wire_packs = 4,
                      .streams = 8,
                      .max_blocks = most};
      const MovePlan single = plan_move(query);
      query.launch = kPairs;
      const MovePlan pairs = plan_move(query);
      expect_pairs(pairs.blocks, most);
      EXPECT_EQ(pairs.slot_packs, single.slot_packs);
      EXPECT_EQ(pairs.threads, single.threads);
    }
  }
}

// By a ring some warp groups send, and others receive: both are left.
TEST(Pairs, OfExchangesHaveSendersAndReceivers) {
  for (const std::uint32_t tokens : {128u, 4096u}) {
    const MoeExchangeArgs exchange{
        .tokens = tokens, .hidden = 7168, .experts = 256, .top_k = 8, .cast = RowCast::fp8, .path = RowPath::automatic};
    for (const std::uint32_t ranks : {2u, 8u}) {
      const ExchangeShape shape = make_shape(ranks, 0, exchange, map_experts(ranks, exchange));
      for (const int most : {2, 3, 33, 133}) {
        for (std::uint32_t mine = 0; mine <= tokens; mine = mine * 2 + 1) {
          for (const Phases phases : {kJoined, kSend, kWait}) {
            const ExchangeGridArgs args{.shape = shape,
                                        .ranks = ranks,
                                        .tokens = mine,
                                        .most_tokens = 0,
                                        .ring = shape.ring_rows != 0,
                                        .phases = phases,
                                        .launch = kPairs,
                                        .most_blocks = most};
            for (const ExchangeGrid& grid : {dispatch_grid(args), combine_grid(args)}) {
              expect_pairs(grid.blocks, most);
              if (!args.ring || phases != kJoined) continue;
              const std::uint32_t groups = static_cast<std::uint32_t>(grid.blocks) * grid.warp_groups - 1;
              EXPECT_GE(grid.senders, 1u);
              EXPECT_LT(grid.senders, groups);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::detail
