// Arguments of an all-reduce's kernel.
#pragma once

#include <cstdint>

#include "weft/types.hpp"

namespace weft::detail {

struct AllReduceWork {
  const void* input;
  void* output;
  std::uint64_t count;  // elements
  // For the pipelined all-reduce; each rank's own choice:
  std::uint32_t warp_groups = 1;  // parts of a block that work like blocks, if executors can
  bool apart = false;             // a data block reduces or moves, more chunks; there are two or more data blocks
  ReduceOp op = ReduceOp::sum;
};

}  // namespace weft::detail
