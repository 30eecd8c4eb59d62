// The result that every rank must have, computed on the CPU apart from the library, and the comparison with it.
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

// The element at `index`, rounded to nearest, ties to even; i32 is not stored.
void store_float(std::byte* to, std::size_t index, DataType type, float value);
double load_number(const std::byte* from, std::size_t index, DataType type);

// What columns are divided and multiplied by on their way to e4m3, `largest` being their largest magnitude.
// `power_of_two`: the scale is rounded up to one.
struct Fp8Scale {
  float scale, inverse;
};
Fp8Scale fp8_scale(float largest, bool power_of_two);

}  // namespace weft::cli
