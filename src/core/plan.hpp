// Which algorithm serves an all-reduce, on which grid, in how many pieces. A pure function of its arguments, so that
// ranks which make the same call make the same choice; the grid is each rank's own affair and may differ.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/channel.hpp"
#include "core/tuning.hpp"
#include "weft/collectives.hpp"
#include "weft/types.hpp"

namespace weft::detail {

struct PlanQuery {
  Device device;
  std::uint32_t size;  // ranks of the group
  RegionLayout layout;
  std::uint64_t multimem_packs = 0;
  DataType type;
  ReduceOp op;
  std::size_t count;
  bool whole = true;                      // input and output consist of whole, aligned packs
  Algorithm wish = Algorithm::automatic;  // not nccl
  Launch launch = {};
  int max_blocks = kMaxBlocks;             // blocks that fit on the GPU beside each other, the control block included
  int least_max_blocks = kMaxBlocks;       // … of the rank where these are fewest: the same on every rank
  std::span<const TuningStep> steps = {};  // of the group's tuning table; empty: the shipped one's
};

struct Plan {
  Algorithm algorithm;
  std::size_t piece;  // elements per kernel; a larger message takes several
  int blocks;         // the control block included
  int threads;
  // Of bulk on GPUs: parts of a block that work like blocks, and whether some move and others reduce.
  int crews = 1;
  bool apart = false;
};

Plan plan_all_reduce(const PlanQuery& query);

inline constexpr int kMoveThreads = 512;  // of a copy or a reduce-scatter, per block, at most

// How a copy or a reduce-scatter is made. Where it goes over to chunks follows from what is the same on every rank.
struct MovePlan {
  std::uint64_t slot_packs;    // of the wire: longer messages flow in chunks
  std::uint64_t detour_packs;  // that a detour must spare the busiest link (core/detour.hpp) …
  bool detour;                 // … and whether one does, where the host knows whose rows there are
  int blocks;                  // the control block included
  int threads;
  int crews = 1;  // parts of a block that work like blocks
};
struct MoveQuery {
  Device device;
  std::uint32_t size;  // ranks of the group
  RegionLayout layout;
  std::uint64_t own_bytes;    // that this rank has room for, of what is its own: what it sends to one, or its own sums
  std::uint64_t whole_bytes;  // … and of what is all ranks': in a ragged call whoever has them
  std::uint64_t sent_bytes = 0;  // by all ranks to one, each own_bytes or nothing; 0: counts will say
  std::uint64_t unit_bytes;      // that one thread moves at once
  std::uint64_t wire_packs;      // … and what they take on the wire
  std::uint64_t streams;         // threads that serve the same place of a message: one for all peers, or one for each
  bool symmetric = false;        // outputs lie in symmetric memory
  Launch launch = {};
  int max_blocks = kMaxBlocks;
};
MovePlan plan_move(const MoveQuery& query);

// How an all-reduce with a norm is made: whole rows, several kernels where they are too many for the buffers, and a row
// by pieces where it is too long for them (core/norm_steps.hpp).
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

// Those by NVLink's switches, which add up what they can.
constexpr bool is_multimem(Algorithm algorithm) {
  return algorithm == Algorithm::multimem_one_shot || algorithm == Algorithm::multimem_two_shot;
}
constexpr bool multimem_adds(DataType type, ReduceOp op) {
  return op == ReduceOp::sum && type != DataType::i32;
}

// Which instance of an algorithm's template serves a call (algorithms/all_reduce.hpp). What models wait for has lean
// instances of its own: floating sums of whole packs, in groups of up to eight. One instance serves all the rest.
struct InstanceQuery {
  DataType type;
  ReduceOp op;
  std::uint32_t size;
  bool whole;

  constexpr bool operator==(const InstanceQuery&) const = default;
};
constexpr bool has_lean_instance(const InstanceQuery& query) {
  if (!query.whole || query.op != ReduceOp::sum) return false;
  const std::uint32_t size = query.size;
  if (query.type == DataType::bf16) return size >= 2 && size <= 8;
  return query.type != DataType::i32 && (size == 2 || size == 4 || size == 8);
}
// Threads per block that the registers of the instance allow.
constexpr int max_threads(std::uint32_t known_size) {
  return known_size >= 1 && known_size <= 4 ? 1024 : 512;
}

// Defaults of Config's limits, in bytes of message.
std::size_t default_one_shot_bytes(Device device, std::uint32_t size);
std::size_t default_two_shot_bytes(Device device, std::uint32_t size);

// Chunks are worth their signals' round trip; on the GPU, slots are for as many blocks as saturate the links, and few
// ranks have larger chunks in the same memory.
constexpr BulkShape default_bulk_shape(Device device, std::uint32_t size, bool world) {
  if (device == Device::cpu) return {.slots = 8, .packs = 1024};
  return {.slots = world ? 256u : 32u, .packs = std::max(std::bit_floor(8192 / size), 256u)};
}

// Bytes of a message that one pack of the wire carries: 16, or 8 for types without a sentinel.
constexpr std::size_t payload_bytes(DataType type) {
  return type == DataType::i32 ? 8 : 16;
}

}  // namespace weft::detail
