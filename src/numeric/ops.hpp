// The division of reductions into instances of kernels.
#pragma once

#include <cstdint>

#include "weft/types.hpp"

namespace weft::detail {

// The operations that an instance serves: sums alone, or any one, which the call names. Models wait for sums.
enum class Ops : std::uint8_t { sum, any };
constexpr Ops ops_for(DataType type, ReduceOp op) {
  const bool common = op == ReduceOp::sum && type != DataType::i64 && type != DataType::u8;
  return common ? Ops::sum : Ops::any;
}

}  // namespace weft::detail
