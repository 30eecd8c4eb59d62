// Rows that a ring carries. They need no marks, because signals announce them: so they travel as they are, in bulk.
//
// On the way a row is its head and its payload. The head has a pack for each of the token's entries, then the scales of
// a row that is cast. The payload travels in pieces, each through a place of a warp's stage; the head has a place of
// its own. A lane handles the items first, first + kLanes, … of a piece.
#pragma once

#include <cstdint>

#include "ops/moe/moe_rows.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kHeadPlace = 0;  // of a stage; the others are for pieces

// How many items of `packs` packs a lane has in a piece. It sends them in steps of two at most, which takes half of the
// registers that four would: a block then has half as many warps more.
template <class T>
constexpr std::uint32_t items_of_piece(std::uint32_t packs) {
  const std::uint32_t items = T::kPieceBytes / (T::kLanes * packs * sizeof(Pack));
  return items == 0 ? 1 : items;
}
template <class T>
constexpr std::uint32_t items_of_step(std::uint32_t packs) {
  return items_of_piece<T>(packs) % 2 == 0 ? 2 : 1;
}

template <Team T>
WEFT_FN void prefetch_row(T& team, const DispatchWork& work, std::uint32_t token, std::uint32_t bytes) {
  team.prefetch(static_cast<const std::byte*>(work.input) + std::uint64_t{token} * bytes, bytes);
}

// Scales in either order. One instance serves both, because the order is looked up once a row.
template <DataType type>
struct RingCastRow : CastRow<type, ScaleOrder::rows> {
  using Base = CastRow<type, ScaleOrder::rows>;
  template <class T>
  static constexpr std::uint32_t kItemPacks = Base::template kPacks<T>;
  template <class T>
  static constexpr std::uint32_t kItemsAtOnce = items_of_step<T>(kItemPacks<T>);

  // A lane's items of a step, as the caller gives them.
  template <class T>
  struct Step {
    Pack in[kItemsAtOnce<T>][2 * kItemPacks<T>];
  };
  // Reads the items first, first + kLanes, … below `end`; 0 for others.
  template <class T>
  static WEFT_FN Step<T> read(const DispatchWork& work, std::uint32_t token, std::uint32_t first, std::uint32_t end) {
    constexpr std::uint32_t kPacks = 2 * kItemPacks<T>;
    const Pack* const from = static_cast<const Pack*>(work.input) +
                             std::uint64_t{token} * (work.exchange.shape.columns / 8) + first * kPacks;
    Step<T> step;
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kItemsAtOnce<T>; ++j) {
      const bool one = first + j * T::kLanes < end;
      WEFT_UNROLL
      for (std::uint32_t p = 0; p < kPacks; ++p) step.in[j][p] = one ? from[j * T::kLanes * kPacks + p] : Pack{};
    }
    return step;
  }
  // Puts the items into a place, from its item `at` on, and their scales into the head. By all lanes.
  template <StagedTeam T>
  static WEFT_FN void stage(T& team, const ExchangeShape& shape, std::uint32_t place, std::uint32_t at,
                            std::uint32_t first, std::uint32_t end, const Step<T>& step) {
    constexpr std::uint32_t kItems = kItemsAtOnce<T>, kSharers = Base::template kSharers<T>;
    float most[kItems];
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kItems; ++j) {
      most[j] = 0;
      WEFT_UNROLL
      for (const Pack& in : step.in[j]) most[j] = max_number(most[j], Base::largest(in));
      most[j] = team.max_of(most[j], kSharers);
    }
    typename Base::Scale scale[kItems];
    find_scales(team, at % T::kLanes, scales_are_powers(shape.cast), most, scale);
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kItems; ++j) {
      const std::uint32_t item = first + j * T::kLanes;
      if (item >= end) break;
      WEFT_UNROLL
      for (std::uint32_t p = 0; p < kItemPacks<T>; ++p) {
        Pack pack;
        Base::cast_half(step.in[j][2 * p], scale[j].inverse, pack.word);
        Base::cast_half(step.in[j][2 * p + 1], scale[j].inverse, pack.word + 2);
        team.stage(place, (at + j * T::kLanes) * kItemPacks<T> + p, pack);
      }
      if (Base::template has_scale<T>(item)) {
        team.stage(kHeadPlace, shape.top_k * 4 + item / kSharers, bits_of<std::uint32_t>(scale[j].scale));
      }
    }
  }

  template <Team T>
  static WEFT_FN void prefetch(T& team, const DispatchWork& work, std::uint32_t token) {
    prefetch_row(team, work, token, 2 * work.exchange.shape.columns);
  }

  // The packs of the payload that are a row of the output, and that row.
  static WEFT_FN std::uint32_t output_packs(const ExchangeShape& shape) { return shape.payload_packs; }
  static WEFT_FN Pack* output(const DispatchWork& work, std::uint32_t row) {
    return static_cast<Pack*>(work.output) + std::uint64_t{row} * work.exchange.shape.payload_packs;
  }
  // Puts a pack of the payload behind the row's.
  static WEFT_FN void put_rest(const DispatchWork&, std::uint32_t, std::uint32_t, const Pack&) {}

  // Puts the scales of a head that has come into a row of the output. By all lanes.
  template <StagedTeam T>
  static WEFT_FN void put_scales(T& team, const DispatchWork& work, std::uint32_t lane, std::uint32_t row) {
    const ExchangeShape& shape = work.exchange.shape;
    const bool as_bytes = scales_are_bytes(shape.cast);
    const ScalePlace place(shape, row, as_bytes ? 4 : 1);
    for (std::uint32_t group = lane; group < shape.groups; group += T::kLanes) {
      const auto scale = team.template staged<std::uint32_t>(kHeadPlace, shape.top_k * 4 + group);
      const std::uint64_t at = place.of(shape, group);
      if (as_bytes) {
        static_cast<std::uint8_t*>(work.output_scales)[at] = static_cast<std::uint8_t>(scale >> 23);
      } else {
        static_cast<float*>(work.output_scales)[at] = bits_of<float>(scale);
      }
    }
  }

 private:
  // The scales of a lane's items. Lanes that share scales share their divisions, too.
  template <Team T, std::uint32_t items>
  static WEFT_FN void find_scales(T& team, std::uint32_t lane, bool power_of_two, const float (&most)[items],
                                  typename Base::Scale (&scale)[items]) {
    constexpr std::uint32_t kSharers = Base::template kSharers<T>;
    if constexpr (kSharers < items || items == 1) {
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < items; ++j) scale[j] = Base::scale_for(most[j], power_of_two);
    } else {
      float own_most = most[0];
      WEFT_UNROLL
      for (std::uint32_t j = 1; j < items; ++j) own_most = lane % kSharers == j ? most[j] : own_most;
      const typename Base::Scale own = Base::scale_for(own_most, power_of_two);
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < items; ++j) {
        const std::uint32_t from = lane / kSharers * kSharers + j;
        scale[j] = {bits_of<float>(team.from_lane(bits_of<std::uint32_t>(own.scale), from)),
                    bits_of<float>(team.from_lane(bits_of<std::uint32_t>(own.inverse), from))};
      }
    }
  }

  // The places of a row's scales, counted in scales. `word`: scales of a word of four bytes.
  struct ScalePlace {
    std::uint64_t row_at;
    std::uint32_t in_word;  // columns: scales of a word; 0: scales of a row lie together
    WEFT_FN ScalePlace(const ExchangeShape& shape, std::uint32_t row, std::uint32_t word)
        : row_at(std::uint64_t{row} * shape.groups), in_word(0) {
      if (shape.scale_order == ScaleOrder::rows) return;
      in_word = word;
      row_at = row;
      if (shape.scale_columns.experts_apart != 0) row_at += row / shape.capacity * shape.scale_columns.experts_apart;
      row_at *= in_word;
    }
    WEFT_FN std::uint64_t of(const ExchangeShape& shape, std::uint32_t group) const {
      if (in_word == 0) return row_at + group;
      return row_at + group / in_word * shape.scale_columns.words * in_word + group % in_word;
    }
  };
};

