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
  int step = 0;        // number of the producer's rewrite
  int first_rank = 0;  // of `ranks` neighbours

  bool operator==(const ReferenceArgs&) const = default;
};

// Elements [begin, end) of the reduction, as the oracle makes it.
void reduce_reference(const ReferenceArgs& args, std::size_t begin, std::size_t end, std::byte* result);

// Empty if `got` is right, else the first wrong place and value. Both spans begin with element `begin` of the
// reduction. `exact`: compares all bits. Otherwise allows floating types the error of any order of additions that each
// round (max and min are always exact).
std::string compare(const ReferenceArgs& args, std::span<const std::byte> reference, std::span<const std::byte> got,
                    bool exact, std::size_t begin = 0);

}  // namespace weft::cli
