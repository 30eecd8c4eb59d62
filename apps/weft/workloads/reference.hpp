// The result that every rank must have, which the oracle computes of the pattern, and the comparison with it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/pattern.hpp"
#include "weft/types.hpp"

namespace weft::cli {

struct ReferenceArgs {
  std::size_t count = 0;
  DataType type = DataType::bf16;
  ReduceOp op = ReduceOp::sum;
  Data data = Data::integers;
  int ranks = 1;
  int step = 0;  // which of a producer's rewrites

  bool operator==(const ReferenceArgs&) const = default;
};

// Elements [begin, end) of the reduction: f32 (i32: 32-bit modular) in rank order, rounded once.
void reduce_reference(const ReferenceArgs& args, std::size_t begin, std::size_t end, std::byte* result);

// Empty when `got` is right, else where it is not and what is there. Both begin with element `begin` of the reduction.
// Bit for bit when `exact`; otherwise within the error of a sum in any order that rounds after every addition (max is
// exact always).
std::string compare(const ReferenceArgs& args, std::span<const std::byte> reference, std::span<const std::byte> got,
                    bool exact, std::size_t begin = 0);

}  // namespace weft::cli
