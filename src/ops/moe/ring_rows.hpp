// Rows that a ring carries. They need no marks, because signals announce them: so they travel as they are, in bulk.
//
// On the way a row is its head and its payload. The head has a pack for each of the token's entries, then the scales of
// a row that is cast. The payload travels in pieces, each through a place of a warp's stage; the head has a place of
// its own. The sender's pieces come from the caller's row in bulk, and get their form on the wire in their place.
#pragma once

#include <cstdint>

#include "ops/moe/moe_rows.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kHeadPlace = 0;  // of a stage; the others are for pieces

// The number of items of `packs` packs that a lane has in a piece.
template <class T>
constexpr std::uint32_t items_of_piece(std::uint32_t packs) {
  const std::uint32_t items = T::kPieceBytes / (T::kLanes * packs * sizeof(Pack));
  return items == 0 ? 1 : items;
}

// Pieces of a row as the caller gives it, on their way into the places behind the head's.
template <class Row, StagedTeam T>
struct GivenPieces {
  static constexpr std::uint32_t kPlaces = T::kStagePlaces - 1;
  const Pack* next;
  std::uint32_t left;  // packs that have not been asked for
  std::uint32_t place = 1;

  // Asks for the next piece, if there is one. By all lanes.
  WEFT_FN void ask(T& team) {
    if (left == 0) return;
    const std::uint32_t packs = left < Row::template kGivenPacks<T> ? left : Row::template kGivenPacks<T>;
    team.load_bulk(place, next, packs * sizeof(Pack));
    next += packs;
    left -= packs;
    place = behind(place);
  }
  static WEFT_FN std::uint32_t behind(std::uint32_t place) { return place < kPlaces ? place + 1 : 1; }
};

// Scales in either order. One instance serves both, because the order is looked up once a row.
template <DataType type>
struct RingCastRow : CastRow<type, ScaleOrder::rows> {
  using Base = CastRow<type, ScaleOrder::rows>;
  template <class T>
  static constexpr std::uint32_t kItemPacks = Base::template kPacks<T>;  // of the payload; twice as many are given
  template <class T>
  static constexpr std::uint32_t kItems = items_of_piece<T>(2 * kItemPacks<T>);  // of a lane in a piece
  // Packs of a piece, as it is sent and as it is given.
  template <class T>
  static constexpr std::uint32_t kPiecePacks = T::kLanes* kItems<T>* kItemPacks<T>;
  template <class T>
  static constexpr std::uint32_t kGivenPacks = 2 * kPiecePacks<T>;

