// From run-time values to the one template instance that serves them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "algorithms/one_shot_all_reduce.hpp"
#include "algorithms/two_shot_all_reduce.hpp"
#include "weft/types.hpp"

namespace weft::detail {

template <auto value>
using Constant = std::integral_constant<decltype(value), value>;

// Calls `run.template operator()<Algorithm class>()` for the instance.
template <class R, bool tuned, class Run>
void with_batch(Algorithm algorithm, std::uint32_t size, Run&& run) {
  const auto choose = [&](auto batch) {
    if (algorithm == Algorithm::one_shot) {
      run.template operator()<OneShotAllReduce<R, batch>>();
    } else {
      run.template operator()<TwoShotAllReduce<R, batch>>();
    }
  };
  if constexpr (tuned) {
    if (size <= 2) return choose(Constant<2u>{});
    if (size <= 4) return choose(Constant<4u>{});
  }
  choose(Constant<8u>{});
}

template <class Run>
void with_all_reduce(DataType type, ReduceOp op, Algorithm algorithm, std::uint32_t size, Run&& run) {
  const auto with_op = [&](auto type_constant) {
    constexpr DataType known = decltype(type_constant)::value;
    if (op == ReduceOp::sum) {
      // Floating sums are what models wait for; the rest does with one instance, which serves every size.
      with_batch<Reduction<known, ReduceOp::sum>, known != DataType::i32>(algorithm, size, run);
    } else {
      with_batch<Reduction<known, ReduceOp::max>, false>(algorithm, size, run);
    }
  };
  switch (type) {
    case DataType::bf16:
      return with_op(Constant<DataType::bf16>{});
    case DataType::f16:
      return with_op(Constant<DataType::f16>{});
    case DataType::f32:
      return with_op(Constant<DataType::f32>{});
    case DataType::i32:
      return with_op(Constant<DataType::i32>{});
  }
}

}  // namespace weft::detail
