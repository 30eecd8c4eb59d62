// The reductions of small integers (Fill::integers) that NCCL makes as Weft does, whatever its order.
#pragma once

#include "weft/types.hpp"

namespace weft::test {

// NCCL multiplies floating types by 1 / ranks before it adds, which is exact for powers of two. Of u8 it divides the
// sum modulo 2^8, and Weft the exact one.
constexpr bool nccl_agrees(DataType type, ReduceOp op, int ranks) {
  if (op != ReduceOp::avg) return true;
  return is_floating(type) ? (ranks & (ranks - 1)) == 0 : type != DataType::u8;
}

}  // namespace weft::test
