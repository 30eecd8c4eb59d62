// From run-time values to the one template instance that serves them: all-reduces.
#pragma once

#include <cstdint>
#include <utility>

#include "algorithms/bulk_all_reduce.hpp"
#include "algorithms/multimem_one_shot.hpp"
#include "algorithms/multimem_two_shot.hpp"
#include "algorithms/one_shot_all_reduce.hpp"
#include "algorithms/two_shot_all_reduce.hpp"
#include "core/operation.hpp"
#include "weft/types.hpp"

namespace weft::detail {

// One instance per type: any group size, count and alignment. Nothing for what no switch adds up.
template <class Run>
void with_multimem(DataType type, Algorithm algorithm, Run&& run) {
  const auto with_type = [&]<DataType known>() {
    using R = Reduction<known, ReduceOp::sum, Plain>;
    if (algorithm == Algorithm::multimem_one_shot) return run.template operator()<MultimemOneShot<R>>();
    run.template operator()<MultimemTwoShot<R>>();
  };
  if (type == DataType::bf16) return with_type.template operator()<DataType::bf16>();
  if (type == DataType::f16) return with_type.template operator()<DataType::f16>();
  if (type == DataType::f32) with_type.template operator()<DataType::f32>();
}

// Calls `run.template operator()<Algorithm class>()` for the instance that serves the call.
template <class Run>
void with_all_reduce(const InstanceQuery& query, Algorithm algorithm, Run&& run) {
  if (is_multimem(algorithm)) return with_multimem(query.type, algorithm, run);
  const bool lean = has_lean_instance(query);
  const auto with_algorithm = [&]<class R, std::uint32_t known_size, bool whole>() {
    using BulkReduction = Reduction<R::kType, R::kOp, Plain>;
    switch (algorithm) {
      case Algorithm::one_shot:
        return run.template operator()<OneShotAllReduce<R, known_size, whole>>();
      case Algorithm::two_shot:
        return run.template operator()<TwoShotAllReduce<R, known_size, whole>>();
      default:
        return run.template operator()<BulkAllReduce<BulkReduction, known_size, whole>>();
    }
  };
  const auto with_size = [&]<DataType type, ReduceOp op, std::uint32_t... size>(
      std::integer_sequence<std::uint32_t, size...>) {
    using R = Reduction<type, op>;
    const auto try_size = [&]<std::uint32_t known>() {
      if constexpr (has_lean_instance({.type = type, .op = op, .size = known, .whole = true})) {
        if (lean && query.size == known) return with_algorithm.template operator()<R, known, true>(), true;
      }
      return false;
    };
    if (!(try_size.template operator()<size>() || ...)) with_algorithm.template operator()<R, 0, false>();
  };
  const auto with_op = [&]<DataType type>() {
    constexpr auto sizes = std::make_integer_sequence<std::uint32_t, 9>{};
    if (query.op == ReduceOp::sum) return with_size.template operator()<type, ReduceOp::sum>(sizes);
    with_size.template operator()<type, ReduceOp::max>(sizes);
  };
  switch (query.type) {
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
