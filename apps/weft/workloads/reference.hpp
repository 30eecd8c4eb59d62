// The expected result of a reduction, computed on the CPU without the library, and the comparison with it.
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
  int step = 0;  // number of the producer's rewrite

  bool operator==(const ReferenceArgs&) const = default;
};

// Elements [begin, end) of the reduction: f32 (i32: 32-bit modular) in rank order, rounded once.
void reduce_reference(const ReferenceArgs& args, std::size_t begin, std::size_t end, std::byte* result);

// Empty if `got` is right, else the first wrong place and value. Both spans begin with element `begin` of the
// reduction. `exact`: compares all bits. Otherwise allows the error of any order of additions that each round (max is
// always exact).
std::string compare(const ReferenceArgs& args, std::span<const std::byte> reference, std::span<const std::byte> got,
                    bool exact, std::size_t begin = 0);

// Stores at `index`, rounded to nearest, ties to even. Not for i32.
void store_float(std::byte* to, std::size_t index, DataType type, float value);
double load_number(const std::byte* from, std::size_t index, DataType type);

// The divisor and the multiplier of columns on their way to e4m3. `largest`: their largest magnitude. `power_of_two`:
// the scale is rounded up to a power of two.
struct Fp8Scale {
  float scale, inverse;
};
Fp8Scale fp8_scale(float largest, bool power_of_two);

}  // namespace weft::cli