  // The caller's row, as far as it comes in bulk.
  static WEFT_FN std::uint32_t given_packs(const ExchangeShape& shape) { return shape.columns / 8; }
  static WEFT_FN const Pack* given(const DispatchWork& work, std::uint32_t token) {
    return static_cast<const Pack*>(work.input) + std::uint64_t{token} * (work.exchange.shape.columns / 8);
  }
  // Whether the piece that begins at a pack of the payload has anything of it.
  static WEFT_FN constexpr bool is_given(const ExchangeShape&, std::uint32_t) { return true; }
  // Casts the piece that has come to a place and begins at pack `first` of the payload. Its scales go into the head. By
  // all lanes; a lane handles the items lane, lane + kLanes, …
  template <StagedTeam T>
  static WEFT_FN void finish(T& team, const DispatchWork& work, std::uint32_t, std::uint32_t lane, std::uint32_t place,
                             std::uint32_t first) {
    constexpr std::uint32_t kPacks = kItemPacks<T>;
    const ExchangeShape& shape = work.exchange.shape;
    Pack in[kItems<T>][2 * kPacks];
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kItems<T>; ++j) {
      WEFT_UNROLL
      for (std::uint32_t p = 0; p < 2 * kPacks; ++p) {
        in[j][p] = team.template staged<Pack>(place, (lane + j * T::kLanes) * 2 * kPacks + p);
      }
    }
    const std::uint32_t item = first / kPacks + lane, end = shape.payload_packs / kPacks;
    float inverse[kItems<T>];
    find_scales(team, shape, lane, item, end, in, inverse);
    team.sync_lanes();  // all of the piece has been read
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kItems<T>; ++j) {
      if (item + j * T::kLanes >= end) break;
      WEFT_UNROLL
      for (std::uint32_t p = 0; p < kPacks; ++p) {
        Pack pack;
        Base::cast_half(in[j][2 * p], inverse[j], pack.word);
        Base::cast_half(in[j][2 * p + 1], inverse[j], pack.word + 2);
        team.stage(place, (lane + j * T::kLanes) * kPacks + p, pack);
      }
    }
  }

  template <Team T>
  static WEFT_FN void prefetch(T& team, const DispatchWork& work, std::uint32_t token) {
    team.prefetch(given(work, token), 2 * work.exchange.shape.columns);
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
  // Finds the inverse scales of the lane's items, and puts the scales of items below `end` into the head. Lanes that
  // share scales compare the largest numbers of two items at once, and share the divisions.
  template <StagedTeam T, std::uint32_t items, std::uint32_t packs>
  static WEFT_FN void find_scales(T& team, const ExchangeShape& shape, std::uint32_t lane, std::uint32_t item,
                                  std::uint32_t end, const Pack (&in)[items][packs], float (&inverse)[items]) {
    constexpr std::uint32_t kSharers = Base::template kSharers<T>;
    static_assert(items <= 2 && (kSharers == 1 || kSharers >= items));
    const bool powers = scales_are_powers(shape.cast);
    const auto put = [&](std::uint32_t of, float scale) {
      if (of < end) team.stage(kHeadPlace, shape.top_k * 4 + of / kSharers, bits_of<std::uint32_t>(scale));
    };
    std::uint32_t most[items];  // magnitude, in the lower half
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < items; ++j) {
      most[j] = 0;
      WEFT_UNROLL
      for (const Pack& pack : in[j]) most[j] = Base::largest_pair(most[j], pack);
      most[j] = Element<type>::larger_magnitudes(most[j], most[j] >> 16) & 0xffffu;
    }
    const auto scale_of = [&](std::uint32_t magnitude) {
      return Base::scale_for(Element<type>::widen(static_cast<std::uint16_t>(magnitude)), kFp8Floor, powers);
    };
    if constexpr (kSharers == 1) {
      for (std::uint32_t j = 0; j < items; ++j) {
        const typename Base::Scale scale = scale_of(most[j]);
        inverse[j] = scale.inverse;
        put(item + j * T::kLanes, scale.scale);
      }
    } else {
      std::uint32_t both = most[0] | most[items - 1] << 16;
      WEFT_UNROLL
      for (std::uint32_t step = kSharers / 2; step != 0; step /= 2) {
        both = Element<type>::larger_magnitudes(both, team.from_lane(both, lane ^ step));
      }
      const std::uint32_t own = lane % kSharers;  // item; lanes with higher ones are idle
      const typename Base::Scale scale = scale_of(own % items == 0 ? both & 0xffffu : both >> 16);
      if (own < items) put(item + own * T::kLanes, scale.scale);
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < items; ++j) {
        const std::uint32_t bits = team.from_lane(bits_of<std::uint32_t>(scale.inverse), (lane - own) + j);
        inverse[j] = bits_of<float>(bits);
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

// Any bytes, unread: rows of every type, and behind the row what came with it, as `Tensors` has it (moe_rows.hpp).
template <class Tensors>
struct RingExactRow {
  template <class T>
  static constexpr std::uint32_t kPiecePacks = items_of_piece<T>(1) * T::kLanes;
  template <class T>
  static constexpr std::uint32_t kGivenPacks = kPiecePacks<T>;

  static WEFT_FN std::uint32_t given_packs(const ExchangeShape& shape) { return shape.input_packs; }
  static WEFT_FN const Pack* given(const DispatchWork& work, std::uint32_t token) {
    return static_cast<const Pack*>(work.input) + std::uint64_t{token} * work.exchange.shape.input_packs;
  }
  static WEFT_FN bool is_given(const ExchangeShape& shape, std::uint32_t pack) { return pack < shape.input_packs; }
  // Puts scales and payloads behind the row.
  template <StagedTeam T>
  static WEFT_FN void finish(T& team, const DispatchWork& work, std::uint32_t token, std::uint32_t lane,
                             std::uint32_t place, std::uint32_t first) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t end =
        first + kPiecePacks<T> < shape.payload_packs ? first + kPiecePacks<T> : shape.payload_packs;
    if (end <= shape.input_packs) return;
    const Tensors source = Tensors::given(work, token);
    for (std::uint32_t i = (first > shape.input_packs ? first : shape.input_packs) + lane; i < end; i += T::kLanes) {
      team.stage(place, i - first, source.load(i));
    }
  }

  template <Team T>
  static WEFT_FN void prefetch(T& team, const DispatchWork& work, std::uint32_t token) {
    team.prefetch(given(work, token), work.exchange.shape.input_packs * sizeof(Pack));
  }

  static WEFT_FN std::uint32_t output_packs(const ExchangeShape& shape) { return shape.input_packs; }
  static WEFT_FN Pack* output(const DispatchWork& work, std::uint32_t row) {
    return static_cast<Pack*>(work.output) + std::uint64_t{row} * work.exchange.shape.input_packs;
  }
  static WEFT_FN void put_rest(const DispatchWork& work, std::uint32_t row, std::uint32_t i, const Pack& pack) {
    Tensors::made(work, row).store(i, pack);
  }
  template <StagedTeam T>
  static WEFT_FN void put_scales(T&, const DispatchWork&, std::uint32_t, std::uint32_t) {}
};

}  // namespace weft::detail
