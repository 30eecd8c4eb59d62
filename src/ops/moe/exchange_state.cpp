#include "ops/moe/exchange_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/argument.hpp"
#include "base/enum_text.hpp"
#include "base/fingerprint.hpp"
#include "base/limits.hpp"
#include "comm/disagreement.hpp"
#include "team/team.hpp"
#include "tuning/row_path.hpp"

namespace weft::detail {
namespace {

constexpr std::uint32_t kMostHidden = 1u << 20;
constexpr std::uint32_t kMostAlignment = 1024;
constexpr std::uint32_t kMostMaps = 1024;
constexpr int kMostGivenBlocks = static_cast<int>(kMaxBlocks);  // of Launch::blocks on any GPU
constexpr std::uint32_t kMostSideBytes = 4096;                  // of scales and payloads, beyond 4 for each column

// The values that all ranks of a group must share, as bytes to compare.
struct AgreedExchange {
  int leader;  // world rank of the group's first
  std::uint32_t tokens, hidden, experts, top_k, scale_bytes, alignment, capacity, handles, map, maps;
  RowType type;
  RowCast cast;
  ScaleOrder scale_order;
  RowLayout layout;
  DataType combine_type;
  Overflow overflow;
  bool weighted, weights_at_combine;
  RowPath path;
  std::uint32_t ring_rows, slot_tokens;
  int blocks;
  bool repeatable;
  std::uint32_t payload_bytes[kMostPayloads];
};

std::string describe(const AgreedExchange& a) {
  return fmt::format(
      "tokens {}, hidden {}, experts {}, top_k {}, scale_bytes {}, alignment {}, capacity {}, handles {}, "
      "rank_of_expert {:08x}, maps {}, type {}, cast {}, scale_order {}, layout {}, combine_type {}, overflow {}, "
      "weighted {}, "
      "weights_at_combine {}, "
      "path {}, ring_rows {}, slot_tokens {}, blocks {}, repeatable {}, payload_bytes {}",
      a.tokens, a.hidden, a.experts, a.top_k, a.scale_bytes, a.alignment, a.capacity, a.handles, a.map, a.maps,
      static_cast<int>(a.type), static_cast<int>(a.cast), static_cast<int>(a.scale_order), static_cast<int>(a.layout),
      name(a.combine_type), static_cast<int>(a.overflow), a.weighted, a.weights_at_combine, name(a.path), a.ring_rows,
      a.slot_tokens, a.blocks, a.repeatable, fmt::join(a.payload_bytes, " "));
}

std::vector<ExpertMap> all_maps(std::uint32_t ranks, const MoeExchangeArgs& args) {
  std::vector<ExpertMap> maps;
  for (std::uint32_t map = 0; map < args.maps; ++map) maps.push_back(map_experts(ranks, args, map));
  return maps;
}

void check_payloads(const MoeExchangeArgs& args) {
  constexpr const char* kName = "MoeExchangeArgs::payload_bytes";
  check_argument(args.payload_bytes.size() <= kMostPayloads, "MoeExchangeArgs::payload_bytes's length",
                 args.payload_bytes.size(), fmt::format("{} at most", kMostPayloads));
  std::uint64_t left = std::uint64_t{args.hidden} * 4 + kMostSideBytes - args.scale_bytes;
  for (const std::uint32_t bytes : args.payload_bytes) {
    check_argument(args.cast == RowCast::none, kName, bytes, "absent, and rows that are cast have no payloads");
    check_argument(bytes != 0 && bytes % 4 == 0 && bytes <= left, kName, bytes,
                   left < 4 ? "absent, as there is no room left for another one"
                            : fmt::format("a multiple of 4 between 4 and {}", left));
    left -= bytes;
  }
}

}  // namespace

void check_exchange_args(std::uint32_t ranks, const MoeExchangeArgs& given) {
  const MoeExchangeArgs args = with_row_path(given);
  check_argument(args.blocks == 0 || (args.blocks >= 2 && args.blocks <= kMostGivenBlocks), "MoeExchangeArgs::blocks",
                 args.blocks, fmt::format("0 or between 2 and {}", kMostGivenBlocks));
  check_argument(args.path <= RowPath::ring, "MoeExchangeArgs::path", static_cast<int>(args.path),
                 choices(RowPath::ring));
  const std::uint32_t most_tokens = args.path == RowPath::slots ? kMaxSlotTokens : kMaxExchangeTokens;
  check_argument(args.tokens >= 1 && args.tokens <= most_tokens, "MoeExchangeArgs::tokens", args.tokens,
                 fmt::format("between 1 and {}", most_tokens));
  check_argument(args.ring_rows == 0 || has_ring(args), "MoeExchangeArgs::ring_rows", args.ring_rows,
                 "0, and rows take no ring");
  check_argument(args.ring_rows == 0 || (std::has_single_bit(args.ring_rows) && args.ring_rows >= 32 &&
                                         args.ring_rows <= kMaxExchangeTokens),
                 "MoeExchangeArgs::ring_rows", args.ring_rows,
                 fmt::format("0 or a power of two between 32 and {}", kMaxExchangeTokens));
  check_argument(args.slot_tokens == 0 || has_ring(args), "MoeExchangeArgs::slot_tokens", args.slot_tokens,
                 "0, and all tokens have slots without a ring");
  const bool compact = args.layout == RowLayout::rank_compact;
  check_argument(!compact || args.path != RowPath::slots, "MoeExchangeArgs::path", name(args.path),
                 "automatic or ring, and rank-compact rows take no slots");
  check_argument(!compact || args.slot_tokens == 0, "MoeExchangeArgs::slot_tokens", args.slot_tokens,
                 "0, and rank-compact rows take no slots");
  const std::uint32_t most_slots = std::min(args.tokens, kMaxSlotTokens);
  check_argument(args.slot_tokens <= most_slots, "MoeExchangeArgs::slot_tokens", args.slot_tokens,
                 fmt::format("between 0 and {}", most_slots));
  check_argument(!args.repeatable || slots(args) == 0, "MoeExchangeArgs::repeatable", args.repeatable,
                 "false, and rows have slots: neither RowPath::slots nor slot_tokens goes with it");
  check_argument(args.experts >= 1 && args.experts <= kMaxExperts, "MoeExchangeArgs::experts", args.experts,
                 "between 1 and 4096");
  check_argument(args.top_k >= 1 && args.top_k <= kMaxTopK, "MoeExchangeArgs::top_k", args.top_k, "between 1 and 32");
  check_argument(args.type <= RowType::fp8, "MoeExchangeArgs::type", static_cast<int>(args.type), "bf16, f16 or fp8");
  check_argument(args.cast <= RowCast::fp8_pow2, "MoeExchangeArgs::cast", static_cast<int>(args.cast),
                 "none, fp8, fp8_ue8m0 or fp8_pow2");
  check_argument(args.overflow <= Overflow::drop, "MoeExchangeArgs::overflow", static_cast<int>(args.overflow),
                 "error or drop");
  check_argument(args.cast == RowCast::none || args.type != RowType::fp8, "MoeExchangeArgs::cast",
                 static_cast<int>(args.cast), "none, and rows are fp8 already");
  check_choice("MoeExchangeArgs::combine_type", args.combine_type, DataType::f16);
  const std::uint32_t step = args.cast != RowCast::none ? kScaleColumns : 16 / element_bytes(args.type);
  check_argument(args.hidden >= 1 && args.hidden <= kMostHidden && args.hidden % step == 0, "MoeExchangeArgs::hidden",
                 args.hidden, fmt::format("a multiple of {} up to {}", step, kMostHidden));
  check_argument(args.scale_bytes % 4 == 0 && args.scale_bytes <= args.hidden * 4, "MoeExchangeArgs::scale_bytes",
                 args.scale_bytes, "a multiple of 4 up to 4 per column");
  check_argument(args.scale_bytes == 0 || args.type == RowType::fp8, "MoeExchangeArgs::scale_bytes", args.scale_bytes,
                 "0, and only fp8 rows come with scales");
  check_payloads(args);
  check_argument(args.layout <= RowLayout::rank_compact, "MoeExchangeArgs::layout", static_cast<int>(args.layout),
                 choices(RowLayout::rank_compact));
  check_argument(!args.weights_at_combine || (args.weighted && !has_joint_rows(args.layout)),
                 "MoeExchangeArgs::weights_at_combine", args.weights_at_combine,
                 args.weighted ? fmt::format("false, and combine takes {} rows as they are", name(args.layout))
                               : "false, and the exchange is not weighted");
  check_choice("MoeExchangeArgs::scale_order", args.scale_order, ScaleOrder::columns);
  check_argument(args.cast != RowCast::none || args.scale_order == ScaleOrder::rows, "MoeExchangeArgs::scale_order",
                 name(args.scale_order), "rows, and rows are not cast");
  const bool contiguous = args.layout == RowLayout::expert_contiguous;
  check_argument(
      args.alignment >= 1 && args.alignment <= (contiguous ? kMostAlignment : 1), "MoeExchangeArgs::alignment",
      args.alignment,
      contiguous ? fmt::format("between 1 and {}", kMostAlignment) : "1, and only contiguous experts are aligned");
  check_argument(args.experts_of_rank.empty() || (args.rank_of_expert.empty() && args.ranks_of_expert.empty()),
                 "MoeExchangeArgs::experts_of_rank's length", args.experts_of_rank.size(),
                 fmt::format("0, and {} is given", args.rank_of_expert.empty() ? "ranks_of_expert" : "rank_of_expert"));
  const std::uint32_t most_maps = args.experts_of_rank.empty() ? 1 : kMostMaps;
  check_argument(args.maps >= 1 && args.maps <= most_maps, "MoeExchangeArgs::maps", args.maps,
                 most_maps == 1 ? "1, and experts_of_rank is empty" : fmt::format("between 1 and {}", most_maps));
  const std::size_t places = args.experts_of_rank.size() / args.maps;
  check_argument(args.experts_of_rank.size() % (std::size_t{args.maps} * ranks) == 0,
                 "MoeExchangeArgs::experts_of_rank's length", args.experts_of_rank.size(),
                 fmt::format("a multiple of maps · ranks, {}", std::uint64_t{args.maps} * ranks));
  check_experts_of_rank("MoeExchangeArgs::experts_of_rank", places, args.experts, args.experts_of_rank);
  std::uint64_t replicas = args.ranks_of_expert.empty() ? args.experts : 0;
  if (places != 0) replicas = places;
  for (const std::vector<std::uint32_t>& holders : args.ranks_of_expert) replicas += holders.size();
  check_argument(replicas <= kMaxExperts,
                 args.experts_of_rank.empty() ? "MoeExchangeArgs::ranks_of_expert: replicas"
                                              : "MoeExchangeArgs::experts_of_rank: places",
                 replicas, fmt::format("{} at most", kMaxExperts));
  check_argument(!has_ring(args) || replicas <= kMostTallyWords, "MoeExchangeArgs::experts with all replicas", replicas,
                 fmt::format("{} at most on the ring path", kMostTallyWords));
  const std::uint32_t groups = args.cast == RowCast::none ? 0 : args.hidden / kScaleColumns;
  check_argument(!has_ring(args) || ring_head_packs(args.top_k, groups) * sizeof(Pack) <= GpuStage().bytes,
                 "MoeExchangeArgs::hidden", args.hidden,
                 fmt::format("{} at most on the ring path with a cast and top-{}",
                             (GpuStage().bytes / sizeof(Pack) - args.top_k) * 4 * kScaleColumns, args.top_k));
  const std::uint64_t rows_of_tokens = std::uint64_t{ranks} * args.tokens, entries = rows_of_tokens * args.top_k;
  const std::uint64_t most_rows = args.layout == RowLayout::rank_major ? 0
                                  : compact                            ? rows_of_tokens
                                            : entries + (contiguous ? replicas : 0) * (args.alignment - 1);
  const std::uint32_t unit = rows_step(args);
  const std::uint64_t most_capacity = (most_rows + unit - 1) / unit * unit;
  check_argument(args.capacity <= most_capacity, "MoeExchangeArgs::capacity", args.capacity,
                 fmt::format("between 0 and {}", most_capacity));
  check_argument(args.capacity % unit == 0, "MoeExchangeArgs::capacity", args.capacity,
                 "a multiple of 4, which columns of scales ask for");
  const std::uint64_t joint_rows = args.layout == RowLayout::rank_major ? rows_of_tokens : 0;
  check_argument(joint_rows % unit == 0, "MoeExchangeArgs::tokens times ranks", joint_rows,
                 "a multiple of 4, which columns of scales ask for");
  check_argument(args.handles >= 1 && args.handles <= kMaxHandles, "MoeExchangeArgs::handles", args.handles,
                 fmt::format("between 1 and {}", kMaxHandles));
  check_argument(args.rank_of_expert.empty() || args.rank_of_expert.size() == args.experts,
                 "MoeExchangeArgs::rank_of_expert's length", args.rank_of_expert.size(),
                 fmt::format("0 or {}", args.experts));
  for (const std::uint32_t rank : args.rank_of_expert) {
    check_argument(rank < ranks, "MoeExchangeArgs::rank_of_expert", rank, fmt::format("a rank below {}", ranks));
  }
  check_argument(args.ranks_of_expert.empty() || args.ranks_of_expert.size() == args.experts,
                 "MoeExchangeArgs::ranks_of_expert's length", args.ranks_of_expert.size(),
                 fmt::format("0 or {}", args.experts));
  check_argument(args.ranks_of_expert.empty() || args.rank_of_expert.empty(),
                 "MoeExchangeArgs::ranks_of_expert's length", args.ranks_of_expert.size(),
                 "0, and rank_of_expert is given");
  for (const std::vector<std::uint32_t>& holders : args.ranks_of_expert) {
    check_argument(!holders.empty(), "MoeExchangeArgs::ranks_of_expert", "none", "a list of ranks");
    std::vector<bool> taken(ranks);
    for (const std::uint32_t rank : holders) {
      check_argument(rank < ranks && !taken[rank], "MoeExchangeArgs::ranks_of_expert", rank,
                     fmt::format("a rank below {}, once", ranks));
      taken[rank] = true;
    }
  }
  if (args.layout != RowLayout::expert_masked) return;
  const std::vector<std::uint32_t> counts = map_experts(ranks, args).counts;
  const std::uint32_t most_local = *std::ranges::max_element(counts);
  const std::uint64_t capacity = args.capacity != 0 ? args.capacity : default_capacity(ranks, args, most_local);
  const std::uint64_t rows = capacity * most_local;
  check_argument(rows < std::uint64_t{1} << 32, "MoeExchangeArgs::capacity times the experts of a rank", rows,
                 "less than 2^32");
}

void check_exchange(const GroupState& group, const MoeExchangeArgs& args) {
  check_exchange_args(static_cast<std::uint32_t>(group.size()), args);
  if (!group.direct()) {
    throw Error(Errc::unsupported,
                fmt::format("MoeExchange::create: ranks must reach each other's memory, and these do "
                            "not ({})",
                            group.communicator().fabric().description()));
  }
}

void agree_on_exchange(Bootstrap& bootstrap, const GroupState& group, const MoeExchangeArgs& args) {
  AgreedExchange mine;
  std::memset(static_cast<void*>(&mine), 0, sizeof(mine));  // padding is compared too
  mine.leader = group.members().front();
  mine.tokens = args.tokens;
  mine.hidden = args.hidden;
  mine.experts = args.experts;
  mine.top_k = args.top_k;
  mine.scale_bytes = args.scale_bytes;
  mine.alignment = args.alignment;
  mine.capacity = args.capacity;
  mine.handles = args.handles;
  mine.maps = args.maps;
  for (const std::uint32_t rank : args.rank_of_expert) mine.map = fingerprint("map", mine.map, rank);
  for (const std::vector<std::uint32_t>& ranks : args.ranks_of_expert) {
    mine.map = fingerprint("replicas", mine.map, static_cast<std::uint32_t>(ranks.size()));
    for (const std::uint32_t rank : ranks) mine.map = fingerprint("map", mine.map, rank);
  }
  for (const std::int32_t expert : args.experts_of_rank) mine.map = fingerprint("places", mine.map, expert);
  mine.type = args.type;
  mine.cast = args.cast;
  mine.scale_order = args.scale_order;
  mine.layout = args.layout;
  mine.combine_type = args.combine_type;
  mine.overflow = args.overflow;
  mine.weighted = args.weighted;
  mine.weights_at_combine = args.weights_at_combine;
  mine.path = args.path;
  mine.ring_rows = args.ring_rows;
  mine.slot_tokens = args.slot_tokens;
  mine.blocks = args.blocks;
  mine.repeatable = args.repeatable;
  std::ranges::copy(args.payload_bytes, mine.payload_bytes);
  const std::vector<AgreedExchange> all = bootstrap.all_gather_value("compare exchanges", mine);
  // Every rank looks at all of them, so all ranks throw if any does.
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const AgreedExchange& leader = all[static_cast<std::size_t>(all[rank].leader)];
    if (std::memcmp(&leader, &all[rank], sizeof(leader)) == 0) continue;
    const std::string first = describe(leader), other = describe(all[rank]);
    throw Error(Errc::invalid_argument,
                fmt::format("ranks disagree about MoeExchangeArgs: rank {} has {}; rank {} has {}", leader.leader,
                            fields_apart(first, other), rank, fields_apart(other, first)));
  }
}

