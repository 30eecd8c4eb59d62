// The way of a row to its experts: cast to e4m3 on the way, or bit for bit. A row is cut into items: one lane sends an
// item, and one lane receives it. Each rank chooses how many items a warp takes at once, and how many warps share a
// row.
#pragma once

#include <cstdint>

#include "numeric/fp8.hpp"
#include "ops/moe/moe_routing.hpp"
#include "wire/escaped.hpp"
#include "wire/sentinel.hpp"

namespace weft::detail {

// bf16 or f16 to e4m3 with a scale per 128 columns. No e4m3 and no scale made here is all ones, so the sentinel costs
// nothing: a row is a byte per column, and a word per scale.
template <DataType type, ScaleOrder order>
struct CastRow : Fp8Cast<type> {
  using Cast = Fp8Cast<type>;
  using Cast::cast_half;
  using Cast::largest;
  using Cast::scale_for;
  using typename Cast::Scale;
  using Wire = Sentinel<type>;                      // of all ones, whatever the type
  static constexpr std::uint32_t kItemsAtOnce = 2;  // of a row, that a lane takes at once
  static constexpr std::uint32_t kRowsAtOnce = 4;   // of the output, that an item goes to at once

  // An item is all columns of one scale, or an eighth of them.
  template <class T>
  static constexpr std::uint32_t kSharers = T::kLanes >= 8 ? 8 : 1;
  template <class T>
  static constexpr std::uint32_t kPacks = 8 / kSharers<T>;  // on the wire; twice as many of the input
  template <class T>
  static WEFT_FN std::uint32_t items(const ExchangeShape& shape) {
    return shape.groups * kSharers<T>;
  }

  // An item of the input.
  template <class T>
  struct Given {
    Pack in[2 * kPacks<T>];
  };
  template <class T>
  static WEFT_FN Given<T> read(const DispatchWork& work, std::uint32_t token, std::uint32_t item) {
    const std::uint64_t row_bytes = std::uint64_t{work.exchange.shape.columns} * 2;
    const Packs input(static_cast<const std::byte*>(work.input) + token * row_bytes, row_bytes / 4);
    Given<T> given{};
    if (item >= items<T>(work.exchange.shape)) return given;
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < 2 * kPacks<T>; ++i) given.in[i] = input.load(item * 2 * kPacks<T> + i);
    return given;
  }

