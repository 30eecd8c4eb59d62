// How a row travels to its experts: cast to e4m3 on the way, or bit for bit. A row is cut into units, each of which one
// warp sends, and one warp receives; both put any number of units into any number of warps.
#pragma once

#include <cstdint>

#include "algorithms/moe_routing.hpp"
#include "core/fp8.hpp"
#include "wire/escaped.hpp"
#include "wire/sentinel.hpp"

namespace weft::detail {

// bf16 or f16 to e4m3 with a scale per 128 columns. What is made here is never all ones, neither e4m3 nor scale, so
// that the sentinel costs nothing: a row is a byte per column, and a word per scale.
template <DataType type>
struct CastRow : Fp8Cast<type> {
  using Cast = Fp8Cast<type>;
  using Cast::cast_half;
  using Cast::largest;
  using Cast::scale_for;
  using typename Cast::Scale;

  // A thread's item: all, or an eighth of the columns of one scale.
  template <class T>
  static constexpr std::uint32_t kSharers = T::kLanes >= 8 ? 8 : 1;
  template <class T>
  static constexpr std::uint32_t kPacks = 8 / kSharers<T>;  // on the wire; twice as many of the input

  template <class T>
  static WEFT_FN std::uint32_t items(const ExchangeShape& shape) {
    return shape.groups * kSharers<T>;
  }
  template <class T>
  static WEFT_FN std::uint32_t units(const ExchangeShape& shape) {
    return units_of<T>(items<T>(shape));
  }

  // Sends one unit of token `token` to the ranks of `to`.
  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const DispatchWork& work, std::uint32_t token, std::uint32_t unit,
                           std::uint32_t lane, const RankSet& to) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t count = items<T>(shape);
    const std::uint64_t row_bytes = std::uint64_t{shape.columns} * 2;
    const Packs input(static_cast<const std::byte*>(work.input) + token * row_bytes, row_bytes / 4);
    for (std::uint32_t first = unit * T::kLanes; first < count; first += units<T>(shape) * T::kLanes) {
      const std::uint32_t item = first + lane;
      Pack in[2 * kPacks<T>] = {};
      float most = 0;
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < 2 * kPacks<T>; ++i) {
        if (item < count) in[i] = input.load(item * 2 * kPacks<T> + i);
      }
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < 2 * kPacks<T>; ++i) most = max_number(most, largest(in[i]));
      const Scale scale = scale_for(team.max_of(most, kSharers<T>), shape.cast == RowCast::fp8_ue8m0);
      if (item >= count) continue;
      Pack out[kPacks<T>];
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < kPacks<T>; ++i) {
        cast_half(in[2 * i], scale.inverse, out[i].word);
        cast_half(in[2 * i + 1], scale.inverse, out[i].word + 2);
      }
      for (std::uint32_t turn = 0; turn < s.size(); ++turn) {
        const std::uint32_t rank = s.rank() + turn < s.size() ? s.rank() + turn : s.rank() + turn - s.size();
        if (!to.has(rank)) continue;
        Pack* const row = DispatchArea::of(s, work.exchange, rank, s.rank()).row(token);
        WEFT_UNROLL
        for (std::uint32_t i = 0; i < kPacks<T>; ++i) team.store(row + item * kPacks<T> + i, out[i]);
        if (item % kSharers<T> == 0) {
          team.store(scales_of(row, shape) + item / kSharers<T>, bits_of<std::uint32_t>(scale.scale));
        }
      }
    }
  }
  static WEFT_FN std::uint32_t* scales_of(Pack* row, const ExchangeShape& shape) {
    return row[shape.payload_packs].word;
  }

  // Receives one unit of a row, stores it where `each_output(store)` says (it calls `store(output row)`), and puts the
  // slot back to rest. False when the call has failed.
  template <Team T, class EachOutput>
  static WEFT_FN bool receive(T& team, const Session& s, const DispatchWork& work, Pack* row, std::uint32_t sender,
                              std::uint32_t unit, std::uint32_t lane, EachOutput each_output) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t count = items<T>(shape), groups = shape.groups;
    using Wire = Sentinel<type>;  // of all ones, whatever the type
    for (std::uint32_t first = unit * T::kLanes; first < count; first += units<T>(shape) * T::kLanes) {
      const std::uint32_t item = first + lane, group = item / kSharers<T>;
      const bool here = item < count, with_scale = here && item % kSharers<T> == 0;
      Pack* const packs = row + item * kPacks<T>;
      std::uint32_t* const scale_at = scales_of(row, shape) + group;
      Pack in[kPacks<T>];
      std::uint32_t scale = 0;
      const auto arrived = [&] {
        bool all = true;
        if (!here) return all;
        WEFT_UNROLL
        for (std::uint32_t i = 0; i < kPacks<T>; ++i) in[i] = team.load(packs + i);
        if (with_scale) scale = team.load(scale_at);
        WEFT_UNROLL
        for (std::uint32_t i = 0; i < kPacks<T>; ++i) all &= Wire::template arrived<T::kAtomicBytes>(in[i], s.epoch);
        return all && scale != kRestWord;
      };
      if (!team.all_lanes(wait(team, s, {.phase = 1}, arrived, [&] { return sender; }))) return false;
      each_output([&](std::uint32_t to) {
        if (!here) return;
        const Packs output(static_cast<std::byte*>(work.output) + std::uint64_t{to} * shape.columns, shape.columns / 4);
        WEFT_UNROLL
        for (std::uint32_t i = 0; i < kPacks<T>; ++i) output.store(item * kPacks<T> + i, in[i]);
        if (!with_scale) return;
        const std::uint64_t at = std::uint64_t{to} * groups + group;
        if (shape.cast == RowCast::fp8) {
          static_cast<float*>(work.output_scales)[at] = bits_of<float>(scale);
        } else {
          static_cast<std::uint8_t*>(work.output_scales)[at] = static_cast<std::uint8_t>(scale >> 23);
        }
      });
      if (!here) continue;
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < kPacks<T>; ++i) team.store(packs + i, kRestPack);
      if (with_scale) team.store(scale_at, kRestWord);
    }
    return true;
  }
};

