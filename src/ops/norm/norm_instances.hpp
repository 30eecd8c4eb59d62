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

template <DataType type, std::uint32_t size, bool casts, bool keeps_own = false>
using OneShotNorm = Instance<OneShotRmsNorm<Reduction<type, Ops::sum>, size, casts, keeps_own>,
                             FusedNormQuery{type, size, Algorithm::one_shot, casts, keeps_own}>;
template <DataType type, std::uint32_t size, bool casts>
using TwoShotNorm = Instance<TwoShotRmsNorm<Reduction<type, Ops::sum>, size, casts>,
                             FusedNormQuery{type, size, Algorithm::two_shot, casts}>;
// `size` 0: for any size.
template <DataType type, std::uint32_t size>
using NormsOfSize = Instances<OneShotNorm<type, size, false>, OneShotNorm<type, size, true>,
                              TwoShotNorm<type, size, false>, TwoShotNorm<type, size, true>>;
template <bool casts>
using NormInRoles =
    Instance<RmsNormInRoles<Reduction<DataType::bf16, Ops::sum>, kNormSizeInRoles, casts>, NormInRolesQuery{casts}>;
template <DataType type>
using NormOfRows = Instance<NormRows<Reduction<type, Ops::sum>>, NormRowsQuery{type}>;

struct NormFamily {
  using List =
      Join<NormsOfSize<DataType::bf16, 0>, NormsOfSize<DataType::bf16, 2>, NormsOfSize<DataType::bf16, 4>,
           NormsOfSize<DataType::bf16, 8>, NormsOfSize<DataType::f16, 0>,
           Instances<OneShotNorm<DataType::bf16, 2, false, true>, OneShotNorm<DataType::bf16, 2, true, true>,
                     NormInRoles<false>, NormInRoles<true>, NormOfRows<DataType::bf16>, NormOfRows<DataType::f16>>>;
};

}  // namespace weft::detail
