// All kernels of dispatch and combine.
#pragma once

#include <cstdint>

#include "kernel/instances.hpp"
#include "ops/moe/moe_combine.hpp"
#include "ops/moe/moe_dispatch.hpp"
#include "ops/moe/moe_kernels.hpp"

namespace weft::detail {

template <RowType type, ScaleOrder order>
using DispatchOfCast = Instance<MoeDispatch<CastRow<type == RowType::bf16 ? DataType::bf16 : DataType::f16, order>>,
                                DispatchQuery{type, RowCast::fp8, order}>;
template <DataType type, std::uint32_t ranks_at_once>
using CombineOf = Instance<MoeCombine<type, ranks_at_once>, CombineQuery{type, ranks_at_once}>;

struct MoeFamily {
  using List =
      Instances<Instance<MoeDispatch<ExactRow>, DispatchQuery{RowType::bf16, RowCast::none, ScaleOrder::rows}>,
                DispatchOfCast<RowType::bf16, ScaleOrder::rows>, DispatchOfCast<RowType::bf16, ScaleOrder::columns>,
                DispatchOfCast<RowType::f16, ScaleOrder::rows>, DispatchOfCast<RowType::f16, ScaleOrder::columns>,
                CombineOf<DataType::bf16, 4>, CombineOf<DataType::bf16, 8>, CombineOf<DataType::f16, 4>,
                CombineOf<DataType::f16, 8>>;
};

}  // namespace weft::detail
