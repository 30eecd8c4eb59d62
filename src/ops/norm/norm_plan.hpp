// Chooses the algorithm, pieces and grid of an all-reduce with a norm. A pure function of its arguments, like
// plan_all_reduce().
#pragma once

#include <cstdint>
#include <span>

#include "protocol/channel.hpp"
#include "team/team.hpp"
#include "tuning/tuning.hpp"
#include "weft/launch.hpp"
#include "weft/types.hpp"

namespace weft::detail {

// The way of an all-reduce with a norm: whole rows, and several kernels if the buffers do not hold all rows. A row that
// is too long for them goes by pieces (ops/norm/norm_steps.hpp).
struct NormPlan {
  Algorithm algorithm;
  std::uint64_t piece_rows;   // of one kernel
  std::uint64_t piece_packs;  // of a row; if fewer than it has: one row's piece, and the norm is its own kernel
  bool keeps_own;             // NormOperation
  int blocks;                 // the control block included
  int threads;
  int movers;                     // two-shot: blocks that move packs, while others norm rows (NormInRolesWork), or 0
  int warp_groups;                // of each block, if so
  int norm_blocks, norm_threads;  // of the norm's own kernel, which has no control block
};
struct NormQuery {
  Device device;
  std::uint32_t size;  // ranks of the group
  RegionLayout layout;
  DataType type;
  std::uint64_t rows;
  std::uint64_t row_packs;
  Algorithm requested = Algorithm::automatic;  // or one_shot, or two_shot
  bool gamma_f32 = false;
  Launch launch = {};
  int max_blocks = kMaxBlocks;
  std::span<const TuningStep> steps = {};  // of the norms' table: at its one-shot sizes, one hop beats two
};
NormPlan plan_norm(const NormQuery& query);

// Most threads of a norm's block: one for each pack of a row, if the instance has registers for them. Two-shot allows
// every size that one-shot allows. The kernel that only norms always has registers for them.
inline constexpr int kMostNormThreads = 1024;
constexpr int max_norm_threads(Algorithm algorithm, std::uint32_t specialized_size) {
  const bool few =
      specialized_size == 2 || specialized_size == 4 || (specialized_size == 8 && algorithm == Algorithm::two_shot);
  return few ? kMostNormThreads : 512;
}

// Blocks with roles: fewer threads, as each holds several packs of a row. Groups of this size have an instance.
inline constexpr int kMostNormThreadsInRoles = 512;
inline constexpr std::uint32_t kNormSizeInRoles = 2;
// Packs that a mover's thread has scattered beyond the one that it reduces: as many as travel until a peer's come. More
// of them delay the first rows.
inline constexpr std::uint32_t kNormPacksAhead = 2;

// Groups that have an instance of their own: most models are served on them.
constexpr bool has_specialized_norm(DataType type, std::uint32_t size, bool gamma_f32 = false) {
  return type == DataType::bf16 && !gamma_f32 && (size == 2 || size == 4 || size == 8);
}

}  // namespace weft::detail