ExchangeState::ExchangeState(GroupState& group, const MoeExchangeArgs& args, int slot, std::uint64_t number)
    : group_(group),
      slot_(slot),
      number_(number),
      args_(args),
      maps_(all_maps(static_cast<std::uint32_t>(group.size()), args)),
      tuning_(tuning_of_exchange(group, args)),
      shape_(make_shape(static_cast<std::uint32_t>(group.size()), static_cast<std::uint32_t>(group.rank()),
                        with_tuning(static_cast<std::uint32_t>(group.size()), args, tuning_.steps), maps_.front())),
      layout_(make_exchange_layout(static_cast<std::uint32_t>(group.size()), shape_)),
      experts_(std::size_t{args.maps} * shape_.local, kNone),
      most_by_slots_(shape_.slots),
      dispatch_(group.communicator(), kMaxGroups - 1 - 2 * slot, group.members(), group.rank(), window(), 0,
                channel_layout(layout_.dispatch_bytes, layout_, shape_)),
      combine_(group.communicator(), kMaxGroups - 2 - 2 * slot, group.members(), group.rank(), window(),
               layout_.dispatch_bytes, channel_layout(layout_.combine_bytes, layout_, shape_)),
      in_flight_(number + 1, args.handles) {
  for (std::uint32_t map = 0; map < args.maps; ++map) number_experts(map);
}

