// From run-time values to the one template instance that serves them: all-reduces with a norm.
#pragma once

#include <cstdint>

#include "algorithms/norm_rows.hpp"
#include "algorithms/one_shot_rms_norm.hpp"
#include "algorithms/two_shot_rms_norm.hpp"
#include "core/operation.hpp"
#include "weft/types.hpp"

namespace weft::detail {

struct NormInstance {
  DataType type;
  std::uint32_t size;
  Algorithm algorithm;
  bool casts, keeps_own;

  static NormInstance of(const NormOperation& operation) {
    return {.type = operation.type,
            .size = operation.size,
            .algorithm = operation.algorithm,
            .casts = operation.work.scaling != RowScaling::none,
            .keeps_own = operation.keeps_own};
  }
};

// Calls `run.template operator()<Algorithm class>()` for the instance that serves the call.
template <class Run>
void with_norm(const NormInstance& instance, Run&& run) {
  const auto with_casts = [&]<DataType known_type, std::uint32_t known_size, bool known_casts>() {
    using R = Reduction<known_type, ReduceOp::sum>;
    if (instance.algorithm == Algorithm::one_shot) {
      if constexpr (known_size == 2) {
        if (instance.keeps_own) return run.template operator()<OneShotRmsNorm<R, known_size, known_casts, true>>();
      }
      return run.template operator()<OneShotRmsNorm<R, known_size, known_casts, false>>();
    }
    run.template operator()<TwoShotRmsNorm<R, known_size, known_casts>>();
  };
  const auto with = [&]<DataType known_type, std::uint32_t known_size>() {
    if (instance.casts) return with_casts.template operator()<known_type, known_size, true>();
    with_casts.template operator()<known_type, known_size, false>();
  };
  if (instance.type == DataType::f16) return with.template operator()<DataType::f16, 0>();
  if (instance.size == 2) return with.template operator()<DataType::bf16, 2>();
  if (instance.size == 4) return with.template operator()<DataType::bf16, 4>();
  if (instance.size == 8) return with.template operator()<DataType::bf16, 8>();
  with.template operator()<DataType::bf16, 0>();
}
static_assert(has_lean_norm(DataType::bf16, 2) && has_lean_norm(DataType::bf16, 4) &&
              has_lean_norm(DataType::bf16, 8) && !has_lean_norm(DataType::f16, 2));

// The same for the norm alone.
template <class Run>
void with_norm_rows(DataType type, Run&& run) {
  if (type == DataType::f16) return run.template operator()<NormRows<Reduction<DataType::f16, ReduceOp::sum>>>();
  run.template operator()<NormRows<Reduction<DataType::bf16, ReduceOp::sum>>>();
}

}  // namespace weft::detail