  // An item on the wire.
  template <class T>
  struct Moving {
    Pack pack[kPacks<T>];
    std::uint32_t scale;
  };
  // Call it in all lanes of a warp.
  template <Team T>
  static WEFT_FN Moving<T> encode(T& team, const ExchangeShape& shape, const Given<T>& given) {
    float most = 0;
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < 2 * kPacks<T>; ++i) most = max_number(most, largest(given.in[i]));
    const Scale scale = scale_for(team.max_of(most, kSharers<T>), kFp8Floor, scales_are_powers(shape.cast));
    Moving<T> moving;
    moving.scale = bits_of<std::uint32_t>(scale.scale);
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kPacks<T>; ++i) {
      cast_half(given.in[2 * i], scale.inverse, moving.pack[i].word);
      cast_half(given.in[2 * i + 1], scale.inverse, moving.pack[i].word + 2);
    }
    return moving;
  }

  // An item's place in a row on the wire.
  template <class T>
  static WEFT_FN Pack* packs_of(Pack* row, std::uint32_t item) {
    return row + item * kPacks<T>;
  }
  template <class T>
  static WEFT_FN bool has_scale(std::uint32_t item) {
    return item % kSharers<T> == 0;
  }
  template <class T>
  static WEFT_FN std::uint32_t* scale_of(const ExchangeShape& shape, Pack* row, std::uint32_t item) {
    return reinterpret_cast<std::uint32_t*>(row + shape.payload_packs) + item / kSharers<T>;
  }

  template <Team T>
  static WEFT_FN void send(T& team, const ExchangeShape& shape, Pack* row, std::uint32_t item,
                           const Moving<T>& moving) {
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kPacks<T>; ++i) team.store(packs_of<T>(row, item) + i, moving.pack[i]);
    if (has_scale<T>(item)) team.store(scale_of<T>(shape, row, item), moving.scale);
  }
  // One look: load() asks for an item, arrived() says whether all of it has come.
  template <Team T>
  static WEFT_FN void load(T& team, const ExchangeShape& shape, Pack* row, std::uint32_t item, Moving<T>& moving) {
    moving.scale = 0;
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kPacks<T>; ++i) moving.pack[i] = team.load(packs_of<T>(row, item) + i);
    if (has_scale<T>(item)) moving.scale = team.load(scale_of<T>(shape, row, item));
  }
  template <Team T>
  static WEFT_FN bool arrived(const Session& s, const ExchangeShape&, std::uint32_t, const Moving<T>& moving) {
    bool all = true;
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kPacks<T>; ++i) {
      all &= Wire::template arrived<T::kAtomicBytes>(moving.pack[i], s.epoch);
    }
    return all && moving.scale != kRestWord;
  }
  template <Team T>
  static WEFT_FN void rearm(T& team, const ExchangeShape& shape, Pack* row, std::uint32_t item) {
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kPacks<T>; ++i) team.store(packs_of<T>(row, item) + i, kRestPack);
    if (has_scale<T>(item)) team.store(scale_of<T>(shape, row, item), kRestWord);
  }
  template <class T>
  static WEFT_FN void decode(Moving<T>&) {}
  // Puts the item into the rows of the output that are not kNone.
  template <class T>
  static WEFT_FN void put(const DispatchWork& work, const std::uint32_t (&to)[kRowsAtOnce], std::uint32_t item,
                          const Moving<T>& moving) {
    const ExchangeShape& shape = work.exchange.shape;
    WEFT_UNROLL
    for (const std::uint32_t row : to) {
      if (row == kNone) continue;
      const Packs output(static_cast<std::byte*>(work.output) + std::uint64_t{row} * shape.columns, shape.columns / 4);
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < kPacks<T>; ++i) output.store(item * kPacks<T> + i, moving.pack[i]);
    }
    if (!has_scale<T>(item)) return;
    const std::uint32_t group = item / kSharers<T>;
    if (!scales_are_bytes(shape.cast)) {
      put_scales(static_cast<float*>(work.output_scales), shape, group, to, bits_of<float>(moving.scale));
    } else {
      put_scales(static_cast<std::uint8_t*>(work.output_scales), shape, group, to,
                 static_cast<std::uint8_t>(moving.scale >> 23));
    }
  }
  template <class Stored>
  static WEFT_FN void put_scales(Stored* scales, const ExchangeShape& shape, std::uint32_t group,
                                 const std::uint32_t (&to)[kRowsAtOnce], Stored scale) {
    constexpr bool columns = order == ScaleOrder::columns;
    constexpr std::uint32_t kWord = sizeof(float) / sizeof(Stored);  // scales of a word
    scales += columns ? group / kWord * shape.scale_columns.words * kWord + group % kWord : group;
    const std::uint32_t step = columns ? kWord : shape.groups;
    WEFT_UNROLL
    for (const std::uint32_t row : to) {
      if (row == kNone) continue;
      std::uint64_t at = std::uint64_t{row} * step;
      if (columns && shape.scale_columns.experts_apart != 0) {
        at += row / shape.capacity * shape.scale_columns.experts_apart * kWord;
      }
      scales[at] = scale;
    }
  }
};

// Any bytes, unread: rows of every type, and scales that came with them. Pack `i` of the row, then of its scales, in
// two tensors. `given`: of dispatch's inputs. `made`: of its outputs.
struct RowAndScales {
  Packs row;
  RaggedPacks scales;
  std::uint32_t row_packs;

