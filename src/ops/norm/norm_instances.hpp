// All kernels of norms.
#pragma once

#include <cstdint>

#include "kernel/instances.hpp"
#include "ops/norm/norm_kernels.hpp"
#include "ops/norm/norm_rows.hpp"
#include "ops/norm/one_shot_rms_norm.hpp"
#include "ops/norm/rms_norm_in_roles.hpp"
#include "ops/norm/two_shot_rms_norm.hpp"

namespace weft::detail {

template <DataType type, std::uint32_t size, bool casts, bool keeps_own = false, bool gamma_f32 = false>
using OneShotNorm = Instance<OneShotRmsNorm<Reduction<type, Ops::sum>, size, casts, keeps_own, gamma_f32>,
                             FusedNormQuery{type, size, Algorithm::one_shot, casts, keeps_own, gamma_f32}>;
template <DataType type, std::uint32_t size, bool casts, bool gamma_f32 = false>
using TwoShotNorm = Instance<TwoShotRmsNorm<Reduction<type, Ops::sum>, size, casts, gamma_f32>,
                             FusedNormQuery{type, size, Algorithm::two_shot, casts, false, gamma_f32}>;
// `size` 0: for any size.
template <DataType type, std::uint32_t size, bool gamma_f32 = false>
using NormsOfSize =
    Instances<OneShotNorm<type, size, false, false, gamma_f32>, OneShotNorm<type, size, true, false, gamma_f32>,
              TwoShotNorm<type, size, false, gamma_f32>, TwoShotNorm<type, size, true, gamma_f32>>;
template <bool casts>
using NormInRoles =
    Instance<RmsNormInRoles<Reduction<DataType::bf16, Ops::sum>, kNormSizeInRoles, casts>, NormInRolesQuery{casts}>;
template <DataType type, bool gamma_f32 = false>
using NormOfRows = Instance<NormRows<Reduction<type, Ops::sum>, gamma_f32>, NormRowsQuery{type, gamma_f32}>;

struct NormFamily {
  using List =
      Join<NormsOfSize<DataType::bf16, 0>, NormsOfSize<DataType::bf16, 2>, NormsOfSize<DataType::bf16, 4>,
           NormsOfSize<DataType::bf16, 8>, NormsOfSize<DataType::f16, 0>, NormsOfSize<DataType::bf16, 0, true>,
           NormsOfSize<DataType::f16, 0, true>,
           Instances<OneShotNorm<DataType::bf16, 2, false, true>, OneShotNorm<DataType::bf16, 2, true, true>,
                     NormInRoles<false>, NormInRoles<true>, NormOfRows<DataType::bf16>, NormOfRows<DataType::f16>,
                     NormOfRows<DataType::bf16, true>, NormOfRows<DataType::f16, true>>>;
};

}  // namespace weft::detail
