// Dispatch and combine of experts: which rows come where, as what, and what comes back of them.
#pragma once

#include <functional>

#include "oracle/fp8.hpp"
#include "oracle/number.hpp"

namespace weft::oracle {

inline constexpr std::size_t kScaleColumns = 128;  // of a row that is cast, those that have a scale

// The fixed properties of an exchange. Any struct with these fields makes them: the oracle does not know the library's.
struct MoeRules {
  enum Layout : std::uint8_t { masked, contiguous, by_rank, compact };

  template <class Args>
  MoeRules(const Args& of)
      : tokens(of.tokens),
        hidden(of.hidden),
        experts(of.experts),
        top_k(of.top_k),
        scale_bytes(of.scale_bytes),
        alignment(of.alignment),
        given_capacity(of.capacity),
        row_type(of.type == decltype(of.type)::f16 ? Type::f16 : Type::bf16),
        combine_type(of.combine_type),
        casts(of.cast != decltype(of.cast)::none),
        scales(of.cast == decltype(of.cast)::fp8_ue8m0  ? Scales::ue8m0
               : of.cast == decltype(of.cast)::fp8_pow2 ? Scales::powers_of_two
                                                        : Scales::f32),
        by_columns(of.scale_order == decltype(of.scale_order)::columns),
        weighted(of.weighted),
        layout(of.layout == decltype(of.layout)::expert_masked       ? masked
               : of.layout == decltype(of.layout)::expert_contiguous ? contiguous
               : of.layout == decltype(of.layout)::rank_major        ? by_rank
                                                                     : compact),
        row_bytes(of.hidden * (of.type == decltype(of.type)::fp8 ? 1 : 2)) {}

  std::uint32_t tokens, hidden, experts, top_k, scale_bytes, alignment;
  std::uint32_t given_capacity;  // 0: there is room for all that can come
  Type row_type, combine_type;   // row_type: of rows that are cast
  bool casts;                    // rows become e4m3 on their way
  Scales scales;                 // of rows that are cast
  bool by_columns;               // scales of a column lie side by side
  bool weighted;
  Layout layout;
  std::size_t row_bytes;  // of a row that is sent

  // A token's row comes once for all experts of a rank.
  bool joint() const { return layout == by_rank || layout == compact; }
  std::size_t arriving_bytes() const { return casts ? hidden : row_bytes; }
  std::size_t arriving_scale_bytes() const {
    return casts ? hidden / kScaleColumns * (scales == Scales::ue8m0 ? 1 : 4) : scale_bytes;
  }
  // With the bytes behind a row's scales that nobody writes.
  std::size_t output_scale_bytes() const {
    return by_columns ? (arriving_scale_bytes() + 3) / 4 * 4 : arriving_scale_bytes();
  }
};

// The rank that holds each expert, unless a caller says otherwise: blocks as even as can be, larger ones first.
std::vector<std::uint32_t> homes_of(std::uint32_t experts, std::uint32_t ranks);

// One token that comes to an expert: its rank, its number there, and its weight.
struct Arrival {
  std::uint32_t rank, token;
  float weight;
};
// By expert, in (source rank, token) order.
using Routing = std::vector<std::vector<Arrival>>;
// Adds what the next rank sends: [tokens, top_k] ids and weights. An id that is no expert's names nobody.
void route(const MoeRules& rules, std::uint32_t rank, std::span<const std::int64_t> ids, std::span<const float> weights,
           Routing& routing);

// Rows of one expert (masked), of all of a rank's experts (contiguous, compact), or of one source (by rank).
std::size_t capacity_of(const MoeRules& rules, std::span<const std::uint32_t> homes, std::uint32_t ranks);
// The first row of each expert of a rank, for experts that get so many rows each; last, the row of one more.
std::vector<std::size_t> offsets_of(const MoeRules& rules, std::span<const std::size_t> counts);
// The places of an expert's rows in the output of its rank, and how many of the rows have room.
struct ExpertRows {
  std::vector<std::size_t> row;  // by place
  std::size_t kept = 0;
};
std::vector<ExpertRows> place_rows(const MoeRules& rules, std::span<const std::uint32_t> homes, const Routing& routing,
                                   std::uint32_t ranks);
// Compact: in row i and column j, how many rows the sources 0 … i have for rank j.
std::vector<std::int32_t> rank_prefix(std::span<const std::uint32_t> homes, const Routing& routing,
                                      std::uint32_t ranks);
// By rank and compact: the number of an expert among those of a rank, or −1.
std::int32_t local_id(std::span<const std::uint32_t> experts, std::int64_t id);

// A row as it arrives: its bytes, then its scales. `scales`: those that were sent with it.
Bytes arriving_row(const MoeRules& rules, std::span<const std::byte> row, std::span<const std::byte> scales);
// The place of byte `byte` of the scales of output row `row`, in an output of `rows`. By columns, those of one expert
// are together (masked, `capacity` rows each), or those of all.
std::size_t scale_place(const MoeRules& rules, std::size_t capacity, std::size_t rows, std::size_t row,
                        std::size_t byte);

// The sum that one rank returns for a token: by ascending expert, weight · row, rounded once.
struct Made {
  float weight;
  Bytes row;  // [hidden] of `type`
};
Bytes sum_of_rank(Type type, std::span<const Made> made);
// The sum that comes back for a token: rows that ranks return, in rank order, then the residual or none. Rounded once.
Bytes sum_of_ranks(Type type, std::span<const Bytes> returned, std::span<const std::byte> residual, std::size_t hidden);

// The row that an expert made of the row at a place of its arrivals.
using MadeOf = std::function<Bytes(std::uint32_t expert, std::size_t place)>;
// [tokens, hidden] that `rank` gets back. By rank and compact: experts of one rank share a row, which has their weights
// already.
Bytes combined(const MoeRules& rules, std::span<const std::uint32_t> homes, const Routing& routing,
               std::span<const ExpertRows> placed, const MadeOf& made_of, std::uint32_t rank, std::size_t tokens,
               std::span<const std::byte> residual);

}  // namespace weft::oracle