  WEFT_FN RowAndScales(const ExchangeShape& shape, const void* rows, const void* scale_rows, std::uint64_t index)
      : row(static_cast<const std::byte*>(rows) + index * shape.input_packs * 16, shape.input_packs * 4),
        scales(static_cast<const std::byte*>(scale_rows) + index * shape.scale_bytes, shape.scale_bytes / 4),
        row_packs(shape.input_packs) {}
  static WEFT_FN RowAndScales given(const DispatchWork& work, std::uint64_t index) {
    return {work.exchange.shape, work.input, work.scales, index};
  }
  static WEFT_FN RowAndScales made(const DispatchWork& work, std::uint64_t index) {
    return {work.exchange.shape, work.output, work.output_scales, index};
  }
  WEFT_FN Pack load(std::uint32_t i) const { return i < row_packs ? row.load(i) : scales.load(i - row_packs); }
  WEFT_FN void store(std::uint32_t i, const Pack& pack) const {
    if (i < row_packs) {
      row.store(i, pack);
    } else {
      scales.store(i - row_packs, pack);
    }
  }
};

// The same with payloads behind the scales, each in a tensor of its own. Its kernels are others, so that those of
// calls without payloads stay small.
struct RowWithPayloads {
  RowAndScales front;
  const SidePayload* sides;
  std::uint64_t index;
  bool output;

  static WEFT_FN RowWithPayloads given(const DispatchWork& work, std::uint64_t index) {
    return {RowAndScales::given(work, index), work.sides.of, index, false};
  }
  static WEFT_FN RowWithPayloads made(const DispatchWork& work, std::uint64_t index) {
    return {RowAndScales::made(work, index), work.sides.of, index, true};
  }
  WEFT_FN Pack load(std::uint32_t i) const {
    if (i < front_packs()) return front.load(i);
    const Side side = find(i);
    return side.row.load(side.pack);
  }
  WEFT_FN void store(std::uint32_t i, const Pack& pack) const {
    if (i < front_packs()) return front.store(i, pack);
    const Side side = find(i);
    side.row.store(side.pack, pack);
  }

 private:
  struct Side {
    RaggedPacks row;
    std::uint32_t pack;
  };
  WEFT_FN std::uint32_t front_packs() const {
    return front.row_packs + static_cast<std::uint32_t>(front.scales.packs());
  }
  // `i`: a pack of the row on the way, so one of them has it.
  WEFT_FN Side find(std::uint32_t i) const {
    const SidePayload* side = sides;
    std::uint32_t begin = front_packs();
    for (; i >= side->end; ++side) begin = side->end;
    const void* const rows = output ? side->output : side->given;
    return {RaggedPacks(static_cast<const std::byte*>(rows) + index * side->bytes, side->bytes / 4), i - begin};
  }
};

// Rows that travel bit for bit; `Tensors` has their packs. An item is a column of a segment (wire/escaped.hpp).
template <class Tensors>
struct ExactRow {
  static constexpr std::uint32_t kItemsAtOnce = 1;
  static constexpr std::uint32_t kRowsAtOnce = 1;
  template <class T>
  using Wire = Escaped<T::kAtomicBytes>;
  static constexpr std::uint32_t kColumns = Escaped<16>::kColumns;
  static constexpr std::uint32_t kDepth = Escaped<16>::kDepth;

  template <class T>
  static WEFT_FN std::uint32_t items(const ExchangeShape& shape) {
    return shape.segments * kColumns;
  }

  struct Column {
    std::uint32_t first;  // pack
    std::uint32_t depth;  // packs
    std::uint64_t mask;   // word behind the row's packs
    WEFT_FN std::uint32_t pack(std::uint32_t d) const { return first + d * kColumns; }
    WEFT_FN std::uint32_t* mask_of(Pack* row) const { return reinterpret_cast<std::uint32_t*>(row) + mask; }
  };
  static WEFT_FN Column column_of(const ExchangeShape& shape, std::uint32_t item) {
    const std::uint32_t packs = shape.payload_packs;
    const std::uint32_t first = item / kColumns * Escaped<16>::kSegmentPacks + item % kColumns;
    const std::uint32_t left = first < packs ? (packs - first + kColumns - 1) / kColumns : 0;
    return {.first = first, .depth = left < kDepth ? left : kDepth, .mask = std::uint64_t{packs} * 4 + item};
  }

