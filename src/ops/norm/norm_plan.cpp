#include "ops/norm/norm_plan.hpp"

#include <algorithm>
#include <cstdint>

#include "base/units.hpp"
#include "comm/pairs.hpp"

namespace weft::detail {
namespace {

// A block has one row at a time, and a thread as few packs of it as possible.
int norm_threads(const Launch& launch, std::uint64_t row_packs, int max_threads) {
  const std::uint64_t most = static_cast<std::uint64_t>(max_threads), each = (row_packs + most - 1) / most;
  const std::uint64_t threads = ((row_packs + each - 1) / each + 31) / 32 * 32;
  return launch.threads != 0 ? launch.threads : static_cast<int>(threads);
}

// From some size on, some processors move packs and the others norm. More movers, or processors that do both, were
// slower: rows are then complete earlier than they can be normed, and the link's stores hold up a processor's loads.
// Measured on two H200 (docs/notes).
void give_roles(const NormQuery& query, std::uint64_t packs, NormPlan& plan) {
  constexpr std::uint64_t kMostWithoutRoles = 4 * kMiB;
  constexpr int kLeastBlocks = 8;
  const int blocks = whole_pairs(query.launch.blocks != 0 ? query.launch.blocks : query.max_blocks, query.launch);
  const int threads = query.launch.threads != 0 ? query.launch.threads : kMostNormThreadsInRoles;
  const int group = kWarpGroupThreads;
  if (query.device != Device::cuda || plan.algorithm != Algorithm::two_shot) return;
  if (packs * sizeof(Pack) <= kMostWithoutRoles || blocks < kLeastBlocks) return;
  if (threads % group != 0 || threads < 2 * group || threads > kMostNormThreadsInRoles) return;
  plan.movers = blocks * 3 / 8;
  plan.warp_groups = threads / group;
  plan.blocks = blocks;
  plan.threads = threads;
}

}  // namespace

NormPlan plan_norm(const NormQuery& query) {
  NormPlan plan{};
  const std::uint64_t row_packs = std::max<std::uint64_t>(query.row_packs, 1);
  const std::uint64_t one_shot_rows = query.layout.one_shot_packs / row_packs;
  const std::uint64_t two_shot_packs = query.layout.two_shot_packs * query.size;
  const std::uint64_t two_shot_rows = two_shot_packs / row_packs;
  plan.algorithm = query.requested;
  if (plan.algorithm == Algorithm::automatic) {
    const std::uint64_t bytes = query.rows * row_packs * sizeof(Pack);
    // Without a table of its own: one hop beats two for about the same sizes as in all-reduces alone.
    const bool small =
        query.size == 1 || step_for(steps_or_shipped(query.steps, query.device, query.size), bytes, bytes).algorithm ==
                               Algorithm::one_shot;
    const bool one_shot = one_shot_rows != 0 && (small || two_shot_rows == 0);
    plan.algorithm = one_shot ? Algorithm::one_shot : Algorithm::two_shot;
  }
  plan.piece_rows = plan.algorithm == Algorithm::one_shot ? one_shot_rows : two_shot_rows;
  plan.piece_packs = row_packs;
  if (plan.piece_rows == 0 && query.rows != 0) {
    const std::uint64_t most = plan.algorithm == Algorithm::one_shot ? query.layout.one_shot_packs : two_shot_packs;
    const std::uint64_t pieces = (row_packs + most - 1) / most;
    plan.piece_rows = 1;
    plan.piece_packs = (row_packs + pieces - 1) / pieces;
  }
  const std::uint64_t rows = std::min(query.rows, plan.piece_rows), packs = rows * plan.piece_packs;
  // Between two ranks bytes count from this size on. Measured on H200.
  plan.keeps_own = query.size == 2 && packs * sizeof(Pack) > 256 * kKiB;
  // A processor stores 49 GB/s, so few rows are sent by more blocks than norm them. More blocks than these did not
  // help.
  constexpr std::uint64_t kSendersPacks = 128, kMostSenders = 32;
  const std::uint64_t sent = plan.algorithm == Algorithm::one_shot ? packs : packs / query.size;
  const std::uint64_t senders = std::min((sent + kSendersPacks - 1) / kSendersPacks, kMostSenders);
  const auto blocks_for = [&](std::uint64_t blocks) {
    const auto most = static_cast<std::uint64_t>(std::max(query.max_blocks - 1, 1));
    return static_cast<int>(std::clamp<std::uint64_t>(blocks, 1, most));
  };
  const std::uint32_t specialized_size = has_specialized_norm(query.type, query.size, query.gamma_f32) ? query.size : 0;
  plan.threads = norm_threads(query.launch, plan.piece_packs, max_norm_threads(plan.algorithm, specialized_size));
  const auto grid_of = [&](int by_size) {
    return whole_pairs(query.launch.blocks != 0 ? query.launch.blocks : by_size, query.launch);
  };
  plan.blocks = grid_of(blocks_for(std::max(rows, senders)) + 1);
  if (plan.piece_packs == row_packs && specialized_size == kNormSizeInRoles) give_roles(query, packs, plan);
  plan.norm_threads = norm_threads(query.launch, row_packs, kMostNormThreads);
  plan.norm_blocks = grid_of(blocks_for(query.rows));
  return plan;
}

}  // namespace weft::detail
