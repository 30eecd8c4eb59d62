// All kernels of crossings with residual and norm.
#pragma once

#include "kernel/instances.hpp"
#include "ops/normed_crossings/normed_crossing.hpp"
#include "ops/normed_crossings/normed_crossing_kernels.hpp"

namespace weft::detail {

template <bool flows, DataType type, std::uint32_t size = 0, bool casts = true, bool gamma_f32 = false>
using NormedCrossingOf =
    Instance<NormedCrossing<type, size, casts, flows, gamma_f32>,
             NormedCrossingQuery{.type = type, .size = size, .casts = casts, .flows = flows, .gamma_f32 = gamma_f32}>;

struct NormedCrossingFamily {
  using List = Instances<NormedCrossingOf<false, DataType::bf16, 2, false>, NormedCrossingOf<false, DataType::bf16, 2>,
                         NormedCrossingOf<false, DataType::bf16, 4, false>, NormedCrossingOf<false, DataType::bf16, 4>,
                         NormedCrossingOf<false, DataType::bf16>, NormedCrossingOf<false, DataType::f16>,
                         NormedCrossingOf<true, DataType::bf16, 2, false>, NormedCrossingOf<true, DataType::bf16, 2>,
                         NormedCrossingOf<true, DataType::bf16, 4, false>, NormedCrossingOf<true, DataType::bf16, 4>,
                         NormedCrossingOf<true, DataType::bf16>, NormedCrossingOf<true, DataType::f16>,
                         NormedCrossingOf<true, DataType::bf16, 0, true, true>,
                         NormedCrossingOf<true, DataType::f16, 0, true, true>>;
};

}  // namespace weft::detail
