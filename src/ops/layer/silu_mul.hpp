// The activation between an expert's two GEMMs: silu(gate) · up in f32, rounded once, or cast to e4m3 with a scale for
// each 128 columns. Only rows that came are read, as the counts on the device say. Other ranks do not matter.
#pragma once

#include <cstdint>

#include "numeric/fp8.hpp"
#include "numeric/functions.hpp"
#include "ops/layer/silu_mul_work.hpp"
#include "ops/moe/moe_rows.hpp"
#include "protocol/one_rank.hpp"

namespace weft::detail {

template <DataType type, bool cast, ScaleOrder order>
struct SiluMul {
  using Work = SiluMulWork;
  using Cast = CastRow<type, order>;
  static constexpr int kMostThreads = 512;

  // A lane's part of a row: all columns of one scale or an eighth of them, or a pack.
  template <class T>
  static constexpr std::uint32_t kPacks = cast ? 2 * Cast::template kPacks<T> : 1;
  template <class T>
  static WEFT_FN std::uint32_t items(const ExchangeShape& shape) {
    return shape.columns / (8 * kPacks<T>);
  }

  // By all threads of all blocks. False: the call has failed.
  template <Team T>
  static WEFT_FN bool run(T& team, const Call& call, const Work& work) {
    if (!may_begin(team, call)) return false;
    const ExchangeShape& shape = work.shape;
    const std::uint32_t warps = team.size() / T::kLanes, lane = team.thread_rank() % T::kLanes;
    const std::uint32_t units = (items<T>(shape) + T::kLanes - 1) / T::kLanes;  // of a row
    const std::uint64_t step = std::uint64_t{team.blocks()} * warps;
    // Warps take units in strides over the rows of all experts. A unit's number begins at 0 with each expert.
    std::uint64_t next = std::uint64_t{team.block_rank()} * warps + team.thread_rank() / T::kLanes;
    for (std::uint32_t first = work.experts.begin; first < work.experts.end; first += T::kLanes) {
      const std::uint32_t mine = first + lane;
      const bool one = mine < work.experts.end;
      const std::uint32_t begin = one ? begin_of(work, mine) : 0, rows = one ? rows_of(work, mine, begin) : 0;
      for (std::uint32_t i = 0; i < T::kLanes && first + i < work.experts.end; ++i) {
        const std::uint32_t row = team.from_lane(begin, i);
        const std::uint64_t all = std::uint64_t{team.from_lane(rows, i)} * units;
        for (; next < all; next += step) {
          make(team, work, row + static_cast<std::uint32_t>(next / units), next % units * T::kLanes + lane);
        }
        next -= all;
      }
    }
    return true;
  }

 private:
  static WEFT_FN std::uint32_t begin_of(const Work& work, std::uint32_t expert) {
    return work.shape.layout == RowLayout::expert_masked ? expert * work.shape.capacity
                                                         : static_cast<std::uint32_t>(work.offsets[expert]);
  }
  // Rows that had room.
  static WEFT_FN std::uint32_t rows_of(const Work& work, std::uint32_t expert, std::uint32_t begin) {
    const auto rows = static_cast<std::uint32_t>(work.counts[expert]);
    const std::uint32_t capacity = work.shape.capacity;
    const std::uint32_t room = work.shape.layout == RowLayout::expert_masked ? capacity
                               : begin < capacity                            ? capacity - begin
                                                                             : 0;
    return rows < room ? rows : room;
  }

  template <Team T>
  static WEFT_FN void make(T& team, const Work& work, std::uint32_t row, std::uint64_t item) {
    const ExchangeShape& shape = work.shape;
    const bool one = item < items<T>(shape);
    const std::uint64_t packs = shape.columns / 8;
    const Packs input(static_cast<const Pack*>(work.input) + row * 2 * packs, 2 * packs * 4);
    float made[8 * kPacks<T>] = {};
    if (one) {
      Pack gate[kPacks<T>], up[kPacks<T>];
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < kPacks<T>; ++i) gate[i] = input.load(item * kPacks<T> + i);
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < kPacks<T>; ++i) up[i] = input.load(packs + item * kPacks<T> + i);
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < 8 * kPacks<T>; ++i) {
        made[i] = silu(Fp8Cast<type>::column(gate[i / 8], i % 8)) * Fp8Cast<type>::column(up[i / 8], i % 8);
      }
    }
    if constexpr (cast) {
      put_cast(team, work, row, item, one, made);
    } else if (one) {
      Pack pack;
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < 4; ++i) pack.word[i] = Element<type>::narrow(made[2 * i], made[2 * i + 1]);
      const Packs output(static_cast<Pack*>(work.output) + row * packs, packs * 4);
      output.store(item, pack);
    }
  }

  // By all lanes: the lanes of one scale look at each other's numbers.
  template <Team T>
  static WEFT_FN void put_cast(T& team, const Work& work, std::uint32_t row, std::uint64_t item, bool one,
                               const float (&made)[8 * kPacks<T>]) {
    const ExchangeShape& shape = work.shape;
    float most = 0;
    WEFT_UNROLL
    for (const float value : made) most = max_number(most, magnitude_of(value));
    const typename Fp8Cast<type>::Scale scale = Fp8Cast<type>::scale_for(team.max_of(most, Cast::template kSharers<T>),
                                                                         kFp8Floor, scales_are_powers(shape.cast));
    if (!one) return;
    const Packs output(static_cast<std::byte*>(work.output) + std::uint64_t{row} * shape.columns, shape.columns / 4);
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kPacks<T> / 2; ++i) {
      Pack pack;
      WEFT_UNROLL
      for (std::uint32_t word = 0; word < 4; ++word) {
        const auto pair = [&](std::uint32_t at) {
          return f32_to_e4m3(made[at] * scale.inverse, made[at + 1] * scale.inverse);
        };
        pack.word[word] = pair(16 * i + 4 * word) | pair(16 * i + 4 * word + 2) << 16;
      }
      output.store(item * (kPacks<T> / 2) + i, pack);
    }
    if (!Cast::template has_scale<T>(static_cast<std::uint32_t>(item))) return;
    const std::uint32_t group = static_cast<std::uint32_t>(item) / Cast::template kSharers<T>;
    const std::uint32_t to[Cast::kRowsAtOnce] = {row, kNone, kNone, kNone};
    if (!scales_are_bytes(shape.cast)) {
      Cast::put_scales(static_cast<float*>(work.scales), shape, group, to, scale.scale);
    } else {
      Cast::put_scales(static_cast<std::uint8_t*>(work.scales), shape, group, to,
                       static_cast<std::uint8_t>(bits_of<std::uint32_t>(scale.scale) >> 23));
    }
  }
};

}  // namespace weft::detail
