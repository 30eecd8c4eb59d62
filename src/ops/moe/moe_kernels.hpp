// Finds the kernels that serve a dispatch or a combine.
#pragma once

#include <cstdint>

#include "kernel/kernel.hpp"
#include "ops/moe/exchange.hpp"

namespace weft::detail {

struct MoeFamily;   // ops/moe/moe_instances.hpp
struct MaskFamily;  // ops/moe/mask_ids.hpp

// By a ring in one round: what a dispatch does with its routing.
enum class RoutingUse : std::uint8_t {
  once,   // it and its combine use it
  noted,  // others may use it, too
  known   // it takes that of another one
};

struct DispatchQuery {
  RowType type;
  RowCast cast;
  ScaleOrder order;
  bool ring = false;    // RowPath::ring
  bool rounds = false;  // more than one
  // By slots and in one round: blocks count entries for all of their records at once (moe_tally.hpp).
  bool tallies = false;
  bool compact = false;  // RowLayout::rank_compact; by a ring, in one round
  RoutingUse use = RoutingUse::once;
  bool payloads = false;  // MoeExchangeArgs::payload_bytes; not with a cast

  using Work = DispatchWork;
  constexpr bool operator==(const DispatchQuery&) const = default;
  // Rows that are not cast travel bit for bit, whatever their type. With payloads a kernel by the ring that notes its
  // routing serves those that need not, too.
  constexpr DispatchQuery key() const {
    const bool by_tallies = tallies && !ring && !rounds, by_rows = compact && use != RoutingUse::known;
    const bool notes = payloads && ring && !rounds && use == RoutingUse::once;
    if (cast == RowCast::none)
      return {.type = RowType::bf16,
              .cast = RowCast::none,
              .order = ScaleOrder::rows,
              .ring = ring,
              .rounds = rounds,
              .tallies = by_tallies,
              .compact = by_rows,
              .use = notes ? RoutingUse::noted : use,
              .payloads = payloads};
    return {.type = type == RowType::bf16 ? RowType::bf16 : RowType::f16,
            .cast = RowCast::fp8,
            .order = ring ? ScaleOrder::rows : order,
            .ring = ring,
            .rounds = rounds,
            .tallies = by_tallies,
            .compact = by_rows,
            .use = use};
  }
};
KernelFor<DispatchWork> find_kernel(const DispatchQuery& query);

struct CombineQuery {
  DataType type;
  std::uint32_t ranks;  // of the group
  bool ring = false;    // RowPath::ring
  bool late = false;    // weights come with combine
  bool rounds = false;  // more than one

  using Work = CombineWork;
  constexpr bool operator==(const CombineQuery&) const = default;
  // The number of ranks from which rows are received at once.
  constexpr CombineQuery key() const {
    return {type == DataType::bf16 ? DataType::bf16 : DataType::f16, ranks <= 4 || ring ? 4u : 8u, ring, late, rounds};
  }
};
KernelFor<CombineWork> find_kernel(const CombineQuery& query);

// In front of a dispatch by mask (ops/moe/mask_ids.hpp).
struct MaskIdsWork {
  const std::uint8_t* mask;  // [tokens, ranks]
  std::int32_t* ids;         // [tokens, ranks]
  std::uint32_t tokens, ranks;
};
struct MaskIdsQuery {
  using Work = MaskIdsWork;
  constexpr bool operator==(const MaskIdsQuery&) const = default;
  constexpr MaskIdsQuery key() const { return *this; }
};
KernelFor<MaskIdsWork> find_kernel(const MaskIdsQuery& query);

}  // namespace weft::detail
