// The steps that follow an all-reduce in a model's layer, row by row: the residual is added, the row is normed, and
// perhaps cast to e4m3. A block serves a row, because the norm needs all of it.
//
// The sum of squares has one order, whatever the block and the executor. First each pack's eight squares are added one
// after the other. Then packs are added in segments of 32: neighbours first, then neighbouring pairs, and so on.
// Segment s goes to column s mod 32, in ascending order. Last, the columns are added like the packs of a segment. Roots
// and quotients are rounded once, so CPU and GPU have the same bits.
#pragma once

#include <cstdint>

#include "numeric/fp8.hpp"
#include "numeric/rows.hpp"
#include "ops/all_reduce/all_reduce.hpp"
#include "ops/norm/norm_plan.hpp"
#include "ops/norm/norm_work.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kSegmentPacks = 32;
inline constexpr std::uint32_t kScalePacks = 16;  // that share a scale: 128 columns

// This thread's packs of a message: `first`, `first + step`, … below `end`. Every block has the same number, in runs of
// whole warps. So even few packs leave from many processors, each of which stores no more than 49 GB/s.
struct NormShare {
  std::uint32_t first, end, step;
};
template <Team T>
WEFT_FN NormShare norm_share(T& team, std::uint32_t packs) {
  constexpr std::uint32_t kRun = 32;
  const std::uint32_t blocks = team.blocks() - 1, each = ((packs + blocks - 1) / blocks + kRun - 1) / kRun * kRun;
  const std::uint32_t begin = (team.block_rank() - 1) * each, end = begin + each < packs ? begin + each : packs;
  return {.first = begin + team.thread_rank(), .end = end, .step = team.size()};
}

// The message of all rows.
WEFT_FN Rows<true> norm_input(const NormWork& work) {
  return {work.input, work.rows, std::uint64_t{work.row_packs} * sizeof(Pack), work.input_stride * sizeof(Pack)};
}

// `casts`: rows are also cast. Each instruction after a row's arrival counts, as the 16 or 32 warps of its block share
// four schedulers. So instances without casts have no code for them, and rows with a thread for every pack need no
// loops (`single`).
template <class R, bool casts>
struct RmsNorm {
  static constexpr DataType kType = R::kType;
  using Cast = Fp8Cast<kType>;
  using Packs = Tensor<typename R::Storage, R::kElements, true>;
  // Neighbours that add up their packs' squares without scratch memory: enough lanes for a scale, or one.
  template <class T>
  static constexpr std::uint32_t kUnit = T::kLanes >= kScalePacks ? T::kLanes : 1;

  // A block's rows: its number among the data blocks, then every (number of data blocks)-th row.
  template <Team T, class Serve>
  static WEFT_FN bool each_row(T& team, const NormWork& work, Serve serve) {
    for (std::uint32_t row = team.block_rank() - 1; row < work.rows; row += team.blocks() - 1) {
      if (!serve(row)) return false;
    }
    return true;
  }
  static WEFT_FN RowScaling scaling_of(const NormWork& work) { return casts ? work.scaling : RowScaling::none; }
  // Neighbouring packs of one thread: the packs of a scale, if lanes cannot read each other's values.
  template <class T>
  static WEFT_FN std::uint32_t run_of(const NormWork& work) {
    return kUnit<T> == 1 && scaling_of(work) == RowScaling::per_group ? kScalePacks : 1;
  }
  // Calls `serve.template operator()<single>()`; `single`: no thread has more than one pack of a row.
  template <Team T, class Serve>
  static WEFT_FN auto with_width(T& team, const NormWork& work, Serve serve) {
    const bool single = run_of<T>(work) == 1 && work.row_packs <= team.size();
    return single ? serve.template operator()<true>() : serve.template operator()<false>();
  }
  // Calls `serve(n, i)` for each run of a thread; its first pack is the thread's n-th of the row, and the row's i-th.
  // All threads of the block make the same number of calls, also if i is behind the row's end.
  template <bool single, Team T, class Serve>
  static WEFT_FN void each_run(T& team, const NormWork& work, Serve serve) {
    const std::uint32_t run = run_of<T>(work), at_once = team.size() * run;
    std::uint32_t n = 0, begin = 0;
    do {
      serve(n, begin + team.thread_rank() * run);
      n += run;
      begin += at_once;
    } while (!single && begin < work.row_packs);
  }
  template <bool single, Team T, class Serve>
  static WEFT_FN void each_pack_of_row(T& team, const NormWork& work, Serve serve) {
    const std::uint32_t run = single ? 1 : run_of<T>(work);
    each_run<single>(team, work, [&](std::uint32_t n, std::uint32_t i) {
      for (std::uint32_t k = 0; k < run; ++k) serve(n + k, i + k);
    });
  }

