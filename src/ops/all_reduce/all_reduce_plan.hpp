// Chooses an all-reduce's algorithm, grid and pieces. A pure function of its arguments, so that ranks which make the
// same call make the same choice. The grid is each rank's own choice and may differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel/most_threads.hpp"
#include "numeric/ops.hpp"
#include "protocol/channel.hpp"
#include "team/team.hpp"
#include "tuning/tuning.hpp"
#include "weft/launch.hpp"
#include "weft/types.hpp"
#include "wire/payload.hpp"

namespace weft::detail {

struct PlanQuery {
  Device device;
  std::uint32_t size;  // ranks of the group
  RegionLayout layout;
  std::uint64_t multimem_packs = 0;
  DataType type;
  ReduceOp op;
  std::size_t count;
  bool aligned16 = true;                       // input and output consist of whole, aligned packs
  Algorithm requested = Algorithm::automatic;  // not nccl
  Launch launch = {};
  int max_blocks = kMaxBlocks;             // blocks that fit on the GPU beside each other, the control block included
  int least_max_blocks = kMaxBlocks;       // … on the rank with the fewest: the same on every rank
  std::span<const TuningStep> steps = {};  // of the group's tuning table; empty: the shipped one's
};

struct Plan {
  Algorithm algorithm;
  std::size_t piece;  // elements per kernel; a larger message takes several
  int blocks;         // the control block included
  int threads;
  // For pipelined on GPUs: parts of a block that work like blocks, and whether some of them move and others reduce.
  int warp_groups = 1;
  bool apart = false;
};

Plan plan_all_reduce(const PlanQuery& query);

// Groups that move chunks, in a block of so many threads.
constexpr int warp_groups_of(int threads) {
  constexpr auto each = static_cast<int>(kWarpGroupThreads);
  return threads % each == 0 ? threads / each : 1;
}

// NVLink's switches only add up floating types.
constexpr bool multimem_adds(DataType type, ReduceOp op) {
  return op == ReduceOp::sum && is_floating(type);
}

// Finds the instance of an algorithm's template for a call (ops/all_reduce/all_reduce.hpp). Models wait for floating
// sums of whole packs, in groups of up to eight: these have specialized instances. For all other calls one instance
// serves a type's sums, and one its other operations.
struct InstanceQuery {
  DataType type;
  Ops ops;
  std::uint32_t size;
  bool aligned16;

  constexpr bool operator==(const InstanceQuery&) const = default;
};
constexpr bool has_specialized_instance(const InstanceQuery& query) {
  if (!query.aligned16 || query.ops != Ops::sum) return false;
  const std::uint32_t size = query.size;
  if (query.type == DataType::bf16) return size >= 2 && size <= 8;
  return is_floating(query.type) && (size == 2 || size == 4 || size == 8);
}

}  // namespace weft::detail