// Any bytes, unread: rows of every type, and scales that came with them.
struct ExactRow {
  template <class T>
  static WEFT_FN std::uint32_t units(const ExchangeShape& shape) {
    return T::kLanes == 1 ? 1 : shape.segments;
  }

  // Pack `i` of the row and of its scales, wherever they lie.
  struct Source {
    Packs row;
    RaggedPacks scales;
    std::uint32_t row_packs;

    WEFT_FN Source(const ExchangeShape& shape, const void* rows, const void* scale_rows, std::uint64_t index)
        : row(static_cast<const std::byte*>(rows) + index * shape.input_packs * 16, shape.input_packs * 4),
          scales(static_cast<const std::byte*>(scale_rows) + index * shape.scale_bytes, shape.scale_bytes / 4),
          row_packs(shape.input_packs) {}
    WEFT_FN Pack load(std::uint32_t i) const { return i < row_packs ? row.load(i) : scales.load(i - row_packs); }
    WEFT_FN void store(std::uint32_t i, const Pack& pack) const {
      if (i < row_packs) {
        row.store(i, pack);
      } else {
        scales.store(i - row_packs, pack);
      }
    }
  };

  // One column of one segment, which one lane handles.
  template <class T>
  struct Column {
    using Wire = Escaped<T::kAtomicBytes>;
    std::uint32_t first;  // pack
    std::uint32_t depth;  // packs
    std::uint64_t mask;   // word behind the row's packs
    WEFT_FN std::uint32_t* mask_of(Pack* row) const { return reinterpret_cast<std::uint32_t*>(row) + mask; }
  };
  // Calls `handle(column)` for the columns of one unit that are this lane's, until it returns false.
  template <Team T, class Handle>
  static WEFT_FN bool each_column(const ExchangeShape& shape, std::uint32_t unit, std::uint32_t lane, Handle handle) {
    using Wire = Escaped<T::kAtomicBytes>;
    const std::uint32_t packs = shape.payload_packs;
    for (std::uint32_t segment = unit; segment < shape.segments; segment += units<T>(shape)) {
      for (std::uint32_t c = lane; c < Wire::kColumns; c += T::kLanes) {
        const std::uint32_t first = segment * Wire::kSegmentPacks + c;
        const std::uint32_t left = first < packs ? (packs - first + Wire::kColumns - 1) / Wire::kColumns : 0;
        if (!handle(Column<T>{.first = first,
                              .depth = left < Wire::kDepth ? left : Wire::kDepth,
                              .mask = std::uint64_t{packs} * 4 + segment * Wire::kColumns + c})) {
          return false;
        }
      }
    }
    return true;
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const DispatchWork& work, std::uint32_t token, std::uint32_t unit,
                           std::uint32_t lane, const RankSet& to) {
    using Wire = Escaped<T::kAtomicBytes>;
    const ExchangeShape& shape = work.exchange.shape;
    const Source source(shape, work.input, work.scales, token);
    each_column<T>(shape, unit, lane, [&](const Column<T>& column) {
      Pack pack[Wire::kDepth] = {};
      std::uint32_t mask = 0;
      WEFT_UNROLL
      for (std::uint32_t d = 0; d < Wire::kDepth; ++d) {
        if (d < column.depth) pack[d] = source.load(column.first + d * Wire::kColumns);
      }
      WEFT_UNROLL
      for (std::uint32_t d = 0; d < Wire::kDepth; ++d) pack[d] = Wire::encode(pack[d], d, mask);
      for (std::uint32_t turn = 0; turn < s.size(); ++turn) {
        const std::uint32_t rank = s.rank() + turn < s.size() ? s.rank() + turn : s.rank() + turn - s.size();
        if (!to.has(rank)) continue;
        Pack* const row = DispatchArea::of(s, work.exchange, rank, s.rank()).row(token);
        WEFT_UNROLL
        for (std::uint32_t d = 0; d < Wire::kDepth; ++d) {
          if (d < column.depth) team.store(row + column.first + d * Wire::kColumns, pack[d]);
        }
        team.store(column.mask_of(row), mask);
      }
      return true;
    });
  }

