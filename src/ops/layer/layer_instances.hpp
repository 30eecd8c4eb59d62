// All kernels of a layer that are its own.
#pragma once

#include "kernel/instances.hpp"
#include "ops/layer/silu_mul.hpp"

namespace weft::detail {

template <DataType type, bool cast, ScaleOrder order>
using SiluMulOf = Instance<SiluMul<type, cast, order>, SiluMulQuery{type, cast, order}>;

struct LayerFamily {
  using List =
      Instances<SiluMulOf<DataType::bf16, false, ScaleOrder::rows>, SiluMulOf<DataType::bf16, true, ScaleOrder::rows>,
                SiluMulOf<DataType::bf16, true, ScaleOrder::columns>, SiluMulOf<DataType::f16, false, ScaleOrder::rows>,
                SiluMulOf<DataType::f16, true, ScaleOrder::rows>, SiluMulOf<DataType::f16, true, ScaleOrder::columns>>;
};

}  // namespace weft::detail
