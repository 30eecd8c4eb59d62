// Kernel arguments of an exchange: its shape, the layout of its memory, and the tables that carry a dispatch's routing
// over to its combine. Plain data that the host fills.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"
#include "protocol/channel.hpp"
#include "weft/moe.hpp"
#include "wire/escaped.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kMaxTopK = 32;
inline constexpr std::uint32_t kMaxExperts = 4096;
inline constexpr std::uint32_t kMaxExchangeTokens = 16384;
inline constexpr std::uint32_t kMaxSlotTokens = 1024;
inline constexpr std::uint32_t kMaxHandles = 64;
inline constexpr std::uint32_t kMostRounds = 16;

inline constexpr std::uint32_t kNone = 0xffffffffu;  // no expert, no row

// An expert's rank, and its number there.
struct ExpertHome {
  std::uint32_t rank, local;
};

// Scales that dispatch makes: powers of two, or any numbers; given as one byte each, or as f32.
WEFT_FN constexpr bool scales_are_powers(RowCast cast) {
  return cast == RowCast::fp8_ue8m0 || cast == RowCast::fp8_pow2;
}
WEFT_FN constexpr bool scales_are_bytes(RowCast cast) {
  return cast == RowCast::fp8_ue8m0;
}

// A token's row comes once for all experts of a rank, with their ids and weights.
WEFT_FN constexpr bool has_joint_rows(RowLayout layout) {
  return layout >= RowLayout::rank_major;
}

// Columns of scales, in words of four bytes (ScaleOrder::columns).
struct ScaleColumns {
  std::uint64_t words;          // of a column
  std::uint64_t experts_apart;  // words between an expert's columns and the rows of all experts before it; 0 if
                                // experts share columns
};

struct ExchangeShape {
  std::uint32_t tokens;  // most of a rank: buffers and tables have places for so many
  std::uint32_t experts, top_k, capacity;
  std::uint32_t replicas;       // of all experts; as many as experts if none has several
  std::uint32_t even;           // experts of each rank, if all have as many, in contiguous blocks; else 0
  std::uint64_t per_even;       // 2³² / even, rounded up: replica · per_even / 2³² is replica / even
  std::uint32_t local;          // experts of this rank
  std::uint32_t most_local;     // of any rank
  std::uint32_t columns;        // of a row that is cast
  std::uint32_t input_packs;    // of a row as the caller gives it
  std::uint32_t scale_bytes;    // of a row as the caller gives it
  std::uint32_t groups;         // scales of a row that is cast
  std::uint32_t payload_packs;  // of a row on the way, in front of scales that Weft makes, or masks
  std::uint32_t segments;       // of a row that travels bit for bit
  std::uint32_t row_packs;      // of a row on the way, with scales or masks
  std::uint32_t combine_packs;
  std::uint32_t alignment;      // of contiguous experts
  std::uint32_t rows;           // of this rank's output
  std::uint32_t slots = 0;      // tokens of each rank that have a place of their own; all of them without a ring
  std::uint32_t source_rows;    // MoeExchangeArgs::tokens, by which outputs number the tokens of all ranks
  std::uint32_t ring_rows = 0;  // of each rank that a ring holds at once, a power of two; 0: there is no ring
  // Packs of a row in a ring: of its head, of its head and its payload, and from its place to the next.
  std::uint32_t ring_head = 0, ring_packs = 0, ring_stride = 0;
  ScaleColumns scale_columns;
  ScaleOrder scale_order;
  RowLayout layout;
  RowCast cast;
  bool weighted;
  bool drop;
  bool carries_weights;  // dispatch does; if not, combine may (LateWeights)

  // As a call sees it whose rows go by slots or by the ring.
  constexpr ExchangeShape of_call(bool ring) const {
    ExchangeShape shape = *this;
    if (!ring) shape.tokens = slots;
    return shape;
  }
};

// Byte offsets in the region of dispatch or of combine that a call uses: its rows and results go by slots or by a ring.
// The same on every rank.
struct ExchangeAreas {
  std::uint64_t counts, records, rows, results;
};