  template <Team T, class EachOutput>
  static WEFT_FN bool receive(T& team, const Session& s, const DispatchWork& work, Pack* row, std::uint32_t sender,
                              std::uint32_t unit, std::uint32_t lane, EachOutput each_output) {
    using Wire = Escaped<T::kAtomicBytes>;
    const ExchangeShape& shape = work.exchange.shape;
    return each_column<T>(shape, unit, lane, [&](const Column<T>& column) {
      std::uint32_t* const mask_at = column.mask_of(row);
      Pack* const packs = row + column.first;
      Pack pack[Wire::kDepth] = {};
      std::uint32_t mask = 0;
      const auto arrived = [&] {
        mask = team.load(mask_at);
        WEFT_UNROLL
        for (std::uint32_t d = 0; d < Wire::kDepth; ++d) {
          if (d < column.depth) pack[d] = team.load(packs + d * Wire::kColumns);
        }
        bool all = mask != kRestWord;
        WEFT_UNROLL
        for (std::uint32_t d = 0; d < Wire::kDepth; ++d) all &= d >= column.depth || Wire::arrived(pack[d]);
        return all;
      };
      if (!team.all_lanes(wait(team, s, {.phase = 1}, arrived, [&] { return sender; }))) return false;
      WEFT_UNROLL
      for (std::uint32_t d = 0; d < Wire::kDepth; ++d) pack[d] = Wire::decode(pack[d], d, mask);
      each_output([&](std::uint32_t to) {
        const Source output(shape, work.output, work.output_scales, to);
        WEFT_UNROLL
        for (std::uint32_t d = 0; d < Wire::kDepth; ++d) {
          if (d < column.depth) output.store(column.first + d * Wire::kColumns, pack[d]);
        }
      });
      WEFT_UNROLL
      for (std::uint32_t d = 0; d < Wire::kDepth; ++d) {
        if (d < column.depth) team.store(packs + d * Wire::kColumns, kRestPack);
      }
      team.store(mask_at, kRestWord);
      return true;
    });
  }
};

}  // namespace weft::detail
