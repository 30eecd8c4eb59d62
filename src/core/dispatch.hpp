// From run-time values to the one template instance that serves them.
#pragma once

#include <cstdint>

#include "algorithms/one_shot_all_reduce.hpp"
#include "algorithms/two_shot_all_reduce.hpp"
#include "core/plan.hpp"
#include "weft/types.hpp"

namespace weft::detail {

// Calls `run.template operator()<Algorithm class>()` for the instance that serves the call.
template <class Run>
void with_all_reduce(DataType type, ReduceOp op, Algorithm algorithm, std::uint32_t size, Run&& run) {
  const std::uint32_t batch = batch_of(type, op, size);
  const auto with_algorithm = [&]<class R, std::uint32_t known_batch>() {
    if (algorithm == Algorithm::one_shot) return run.template operator()<OneShotAllReduce<R, known_batch>>();
    run.template operator()<TwoShotAllReduce<R, known_batch>>();
  };
  const auto with_batch = [&]<DataType known_type, ReduceOp known_op>() {
    using R = Reduction<known_type, known_op>;
    if constexpr (batch_of(known_type, known_op, 2) == 2) {
      if (batch == 2) return with_algorithm.template operator()<R, 2>();
      if (batch == 4) return with_algorithm.template operator()<R, 4>();
    }
    with_algorithm.template operator()<R, 8>();
  };
  const auto with_op = [&]<DataType known_type>() {
    if (op == ReduceOp::sum) return with_batch.template operator()<known_type, ReduceOp::sum>();
    with_batch.template operator()<known_type, ReduceOp::max>();
  };
  switch (type) {
    case DataType::bf16:
      return with_op.template operator()<DataType::bf16>();
    case DataType::f16:
      return with_op.template operator()<DataType::f16>();
    case DataType::f32:
      return with_op.template operator()<DataType::f32>();
    case DataType::i32:
      return with_op.template operator()<DataType::i32>();
  }
}

}  // namespace weft::detail
