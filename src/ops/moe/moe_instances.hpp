// All kernels of dispatch and combine.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernel/instances.hpp"
#include "ops/moe/moe_combine.hpp"
#include "ops/moe/moe_dispatch.hpp"
#include "ops/moe/moe_kernels.hpp"
#include "ops/moe/ring_again.hpp"
#include "ops/moe/ring_combine.hpp"
#include "ops/moe/ring_dispatch.hpp"
#include "ops/moe/ring_rounds.hpp"
#include "ops/moe/ring_rows.hpp"

namespace weft::detail {

template <RowType type, ScaleOrder order, bool rounds, bool tallies = false>
using DispatchOfCast =
    Instance<MoeDispatch<CastRow<type == RowType::bf16 ? DataType::bf16 : DataType::f16, order>, rounds, tallies>,
             DispatchQuery{type, RowCast::fp8, order, false, rounds, tallies}>;
constexpr DispatchQuery bits_query(bool ring, bool rounds, bool tallies, bool compact, RoutingUse use, bool payloads) {
  return {RowType::bf16, RowCast::none, ScaleOrder::rows, ring, rounds, tallies, compact, use, payloads};
}
template <bool payloads>
using TensorsOfBits = std::conditional_t<payloads, RowWithPayloads, RowAndScales>;
template <bool rounds, bool tallies = false, bool payloads = false>
using DispatchOfBits = Instance<MoeDispatch<ExactRow<TensorsOfBits<payloads>>, rounds, tallies>,
                                bits_query(false, rounds, tallies, false, RoutingUse::once, payloads)>;
template <DataType type, std::uint32_t ranks_at_once, bool late, bool rounds = false>
using CombineOf =
    Instance<MoeCombine<type, ranks_at_once, late, rounds>, CombineQuery{type, ranks_at_once, false, late, rounds}>;
template <class Row, bool rounds, bool compact>
using RingDispatch = std::conditional_t<rounds, MoeRingRounds<Row>, MoeRingDispatch<Row, compact>>;
template <RowType type, bool rounds, bool compact = false>
using RingDispatchOfCast =
    Instance<RingDispatch<RingCastRow<type == RowType::bf16 ? DataType::bf16 : DataType::f16>, rounds, compact>,
             DispatchQuery{type, RowCast::fp8, ScaleOrder::rows, true, rounds, false, compact}>;
template <bool rounds, bool compact = false, bool payloads = false>
using RingDispatchOfBits = Instance<RingDispatch<RingExactRow<TensorsOfBits<payloads>>, rounds, compact>,
                                    bits_query(true, rounds, false, compact, RoutingUse::once, payloads)>;
template <class Row, RoutingUse use, bool compact>
using RepeatableDispatch = std::conditional_t<use == RoutingUse::known, MoeRingAgain<Row>, MoeRingNoted<Row, compact>>;
template <RowType type, RoutingUse use, bool compact = false>
using RepeatableDispatchOfCast =
    Instance<RepeatableDispatch<RingCastRow<type == RowType::bf16 ? DataType::bf16 : DataType::f16>, use, compact>,
             DispatchQuery{type, RowCast::fp8, ScaleOrder::rows, true, false, false, compact, use}>;
template <RoutingUse use, bool compact = false, bool payloads = false>
using RepeatableDispatchOfBits = Instance<RepeatableDispatch<RingExactRow<TensorsOfBits<payloads>>, use, compact>,
                                          bits_query(true, false, false, compact, use, payloads)>;
template <DataType type, bool late, bool rounds = false>
using RingCombineOf = Instance<MoeRingCombine<type, late, rounds>, CombineQuery{type, 4, true, late, rounds}>;

struct MoeFamily {
  using List = Instances<
      DispatchOfBits<false>, DispatchOfBits<true>, DispatchOfCast<RowType::bf16, ScaleOrder::rows, false>,
      DispatchOfCast<RowType::bf16, ScaleOrder::rows, true>, DispatchOfCast<RowType::bf16, ScaleOrder::columns, false>,
      DispatchOfCast<RowType::bf16, ScaleOrder::columns, true>, DispatchOfCast<RowType::f16, ScaleOrder::rows, false>,
      DispatchOfCast<RowType::f16, ScaleOrder::rows, true>, DispatchOfCast<RowType::f16, ScaleOrder::columns, false>,
      DispatchOfCast<RowType::f16, ScaleOrder::columns, true>, CombineOf<DataType::bf16, 4, false, true>,
      CombineOf<DataType::bf16, 8, false, true>, CombineOf<DataType::f16, 4, false, true>,
      CombineOf<DataType::f16, 8, false, true>, CombineOf<DataType::bf16, 4, false>,
      CombineOf<DataType::bf16, 8, false>, CombineOf<DataType::f16, 4, false>, CombineOf<DataType::f16, 8, false>,
      CombineOf<DataType::bf16, 4, true>, CombineOf<DataType::bf16, 8, true>, CombineOf<DataType::f16, 4, true>,
      CombineOf<DataType::f16, 8, true>, RingDispatchOfBits<false>, RingDispatchOfBits<true>,
      RingDispatchOfCast<RowType::bf16, false>, RingDispatchOfCast<RowType::bf16, true>,
      RingDispatchOfCast<RowType::f16, false>, RingDispatchOfCast<RowType::f16, true>,
      RingCombineOf<DataType::bf16, false>, RingCombineOf<DataType::f16, false>,
      RingCombineOf<DataType::bf16, false, true>, RingCombineOf<DataType::f16, false, true>,
      RingCombineOf<DataType::bf16, true>, RingCombineOf<DataType::f16, true>, DispatchOfBits<false, true>,
      DispatchOfCast<RowType::bf16, ScaleOrder::rows, false, true>,
      DispatchOfCast<RowType::bf16, ScaleOrder::columns, false, true>,
      DispatchOfCast<RowType::f16, ScaleOrder::rows, false, true>,
      DispatchOfCast<RowType::f16, ScaleOrder::columns, false, true>, RingDispatchOfBits<false, true>,
      RingDispatchOfCast<RowType::bf16, false, true>, RingDispatchOfCast<RowType::f16, false, true>,
      RepeatableDispatchOfBits<RoutingUse::noted>, RepeatableDispatchOfBits<RoutingUse::noted, true>,
      RepeatableDispatchOfBits<RoutingUse::known>, RepeatableDispatchOfCast<RowType::bf16, RoutingUse::noted>,
      RepeatableDispatchOfCast<RowType::bf16, RoutingUse::noted, true>,
      RepeatableDispatchOfCast<RowType::bf16, RoutingUse::known>,
      RepeatableDispatchOfCast<RowType::f16, RoutingUse::noted>,
      RepeatableDispatchOfCast<RowType::f16, RoutingUse::noted, true>,
      RepeatableDispatchOfCast<RowType::f16, RoutingUse::known>, DispatchOfBits<false, false, true>,
      DispatchOfBits<true, false, true>, DispatchOfBits<false, true, true>, RingDispatchOfBits<true, false, true>,
      RepeatableDispatchOfBits<RoutingUse::noted, false, true>, RepeatableDispatchOfBits<RoutingUse::noted, true, true>,
      RepeatableDispatchOfBits<RoutingUse::known, false, true>>;
};

}  // namespace weft::detail