  template <class T>
  struct Given {
    Pack pack[kDepth];
  };
  template <class T>
  static WEFT_FN Given<T> read(const DispatchWork& work, std::uint32_t token, std::uint32_t item) {
    const ExchangeShape& shape = work.exchange.shape;
    const Tensors source = Tensors::given(work, token);
    const Column column = column_of(shape, item);
    Given<T> given{};
    WEFT_UNROLL
    for (std::uint32_t d = 0; d < kDepth; ++d) {
      if (item < items<T>(shape) && d < column.depth) given.pack[d] = source.load(column.pack(d));
    }
    return given;
  }

  template <class T>
  struct Moving {
    Pack pack[kDepth];
    std::uint32_t mask;
  };
  template <Team T>
  static WEFT_FN Moving<T> encode(T&, const ExchangeShape&, const Given<T>& given) {
    Moving<T> moving{};
    WEFT_UNROLL
    for (std::uint32_t d = 0; d < kDepth; ++d) moving.pack[d] = Wire<T>::encode(given.pack[d], d, moving.mask);
    return moving;
  }

  template <Team T>
  static WEFT_FN void send(T& team, const ExchangeShape& shape, Pack* row, std::uint32_t item,
                           const Moving<T>& moving) {
    const Column column = column_of(shape, item);
    WEFT_UNROLL
    for (std::uint32_t d = 0; d < kDepth; ++d) {
      if (d < column.depth) team.store(row + column.pack(d), moving.pack[d]);
    }
    team.store(column.mask_of(row), moving.mask);
  }
  template <Team T>
  static WEFT_FN void load(T& team, const ExchangeShape& shape, Pack* row, std::uint32_t item, Moving<T>& moving) {
    const Column column = column_of(shape, item);
    moving.mask = team.load(column.mask_of(row));
    WEFT_UNROLL
    for (std::uint32_t d = 0; d < kDepth; ++d) {
      moving.pack[d] = {};
      if (d < column.depth) moving.pack[d] = team.load(row + column.pack(d));
    }
  }
  template <Team T>
  static WEFT_FN bool arrived(const Session&, const ExchangeShape& shape, std::uint32_t item, const Moving<T>& moving) {
    const Column column = column_of(shape, item);
    bool all = moving.mask != kRestWord;
    WEFT_UNROLL
    for (std::uint32_t d = 0; d < kDepth; ++d) all &= d >= column.depth || Wire<T>::arrived(moving.pack[d]);
    return all;
  }
  template <Team T>
  static WEFT_FN void rearm(T& team, const ExchangeShape& shape, Pack* row, std::uint32_t item) {
    const Column column = column_of(shape, item);
    WEFT_UNROLL
    for (std::uint32_t d = 0; d < kDepth; ++d) {
      if (d < column.depth) team.store(row + column.pack(d), kRestPack);
    }
    team.store(column.mask_of(row), kRestWord);
  }
  template <class T>
  static WEFT_FN void decode(Moving<T>& moving) {
    WEFT_UNROLL
    for (std::uint32_t d = 0; d < kDepth; ++d) moving.pack[d] = Wire<T>::decode(moving.pack[d], d, moving.mask);
  }
  template <class T>
  static WEFT_FN void put(const DispatchWork& work, const std::uint32_t (&to)[kRowsAtOnce], std::uint32_t item,
                          const Moving<T>& moving) {
    const ExchangeShape& shape = work.exchange.shape;
    const Column column = column_of(shape, item);
    WEFT_UNROLL
    for (const std::uint32_t row : to) {
      if (row == kNone) continue;
      const Tensors output = Tensors::made(work, row);
      WEFT_UNROLL
      for (std::uint32_t d = 0; d < kDepth; ++d) {
        if (d < column.depth) output.store(column.pack(d), moving.pack[d]);
      }
    }
  }
};

}  // namespace weft::detail