void ExchangeState::try_step(const ExchangeStep& step) {
  tuning_ = {.steps = {step}};
  most_by_slots_ = step.path == RowPath::slots ? shape_.slots : 0;
}

void ExchangeState::number_experts(std::uint32_t map) {
  const ExpertMap& of = maps_[map];
  const std::span own = std::span(experts_).subspan(std::size_t{map} * shape_.local, shape_.local);
  std::ranges::fill(own, kNone);
  for (std::uint32_t expert = 0; expert < args_.experts; ++expert) {
    const bool replicated = !of.first_replica.empty();
    const std::uint32_t first = replicated ? of.first_replica[expert] : expert;
    const std::uint32_t end = replicated ? of.first_replica[expert + 1] : expert + 1;
    for (std::uint32_t replica = first; replica < end; ++replica) {
      const ExpertHome home = of.homes[replica];
      if (home.rank == static_cast<std::uint32_t>(group_.rank())) own[home.local] = expert;
    }
  }
}

std::size_t ExchangeState::tables_bytes() const {
  return args_.handles * RoutingTables::bytes(static_cast<std::uint32_t>(group_.size()), shape_);
}

std::size_t ExchangeState::needed_bytes() const {
  return tables_offset() + tables_bytes() + maps_.size() * map_bytes(maps_.front());
}