// Slots and a ring lie beside each other, as a call takes either of them. Kernels get their call's areas alone: they
// read their arguments through a cold cache.
struct ExchangeLayout {
  std::uint64_t counts;      // [bank][sender][most_local + 1] words: count or, in the last one, tokens; flag
  std::uint64_t row_counts;  // rank_compact: [bank][sender][rank] words: rows for the rank; flag
  std::uint64_t records;     // [bank][sender][slots][k] lines: local expert and ordinal, weight
  std::uint64_t rows;        // [bank][sender][slots][row_packs]
  std::uint64_t ring_rows;   // as in ops/moe/ring.hpp, as all of a ring
  std::uint64_t dispatch_bytes;
  std::uint64_t results;  // [bank][sender][slots][combine_packs]
  std::uint64_t ring_results;
  std::uint64_t late_weights;  // [sender][tokens][k] words (LateWeights)
  std::uint64_t combine_bytes;
  // In either region: as in RegionLayout::pipeline_signals and pipeline_credits.
  std::uint64_t ring_signals, ring_credits;

  constexpr ExchangeAreas areas(bool ring) const {
    return {.counts = counts,
            .records = records,
            .rows = ring ? ring_rows : rows,
            .results = ring ? ring_results : results};
  }
};

constexpr std::uint64_t aligned_to_line(std::uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// The row of an expert among the outputs, and its weight; the expert's rank keeps it for combine. If dispatch carries
// no weights, the bits of `weight` are the entry's number among the token's.
struct ExpertEntry {
  std::uint32_t row;
  float weight;
};

// The number of a token's entries that have a row here, and the last local expert among all that name one here.
struct EntryCount {
  static constexpr std::uint32_t kCountBits = 8;
  static constexpr std::uint32_t kNoRow = (1u << kCountBits) - 1;  // the count of the word kNone
  std::uint32_t count, last;

  WEFT_FN std::uint32_t word() const { return last << kCountBits | count; }
  static WEFT_FN EntryCount of(std::uint32_t word) { return {word & kNoRow, word >> kCountBits}; }
};
static_assert(kMaxTopK < EntryCount::kNoRow);
static_assert(kMaxExperts < 1u << (32 - EntryCount::kCountBits));

// Ranks of a group.
struct RankSet {
  std::uint64_t bits[2];
  // No index that is only known at run time: so the set stays in registers.
  WEFT_FN void add(std::uint32_t rank) {
    const std::uint64_t bit = std::uint64_t{1} << rank % 64;
    bits[0] |= rank < 64 ? bit : 0;
    bits[1] |= rank < 64 ? 0 : bit;
  }
  WEFT_FN RankSet without(std::uint32_t rank) const {
    const std::uint64_t bit = std::uint64_t{1} << rank % 64;
    return {{bits[0] & ~(rank < 64 ? bit : 0), bits[1] & ~(rank < 64 ? 0 : bit)}};
  }
  WEFT_FN RankSet without(const RankSet& others) const {
    return {{bits[0] & ~others.bits[0], bits[1] & ~others.bits[1]}};
  }
  // Ranks `first` … `first` + 31; `first` is a multiple of 32.
  WEFT_FN std::uint32_t word(std::uint32_t first) const {
    return static_cast<std::uint32_t>((first < 64 ? bits[0] : bits[1]) >> first % 64);
  }
  WEFT_FN void put(std::uint32_t first, std::uint32_t word) {
    bits[0] |= first < 64 ? std::uint64_t{word} << first % 64 : 0;
    bits[1] |= first < 64 ? 0 : std::uint64_t{word} << first % 64;
  }
  WEFT_FN std::uint32_t count() const {
    std::uint32_t count = 0;
    for (const std::uint64_t word : bits) {
      for (std::uint64_t left = word; left != 0; left &= left - 1) ++count;
    }
    return count;
  }
  WEFT_FN bool empty() const { return (bits[0] | bits[1]) == 0; }
  WEFT_FN bool has(std::uint32_t rank) const { return ((rank < 64 ? bits[0] : bits[1]) >> rank % 64 & 1u) != 0; }
};
static_assert(kMaxRanks <= 128);

// The routing that a dispatch leaves for its combine, one per handle slot; only the own rank touches it. A dispatch
// reads its header before it knows whether there is a window. So headers lie in memory that stays, the rest in the
// window.
struct RoutingHeader {
  std::uint32_t waiting;            // 1: the combine has not been called
  std::uint32_t most_tokens;        // of any rank
  std::uint32_t tokens[kMaxRanks];  // by rank
  std::uint32_t origin;             // of a repeatable exchange: epoch of the dispatch that has made the tables
};
struct RoutingTables {
  RoutingHeader* header;
  std::uint32_t* entry_counts;  // [rank][token]: as in EntryCount; kNone: the row does not come here
  ExpertEntry* entries;         // [rank][token][top_k], by ascending expert
  RankSet* answering;           // [token of this rank]: ranks that return a row

  // Bytes without the header.
  static constexpr std::uint64_t bytes(std::uint32_t ranks, const ExchangeShape& shape) {
    const std::uint64_t rows = std::uint64_t{ranks} * shape.tokens;
    return aligned_to_line(rows * sizeof(std::uint32_t)) + aligned_to_line(rows * shape.top_k * sizeof(ExpertEntry)) +
           aligned_to_line(shape.tokens * sizeof(RankSet));
  }
  static RoutingTables at(RoutingHeader* header, std::byte* memory, std::uint32_t ranks, const ExchangeShape& shape) {
    const std::uint64_t rows = std::uint64_t{ranks} * shape.tokens;
    RoutingTables tables{};
    tables.header = header;
    const auto take = [&]<class Item>(Item*& item, std::uint64_t count) {
      item = reinterpret_cast<Item*>(memory);
      memory += aligned_to_line(count * sizeof(Item));
    };
    take(tables.entry_counts, rows);
    take(tables.entries, rows * shape.top_k);
    take(tables.answering, shape.tokens);
    return tables;
  }
};

// The packs that something beside a row takes on the way.
constexpr std::uint32_t packs_beside(std::uint32_t bytes) {
  return (bytes + 15) / 16;
}

// Fills the fields of the shape that follow from the others. `side_packs`: of all payloads beside a row.
constexpr void plan_row(ExchangeShape& shape, std::uint32_t side_packs) {
  using Wire = Escaped<16>;
  const bool exact = shape.cast == RowCast::none;
  shape.groups = exact ? 0 : shape.columns / kScaleColumns;
  shape.payload_packs = exact ? shape.input_packs + packs_beside(shape.scale_bytes) + side_packs : shape.columns / 16;
  shape.segments = exact ? (shape.payload_packs + Wire::kSegmentPacks - 1) / Wire::kSegmentPacks : 0;
  shape.row_packs = shape.payload_packs + (exact ? shape.segments * Wire::kMaskPacks : (shape.groups + 3) / 4);
}

// A row in a ring (ops/moe/ring_rows.hpp). Its head has a pack for each entry, then the scales of a row that is cast.
// Rows begin at a line of 128 bytes.
constexpr std::uint32_t ring_head_packs(std::uint32_t top_k, std::uint32_t groups) {
  return top_k + (groups + 3) / 4;
}
constexpr void plan_ring_row(ExchangeShape& shape) {
  shape.ring_head = ring_head_packs(shape.top_k, shape.groups);
  shape.ring_packs = shape.ring_head + shape.payload_packs;
  shape.ring_stride = (shape.ring_packs + 7) / 8 * 8;
}

constexpr std::uint64_t late_weights_bytes(std::uint32_t ranks, const ExchangeShape& shape) {
  if (!shape.weighted || shape.carries_weights) return 0;
  return aligned_to_line(std::uint64_t{ranks} * shape.tokens * shape.top_k * sizeof(std::uint64_t));
}

constexpr ExchangeLayout make_exchange_layout(std::uint32_t ranks, const ExchangeShape& shape) {
  const std::uint64_t slots = std::uint64_t{kBanks} * ranks * shape.slots;
  const std::uint64_t places = std::uint64_t{kBanks} * ranks * shape.ring_rows;
  ExchangeLayout layout{};
  layout.ring_signals = aligned_to_line(std::uint64_t{kBanks + 1} * ranks * sizeof(std::uint64_t));  // behind headers
  layout.ring_credits = layout.ring_signals + aligned_to_line(places * sizeof(std::uint64_t));
  const std::uint64_t words = layout.ring_credits + aligned_to_line(places / kBanks * sizeof(std::uint64_t));
  layout.counts = words;
  const std::uint64_t counts = std::uint64_t{kBanks} * ranks * (shape.most_local + 1);
  const std::uint64_t row_counts = shape.layout == RowLayout::rank_compact ? std::uint64_t{kBanks} * ranks * ranks : 0;
  layout.row_counts = layout.counts + counts * sizeof(std::uint64_t);
  layout.records = layout.counts + aligned_to_line((counts + row_counts) * sizeof(std::uint64_t));
  layout.rows = layout.records + aligned_to_line(slots * shape.top_k * sizeof(Pack));
  layout.ring_rows = layout.rows + aligned_to_line(slots * shape.row_packs * sizeof(Pack));
  layout.dispatch_bytes = layout.ring_rows + aligned_to_line(places * shape.ring_stride * sizeof(Pack));
  layout.results = words;
  layout.ring_results = layout.results + aligned_to_line(slots * shape.combine_packs * sizeof(Pack));
  layout.late_weights = layout.ring_results + aligned_to_line(places * shape.combine_packs * sizeof(Pack));
  layout.combine_bytes = layout.late_weights + late_weights_bytes(ranks, shape);
  return layout;
}

// The argument that every kernel of an exchange gets.
struct ExchangeView {
  ExchangeShape shape;
  ExchangeAreas areas;
  const ExpertHome* homes;             // by replica; not read if blocks are even
  const std::uint32_t* first_replica;  // by expert, and their end; null if no expert has several
  RoutingTables tables;                // of the handle slot
};

// Dispatch and combine have two phases. A joined call makes both in one launch.
inline constexpr Phases kSend{.first = 0, .last = 0}, kWait{.first = 1}, kJoined{};
WEFT_FN constexpr bool is_joined(const Phases& phases) {
  return phases.has(0) && phases.has(1);
}

// Local experts begin … end − 1.
struct ExpertRange {
  std::uint32_t begin = 0, end = kNone;
};

// The rounds of a call, the same for all ranks. A rank with fewer experts than others has empty rounds at the end. A
// launch of the second phase of dispatch, or of the first one of combine, makes one of them. A joined call has no
// `current` one, and makes all.
struct Rounds {
  std::uint32_t count = 1, current = 0;
  std::uint16_t end[kMostRounds] = {};  // the expert behind each round; the last one has all that are left

  WEFT_FN constexpr ExpertRange experts(std::uint32_t round) const {
    return {round != 0 ? end[round - 1] : 0u, round + 1 < count ? end[round] : kNone};
  }
  // Experts whose rows a launch moves: those of its round, or all experts if it makes all rounds.
  WEFT_FN constexpr ExpertRange experts_of(const Phases& phases) const {
    return count == 1 || is_joined(phases) ? ExpertRange{} : experts(current);
  }
};

// A payload beside a row (MoeExchangeArgs::payload_bytes).
struct SidePayload {
  const void* given;    // [tokens, bytes]
  void* output;         // [rows, bytes]
  std::uint32_t bytes;  // of a row
  std::uint32_t end;    // of a row on the way, the pack behind it
};
struct SidePayloads {
  SidePayload of[kMostPayloads];
};

struct DispatchWork {
  ExchangeView exchange;
  Phases phases;
  const void* input;
  const void* scales;
  const void* ids;
  const float* weights;
  std::uint32_t tokens;
  // Warps of each block that send rows and do nothing else; the others do all else. 0: all do everything.
  std::uint32_t senders;
  std::uint32_t warp_groups = 1;  // by a ring: of each block; `senders` is then a number of warp groups of all blocks
  bool wide_ids;
  bool discard;
  void* output;
  void* output_scales;
  std::int32_t* counts;
  std::int32_t* offsets;
  std::int32_t* sources;
  std::int32_t* source_tokens;
  std::uint64_t* source_wait_ns;
  std::uint64_t* host_counts;
  std::int32_t* local_ids;
  float* local_weights;
  Rounds rounds = {};  // from here on: kernels that do not use it do not read it ahead
  std::int32_t* rank_prefix = nullptr;
  SidePayloads sides = {};
};

// Weights that are given to combine. Calls by slots and by a ring have one place for them.
struct LateWeights {
  const float* given;     // [tokens, top_k] of this rank's tokens
  std::uint64_t arrived;  // byte offset in combine's region: [sender][places][top_k] words of weight and flag
  std::uint32_t tokens;   // of this rank
  std::uint32_t places;   // of each sender: MoeExchangeArgs::tokens
};

struct CombineWork {
  ExchangeView exchange;
  Phases phases;
  std::uint32_t senders;  // of each block's warps, that send while the others receive; 0: all send, then receive
  std::uint32_t warp_groups = 1;  // as in DispatchWork
  bool pairs;                     // a lane handles two packs of a row at once
  const void* input;
  const void* residual;
  void* output;
  std::uint64_t* source_wait_ns;
  // By block of dispatch's channel: kEnded once a dispatch has failed on this rank; the tables are then meaningless.
  const BlockWord* dispatch_admitted;
  LateWeights late;    // if dispatch carries no weights
  Rounds rounds = {};  // as in DispatchWork
};

}  // namespace weft::detail
