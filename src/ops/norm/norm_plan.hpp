// Which algorithm serves an all-reduce with a norm, in how many pieces, on which grid. A pure function of its
// arguments, as plan_all_reduce() is.
#pragma once

#include <cstdint>
#include <span>

#include "protocol/channel.hpp"
#include "tuning/tuning.hpp"
#include "weft/collectives.hpp"
#include "weft/types.hpp"

namespace weft::detail {

// How an all-reduce with a norm is made: whole rows, several kernels where they are too many for the buffers, and a row
// by pieces where it is too long for them (ops/norm/norm_steps.hpp).
struct NormPlan {
  Algorithm algorithm;
  std::uint64_t piece_rows;   // of one kernel
  std::uint64_t piece_packs;  // of a row; fewer than it has: one row's, and the norm is a kernel of its own
  bool keeps_own;             // NormOperation
  int blocks;                 // the control block included
  int threads;
  int norm_blocks, norm_threads;  // of that other kernel, which has no control block
};
struct NormQuery {
  Device device;
  std::uint32_t size;  // ranks of the group
  RegionLayout layout;
  DataType type;
  std::uint64_t rows;
  std::uint64_t row_packs;
  Algorithm wish = Algorithm::automatic;  // or one_shot, or two_shot
  Launch launch = {};
  int max_blocks = kMaxBlocks;
  std::span<const TuningStep> steps = {};  // as PlanQuery's: where it says one-shot, one hop beats two
};
NormPlan plan_norm(const NormQuery& query);

// Threads of a norm's block at most: one for each pack of a row, as far as the instance has registers for them. What
// one-shot allows two-shot does, too. The kernel that only norms has them always.
inline constexpr int kMostNormThreads = 1024;
constexpr int max_norm_threads(Algorithm algorithm, std::uint32_t lean_size) {
  const bool few = lean_size == 2 || lean_size == 4 || (lean_size == 8 && algorithm == Algorithm::two_shot);
  return few ? kMostNormThreads : 512;
}

// Groups that have an instance of their own: what models are served on most.
constexpr bool has_lean_norm(DataType type, std::uint32_t size) {
  return type == DataType::bf16 && (size == 2 || size == 4 || size == 8);
}

}  // namespace weft::detail