// Any bytes, unread: rows of every type, and scales that came with them behind the row. An item is a pack.
struct RingExactRow {
  template <class T>
  static constexpr std::uint32_t kItemPacks = 1;
  template <class T>
  static constexpr std::uint32_t kItemsAtOnce = items_of_step<T>(1);
  template <class T>
  static WEFT_FN std::uint32_t items(const ExchangeShape& shape) {
    return shape.payload_packs;
  }

  template <class T>
  struct Step {
    Pack in[kItemsAtOnce<T>];
  };
  template <class T>
  static WEFT_FN Step<T> read(const DispatchWork& work, std::uint32_t token, std::uint32_t first, std::uint32_t end) {
    const ExactRow::Source source(work.exchange.shape, work.input, work.scales, token);
    Step<T> step;
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kItemsAtOnce<T>; ++j) {
      step.in[j] = first + j * T::kLanes < end ? source.load(first + j * T::kLanes) : Pack{};
    }
    return step;
  }
  template <StagedTeam T>
  static WEFT_FN void stage(T& team, const ExchangeShape&, std::uint32_t place, std::uint32_t at, std::uint32_t first,
                            std::uint32_t end, const Step<T>& step) {
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kItemsAtOnce<T>; ++j) {
      if (first + j * T::kLanes < end) team.stage(place, at + j * T::kLanes, step.in[j]);
    }
  }

  template <Team T>
  static WEFT_FN void prefetch(T& team, const DispatchWork& work, std::uint32_t token) {
    prefetch_row(team, work, token, work.exchange.shape.input_packs * sizeof(Pack));
  }

  static WEFT_FN std::uint32_t output_packs(const ExchangeShape& shape) { return shape.input_packs; }
  static WEFT_FN Pack* output(const DispatchWork& work, std::uint32_t row) {
    return static_cast<Pack*>(work.output) + std::uint64_t{row} * work.exchange.shape.input_packs;
  }
  static WEFT_FN void put_rest(const DispatchWork& work, std::uint32_t row, std::uint32_t i, const Pack& pack) {
    ExactRow::Source(work.exchange.shape, work.output, work.output_scales, row).store(i, pack);
  }
  template <StagedTeam T>
  static WEFT_FN void put_scales(T&, const DispatchWork&, std::uint32_t, std::uint32_t) {}
};

}  // namespace weft::detail
