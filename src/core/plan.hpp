// Which algorithm serves an all-reduce, on which grid, in how many pieces. A pure function of its arguments, so that
// ranks which make the same call make the same choice; the grid is each rank's own affair and may differ.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/channel.hpp"
#include "weft/collectives.hpp"
#include "weft/types.hpp"

namespace weft::detail {

struct PlanQuery {
  Device device;
  std::uint32_t size;  // ranks of the group
  RegionLayout layout;
  DataType type;
  ReduceOp op;
  std::size_t count;
  Algorithm wish = Algorithm::automatic;  // not nccl
  Launch launch = {};
  int max_blocks = kMaxBlocks;  // blocks that fit on the GPU beside each other, the control block included
};

struct Plan {
  Algorithm algorithm;
  std::size_t piece;  // elements per kernel; a larger message takes several
  int blocks;         // the control block included
  int threads;
};

Plan plan_all_reduce(const PlanQuery& query);

// Peers that the kernel for a call handles at once in registers. Floating sums are what models wait for and have an
// instance for few peers; the rest does with one, which serves every size.
constexpr std::uint32_t batch_of(DataType type, ReduceOp op, std::uint32_t size) {
  if (op != ReduceOp::sum || type == DataType::i32 || size > 4) return 8;
  return size <= 2 ? 2 : 4;
}
// Threads per block that the registers of such a kernel allow.
constexpr int max_threads(std::uint32_t batch) {
  return batch <= 4 ? 1024 : 512;
}

// Defaults of Config's limits, in bytes of message.
std::size_t default_one_shot_bytes(Device device, std::uint32_t size);
std::size_t default_two_shot_bytes(Device device, std::uint32_t size);

// Bytes of a message that one pack of the wire carries: 16, or 8 for types without a sentinel.
constexpr std::size_t payload_bytes(DataType type) {
  return type == DataType::i32 ? 8 : 16;
}

}  // namespace weft::detail