  // Weights for this thread's first two packs of every row, loaded before the first row is awaited; none if the block
  // has no row.
  struct Weights {
    Pack first, second;
  };
  template <Team T>
  static WEFT_FN Weights weights(T& team, const NormWork& work, std::uint32_t first_row) {
    const Packs gamma(work.gamma, 0);
    const std::uint32_t run = run_of<T>(work), first = team.thread_rank() * run;
    const std::uint32_t second = run == 1 ? first + team.size() : first + 1;
    const std::uint32_t packs = first_row < work.rows ? work.row_packs : 0;
    return {.first = first < packs ? gamma.load(first) : Pack{},
            .second = second < packs ? gamma.load(second) : Pack{}};
  }

  // Finishes one row. `take(n, i, sum)` gives the row's i-th pack, this thread's n-th, of the all-reduce's result, or
  // false if the call has failed. Then every thread of the block gets false. `uses`: of scratch memory, counted from 0
  // in a call. Its halves take turns, so that a late thread still finds the others' values. For a thread that writes to
  // a half again has passed the barrier of the other half.
  template <bool single, Team T, class Take>
  static WEFT_FN bool finish(T& team, const NormWork& work, std::uint32_t row, const Weights& weights,
                             std::uint32_t& uses, Take take) {
    const std::uint32_t packs = work.row_packs;
    const Packs residual(static_cast<const Pack*>(work.residual) + row * work.residual_stride, 0);
    const Packs result(static_cast<Pack*>(work.residual_output) + row * work.residual_output_stride, 0);
    Row mine{};
    bool good = true;
    float* const squares = half(team, uses);
    each_pack_of_row<single>(team, work, [&](std::uint32_t n, std::uint32_t i) {
      float sum = 0;
      if (i < packs && good) {
        // The load runs while the sum is awaited.
        const Pack before = work.residual != nullptr ? residual.load(i) : Pack{};
        Pack row_pack{};
        good = take(n, i, row_pack);
        if (work.residual != nullptr) row_pack = added(row_pack, before);
        result.store(i, row_pack);
        if (n == 0) mine.first = row_pack;
        if (n == 1) mine.second = row_pack;
        sum = sum_of_squares(row_pack);
      }
      sum = team.sum_of(sum, kUnit<T>);
      if (i % kUnit<T> == 0 && i < packs) squares[i / kUnit<T>] = sum;
    });
    if (!team.all(good)) return false;
    mine.factor = factor_of(work, total<single>(team, squares, packs));
    write<single>(team, work, row, weights, uses, mine);
    return true;
  }

 private:
  // A thread's part of its row. Two packs stay in registers, the others are loaded again.
  struct Row {
    Pack first, second;
    float factor;  // 1 / root mean square
  };

  template <Team T>
  static WEFT_FN float* half(T& team, std::uint32_t& uses) {
    return team.scratch() + uses++ % 2 * (T::kScratchWords / 2);
  }

  static WEFT_FN Pack added(const Pack& a, const Pack& b) {
    typename R::Accumulator sum{};
    R::begin(sum, a);
    R::add(sum, b);
    return R::finish(sum);
  }
  static WEFT_FN float sum_of_squares(const Pack& pack) {
    typename R::Accumulator x{};
    R::begin(x, pack);
    float sum = x.value[0] * x.value[0];
    WEFT_UNROLL
    for (std::uint32_t i = 1; i < R::kElements; ++i) sum += x.value[i] * x.value[i];
    return sum;
  }

