// Rows that a ring carries (ops/moe/moe_rows.hpp). Several items of a lane go to one row of the output at a time, so
// that addresses are computed once a row.
#pragma once

#include <cstdint>

#include "ops/moe/moe_rows.hpp"

namespace weft::detail {

// Scales in either order. One instance serves both, because the order is looked up once a row.
template <DataType type>
struct RingCastRow : CastRow<type, ScaleOrder::rows> {
  using Base = CastRow<type, ScaleOrder::rows>;

  // Puts the items first, first + kLanes, … below `count` into a row of the output.
  template <class T, std::uint32_t most>
  static WEFT_FN void put_items(const DispatchWork& work, std::uint32_t row, std::uint32_t first, std::uint32_t count,
                                const typename Base::template Moving<T> (&items)[most]) {
    const ExchangeShape& shape = work.exchange.shape;
    const Packs output(static_cast<std::byte*>(work.output) + std::uint64_t{row} * shape.columns, shape.columns / 4);
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < most; ++j) {
      const std::uint32_t item = first + j * T::kLanes;
      if (item >= count) break;
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < Base::template kPacks<T>; ++i) {
        output.store(item * Base::template kPacks<T> + i, items[j].pack[i]);
      }
    }
    // The distance of a lane's items is a multiple of kSharers: all of them have a scale, or none.
    static_assert(most == 1 || T::kLanes % Base::template kSharers<T> == 0);
    if (!Base::template has_scale<T>(first)) return;
    const bool as_bytes = scales_are_bytes(shape.cast);
    const ScalePlace place(shape, row, as_bytes ? 4 : 1);
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < most; ++j) {
      const std::uint32_t item = first + j * T::kLanes;
      if (item >= count) break;
      const std::uint64_t at = place.of(shape, item / Base::template kSharers<T>);
      if (as_bytes) {
        static_cast<std::uint8_t*>(work.output_scales)[at] = static_cast<std::uint8_t>(items[j].scale >> 23);
      } else {
        static_cast<float*>(work.output_scales)[at] = bits_of<float>(items[j].scale);
      }
    }
  }

 private:
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

struct RingExactRow : ExactRow {
  // As RingCastRow's; a lane has one item.
  template <class T>
  static WEFT_FN void put_items(const DispatchWork& work, std::uint32_t row, std::uint32_t first, std::uint32_t count,
                                const Moving<T> (&items)[1]) {
    const std::uint32_t to[1] = {row};
    if (first < count) put<T>(work, to, first, items[0]);
  }
};

}  // namespace weft::detail
