// Computes the kernels' view of an exchange from its arguments: the experts' homes, and the shape.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/moe/exchange.hpp"
#include "weft/moe.hpp"

namespace weft::detail {

constexpr std::uint32_t element_bytes(RowType type) {
  return type == RowType::fp8 ? 1 : 2;
}

// The bytes of one row of dispatch's output, and of the scales beside it.
struct OutputRow {
  std::size_t bytes, scale_bytes;
};
inline OutputRow output_row(const MoeExchangeArgs& args) {
  if (args.cast == RowCast::none) return {std::size_t{args.hidden} * element_bytes(args.type), args.scale_bytes};
  const std::size_t groups = args.hidden / kScaleColumns;
  if (!scales_are_bytes(args.cast)) return {args.hidden, groups * sizeof(float)};
  return {args.hidden, args.scale_order == ScaleOrder::columns ? (groups + 3) / 4 * 4 : groups};
}

// The bytes, and on the way the packs, of all payloads of one row.
struct SideSizes {
  std::size_t bytes = 0;
  std::uint32_t packs = 0;
};
inline SideSizes side_sizes(const MoeExchangeArgs& args) {
  SideSizes all;
  for (const std::uint32_t bytes : args.payload_bytes) {
    all.bytes += bytes;
    all.packs += packs_beside(bytes);
  }
  return all;
}

// The homes of the experts of an exchange, and how many each rank has.
struct ExpertMap {
  std::vector<ExpertHome> homes;             // by replica; behind the last one empty places, which get no rows
  std::vector<std::uint32_t> first_replica;  // by expert, and their end; empty if no expert has several
  std::vector<std::uint32_t> counts;         // by rank
  std::uint32_t even;                        // as in ExchangeShape
};

// A part of MoeExchangeArgs::experts_of_rank. Every place has a replica, so that each sender counts rows for it. So
// maps of one exchange differ in nothing that kernels take as an argument.
inline ExpertMap map_places(std::uint32_t ranks, const MoeExchangeArgs& args, std::uint32_t number) {
  const std::size_t size = args.experts_of_rank.size() / args.maps;
  const std::span experts = std::span(args.experts_of_rank).subspan(number * size, size);
  const auto places = static_cast<std::uint32_t>(size) / ranks;
  ExpertMap map{.homes = {}, .first_replica = {}, .counts = std::vector<std::uint32_t>(ranks, places), .even = 0};
  std::vector<std::vector<ExpertHome>> replicas(args.experts + 1);  // empty places last
  for (std::uint32_t at = 0; at < experts.size(); ++at) {
    const std::uint32_t expert = experts[at] >= 0 ? static_cast<std::uint32_t>(experts[at]) : args.experts;
    replicas[expert].push_back({at / places, at % places});
  }
  for (const std::vector<ExpertHome>& of : replicas) {
    map.first_replica.push_back(static_cast<std::uint32_t>(map.homes.size()));
    map.homes.insert(map.homes.end(), of.begin(), of.end());
  }
  return map;
}

// `number`: of MoeExchangeArgs::maps.
inline ExpertMap map_experts(std::uint32_t ranks, const MoeExchangeArgs& args, std::uint32_t number = 0) {
  if (!args.experts_of_rank.empty()) return map_places(ranks, args, number);
  ExpertMap map{.homes = {}, .first_replica = {}, .counts = std::vector<std::uint32_t>(ranks), .even = 0};
  for (const std::vector<std::uint32_t>& replicas : args.ranks_of_expert) {
    map.first_replica.push_back(static_cast<std::uint32_t>(map.homes.size()));
    for (const std::uint32_t rank : replicas) map.homes.push_back({rank, map.counts[rank]++});
  }
  if (!map.homes.empty()) {
    map.first_replica.push_back(static_cast<std::uint32_t>(map.homes.size()));
    return map;
  }
  const std::uint32_t least = args.experts / ranks, more = args.experts % ranks;
  for (std::uint32_t expert = 0; expert < args.experts; ++expert) {
    const std::uint32_t in_larger = more * (least + 1);
    const std::uint32_t rank = !args.rank_of_expert.empty() ? args.rank_of_expert[expert]
                               : expert < in_larger         ? expert / (least + 1)
                                                            : more + (expert - in_larger) / least;
    map.homes.push_back({rank, map.counts[rank]++});
  }
  if (args.rank_of_expert.empty() && more == 0) map.even = least;
  return map;
}

// A map's bytes behind the routing tables: homes, then first replicas.
inline std::uint64_t homes_bytes(const ExpertMap& map) {
  return aligned_to_line(map.homes.size() * sizeof(ExpertHome));
}
inline std::uint64_t map_bytes(const ExpertMap& map) {
  return homes_bytes(map) + aligned_to_line(map.first_replica.size() * sizeof(std::uint32_t));
}
inline std::vector<std::byte> bytes_of_map(const ExpertMap& map) {
  std::vector<std::byte> bytes(map_bytes(map));
  std::ranges::copy(std::as_bytes(std::span(map.homes)), bytes.begin());
  std::ranges::copy(std::as_bytes(std::span(map.first_replica)),
                    bytes.begin() + static_cast<std::ptrdiff_t>(homes_bytes(map)));
  return bytes;
}

// The number of rows is a multiple of this, which columns of scales need.
constexpr std::uint32_t rows_step(const MoeExchangeArgs& args) {
  return args.scale_order == ScaleOrder::columns ? 4 : 1;
}

// Rows of MoeExchangeArgs::capacity, if the caller gives none.
inline std::uint32_t default_capacity(std::uint32_t ranks, const MoeExchangeArgs& args, std::uint32_t most_local) {
  if (args.layout == RowLayout::rank_major) return args.tokens;
  const std::uint32_t rows =
      args.layout != RowLayout::expert_contiguous
          ? ranks * args.tokens
          : ranks * args.tokens * std::min(args.top_k, most_local) + most_local * (args.alignment - 1);
  const std::uint32_t step = rows_step(args);
  return (rows + step - 1) / step * step;
}

// Call it once the row is planned and the output's rows are known.
inline ScaleColumns plan_columns(const ExchangeShape& shape) {
  if (shape.layout != RowLayout::expert_masked) return {.words = shape.rows, .experts_apart = 0};
  const std::uint32_t columns = scales_are_bytes(shape.cast) ? (shape.groups + 3) / 4 : shape.groups;
  return {.words = shape.capacity, .experts_apart = std::uint64_t{columns - 1} * shape.capacity};
}

// A lap of a ring takes a round trip, so few places bound the rate. Few ranks have more of them, in the same memory.
constexpr std::uint32_t default_ring_rows(std::uint32_t ranks) {
  constexpr std::uint32_t kRowsOfAll = 4096, kLeast = 512;
  return std::max(std::bit_floor(kRowsOfAll / ranks), kLeast);
}
constexpr bool has_ring(const MoeExchangeArgs& args) {
  const bool asks = args.tokens > kMaxSlotTokens || args.layout == RowLayout::rank_compact;
  return args.path == RowPath::ring || (args.path == RowPath::automatic && asks);
}
// ExchangeShape::ring_rows. No more than tokens need.
constexpr std::uint32_t ring_rows(std::uint32_t ranks, const MoeExchangeArgs& args) {
  if (!has_ring(args)) return 0;
  if (args.ring_rows != 0) return args.ring_rows;
  return std::min(default_ring_rows(ranks), std::max(32u, std::bit_ceil(args.tokens)));
}

// ExchangeShape::slots. Calls of a few tokens are faster by slots (docs/notes/0042-copies-in-bulk.md).
constexpr std::uint32_t slots(const MoeExchangeArgs& args) {
  constexpr std::uint32_t kBesideRing = 128;
  if (!has_ring(args)) return args.tokens;
  const bool alone = args.path == RowPath::ring || args.layout == RowLayout::rank_compact;
  return args.slot_tokens != 0 || alone ? args.slot_tokens : kBesideRing;
}

// The shape of `rank` among `ranks`. Throws nothing: the arguments have been checked.
inline ExchangeShape make_shape(std::uint32_t ranks, std::uint32_t rank, const MoeExchangeArgs& args,
                                const ExpertMap& map) {
  ExchangeShape shape{};
  shape.tokens = args.tokens;
  shape.experts = args.experts;
  shape.replicas = static_cast<std::uint32_t>(map.homes.size());
  shape.top_k = args.top_k;
  shape.even = map.even;
  if (map.even != 0) shape.per_even = ((std::uint64_t{1} << 32) + map.even - 1) / map.even;
  shape.local = map.counts[rank];
  shape.most_local = *std::ranges::max_element(map.counts);
  shape.layout = args.layout;
  shape.alignment = args.alignment;
  shape.capacity = args.capacity != 0 ? args.capacity : default_capacity(ranks, args, shape.most_local);
  shape.rows = shape.capacity * (args.layout == RowLayout::expert_masked ? shape.local
                                 : args.layout == RowLayout::rank_major  ? ranks
                                                                         : 1);
  shape.columns = args.hidden;
  shape.input_packs = args.hidden * element_bytes(args.type) / 16;
  shape.scale_bytes = args.scale_bytes;
  shape.cast = args.cast;
  plan_row(shape, side_sizes(args).packs);
  shape.slots = slots(args);
  shape.source_rows = args.tokens;
  shape.ring_rows = ring_rows(ranks, args);
  plan_ring_row(shape);
  shape.scale_order = args.scale_order;
  if (args.scale_order == ScaleOrder::columns) shape.scale_columns = plan_columns(shape);
  shape.combine_packs = args.hidden * 2 / 16;
  shape.weighted = args.weighted;
  shape.carries_weights = args.weighted && !args.weights_at_combine;
  shape.drop = args.overflow == Overflow::drop;
  return shape;
}

// The payloads of a dispatch, in the form that kernels take.
inline SidePayloads side_payloads(const MoeExchangeArgs& of, const ExchangeShape& shape, const DispatchArgs& args) {
  SidePayloads all{};
  std::uint32_t end = shape.input_packs + packs_beside(shape.scale_bytes);
  for (std::size_t i = 0; i < of.payload_bytes.size(); ++i) {
    end += packs_beside(of.payload_bytes[i]);
    all.of[i] = {args.payloads[i], args.output_payloads[i], of.payload_bytes[i], end};
  }
  return all;
}

// The channel of dispatch or of combine, whose region has so many bytes.
constexpr RegionLayout channel_layout(std::uint64_t bytes, const ExchangeLayout& exchange, const ExchangeShape& shape) {
  RegionLayout layout{};
  layout.headers = 0;
  layout.pipeline_slots = shape.ring_rows;
  layout.pipeline_signals = exchange.ring_signals;
  layout.pipeline_credits = exchange.ring_credits;
  layout.bytes = bytes;
  return layout;
}

}  // namespace weft::detail