  // Sums of 32 leaves; every lane has 32 / kLanes neighbouring leaves.
  template <std::uint32_t leaves, class Leaf>
  static WEFT_FN float pairwise(Leaf leaf) {
    float value[leaves];
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < leaves; ++i) value[i] = leaf(i);
    WEFT_UNROLL
    for (std::uint32_t step = 1; step < leaves; step *= 2) {
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < leaves; i += 2 * step) value[i] += value[i + step];
    }
    return value[0];
  }
  template <bool single, Team T>
  static WEFT_FN float total(T& team, const float* squares, std::uint32_t packs) {
    static_assert(kMostNormThreads <= kSegmentPacks * kSegmentPacks);  // `single`: as many segments as columns at most
    constexpr std::uint32_t own = kSegmentPacks / T::kLanes, of_segment = kSegmentPacks / kUnit<T>;
    const std::uint32_t entries = (packs + kUnit<T> - 1) / kUnit<T>;
    const std::uint32_t segments = (packs + kSegmentPacks - 1) / kSegmentPacks;
    const auto segment_sum = [&](std::uint32_t segment) {
      return pairwise<of_segment>([&](std::uint32_t i) {
        const std::uint32_t entry = segment * of_segment + i;
        return entry < entries ? squares[entry] : 0.0f;
      });
    };
    const std::uint32_t first = team.thread_rank() % T::kLanes * own;
    const float part = pairwise<own>([&](std::uint32_t i) {
      float sum = 0;
      for (std::uint32_t segment = first + i; segment < segments; segment += kSegmentPacks) {
        sum += segment_sum(segment);
        if (single && own == 1) break;  // a lane has one at most
      }
      return sum;
    });
    return team.sum_of(part, T::kLanes);
  }
  static WEFT_FN float factor_of(const NormWork& work, float squares) {
    return quotient(1.0f, square_root(squares * work.inverse_columns + work.epsilon));
  }

  // A pack of the normed row, rounded once.
  static WEFT_FN Pack normed(const NormWork& work, const Pack& pack, const Pack& gamma, float factor) {
    typename R::Accumulator x{}, weight{};
    R::begin(x, pack);
    R::begin(weight, gamma);
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < R::kElements; ++i) {
      x.value[i] = x.value[i] * factor * (work.gamma_plus_one ? weight.value[i] + 1.0f : weight.value[i]);
    }
    return R::finish(x);
  }

  template <bool single, Team T>
  static WEFT_FN void write(T& team, const NormWork& work, std::uint32_t row, const Weights& weights,
                            std::uint32_t& uses, const Row& mine) {
    const std::uint32_t run = single ? 1 : run_of<T>(work), packs = work.row_packs;
    const Packs result(static_cast<Pack*>(work.residual_output) + row * work.residual_output_stride, 0);
    const Packs gamma(work.gamma, 0);
    const Packs output(static_cast<Pack*>(work.output) + row * work.output_stride, 0);
    const auto normed_at = [&](std::uint32_t n, std::uint32_t i) {
      if (n == 0) return normed(work, mine.first, weights.first, mine.factor);
      if (n == 1) return normed(work, mine.second, weights.second, mine.factor);
      return normed(work, result.load(i), gamma.load(i), mine.factor);
    };
    float inverse = scaling_of(work) == RowScaling::fixed ? quotient(1.0f, *work.scale) : 0.0f;
    if (scaling_of(work) == RowScaling::per_token) {
      float most = 0;
      each_pack_of_row<single>(team, work, [&](std::uint32_t n, std::uint32_t i) {
        if (i < packs) most = max_number(most, Cast::largest(normed_at(n, i)));
      });
      const typename Cast::Scale scale = Cast::scale_for(most_of_block(team, uses, most), work.power_of_two);
      if (team.thread_rank() == 0) put_scale(work, row, 0, scale.scale);
      inverse = scale.inverse;
    }
    each_run<single>(team, work, [&](std::uint32_t n, std::uint32_t i) {
      if (scaling_of(work) == RowScaling::per_group) {
        float most = 0;
        for (std::uint32_t k = 0; k < run; ++k) {
          if (i + k < packs) most = max_number(most, Cast::largest(normed_at(n + k, i + k)));
        }
        const typename Cast::Scale scale =
            Cast::scale_for(team.max_of(most, kUnit<T> == 1 ? 1 : kScalePacks), work.power_of_two);
        if (i % kScalePacks == 0 && i < packs) put_scale(work, row, i / kScalePacks, scale.scale);
        inverse = scale.inverse;
      }
      for (std::uint32_t k = 0; k < run && i + k < packs; ++k) {
        const Pack pack = normed_at(n + k, i + k);
        if (work.output != nullptr) output.store(i + k, pack);
        if (scaling_of(work) != RowScaling::none) put_fp8(work, row, i + k, pack, inverse);
      }
    });
  }

  // Call it in all threads of the block.
  template <Team T>
  static WEFT_FN float most_of_block(T& team, std::uint32_t& uses, float most) {
    float* const maxima = half(team, uses);
    most = team.max_of(most, T::kLanes);
    if (team.thread_rank() % T::kLanes == 0) maxima[team.thread_rank() / T::kLanes] = most;
    team.sync();
    const std::uint32_t warps = (team.size() + T::kLanes - 1) / T::kLanes;
    for (std::uint32_t warp = team.thread_rank() % T::kLanes; warp < warps; warp += T::kLanes) {
      most = max_number(most, maxima[warp]);
    }
    return team.max_of(most, T::kLanes);
  }
  static WEFT_FN void put_scale(const NormWork& work, std::uint32_t row, std::uint32_t group, float scale) {
    const std::uint64_t at = row * work.scale_row_stride + group * work.scale_group_stride;
    if (work.power_of_two) {
      static_cast<std::uint8_t*>(work.scales)[at] = static_cast<std::uint8_t>(bits_of<std::uint32_t>(scale) >> 23);
    } else {
      static_cast<float*>(work.scales)[at] = scale;
    }
  }
  struct [[gnu::may_alias]] alignas(8) Half {
    std::uint32_t word[2];
  };
  static WEFT_FN void put_fp8(const NormWork& work, std::uint32_t row, std::uint32_t i, const Pack& pack,
                              float inverse) {
    Half half;
    Cast::cast_half(pack, inverse, half.word);
    reinterpret_cast<Half*>(work.fp8)[row * work.fp8_stride + i] = half;
  }
};

}  // namespace weft::detail