std::byte* ExchangeState::memory() const {
  const int world_rank = group_.members()[static_cast<std::size_t>(group_.rank())];
  return group_.communicator().fabric().window(window(), world_rank);
}

void ExchangeState::arm(std::optional<std::uint32_t> first_epoch, bool moved) {
  dispatch_.arm(first_epoch, moved);
  combine_.arm(first_epoch, moved);
  Fabric& fabric = group_.communicator().fabric();
  std::byte* const tables = memory() + tables_offset();
  fabric.fill(tables, 0xff, tables_bytes());
  // The headers' zeros: a combine whose dispatch came before release() finds no tokens.
  fabric.fill(headers(), 0, args_.handles * sizeof(RoutingHeader));
  for (std::uint32_t map = 0; map < maps_.size(); ++map) {
    const std::vector<std::byte> bytes = bytes_of_map(maps_[map]);
    fabric.write(map_memory(map), bytes.data(), bytes.size());
  }
}

std::byte* ExchangeState::map_memory(std::uint32_t map) const {
  return memory() + tables_offset() + tables_bytes() + map * map_bytes(maps_[map]);
}

RoutingHeader* ExchangeState::headers() const {
  static_assert(kMaxHandles * sizeof(RoutingHeader) <= Fabric::kLastingBytes);
  return reinterpret_cast<RoutingHeader*>(group_.communicator().fabric().lasting(slot_));
}

void ExchangeState::set_released() {
  in_flight_.forget();
  dispatch_.set_released();
  combine_.set_released();
}

ExchangeView ExchangeState::view(std::uint32_t handle_slot, bool ring, std::uint32_t map) const {
  const auto ranks = static_cast<std::uint32_t>(group_.size());
  std::byte* const tables = memory() + tables_offset();
  const ExchangeShape shape = shape_.of_call(ring);
  return {.shape = shape,
          .areas = layout_.areas(ring),
          .homes = reinterpret_cast<const ExpertHome*>(map_memory(map)),
          .first_replica = maps_[map].first_replica.empty()
                               ? nullptr
                               : reinterpret_cast<const std::uint32_t*>(map_memory(map) + homes_bytes(maps_[map])),
          .tables = RoutingTables::at(headers() + handle_slot,
                                      tables + handle_slot * RoutingTables::bytes(ranks, shape_), ranks, shape)};
}

LateWeights ExchangeState::late_weights(const float* given, const DispatchHandle& handle) const {
  return {.given = given, .arrived = layout_.late_weights, .tokens = handle.tokens, .places = shape_.tokens};
}

}  // namespace weft::detail
