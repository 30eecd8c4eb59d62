// The steps that follow an all-reduce in a model's layer, row by row: the residual is added, the row is normed, and
// perhaps cast to e4m3. A block serves a row, because the norm needs all of it.
// Squares are added in one order (norm_squares.hpp). Roots and quotients are rounded once, so CPU and GPU have the same
// bits.
#pragma once

#include <cstdint>

#include "numeric/fp8.hpp"
#include "numeric/rows.hpp"
#include "ops/all_reduce/all_reduce.hpp"
#include "ops/norm/norm_plan.hpp"
#include "ops/norm/norm_squares.hpp"
#include "ops/norm/norm_weights.hpp"
#include "ops/norm/norm_work.hpp"

namespace weft::detail {

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

// Nothing else is done with a normed row's packs. `kKeepsAll`: every row's new residual is kept. Else that tensor may
// be null, if no thread has more packs than it holds.
struct NothingElse {
  static constexpr bool kKeepsAll = true;
  WEFT_FN void operator()(std::uint32_t, const Pack&) const {}
};

// `casts`: rows are also cast. Each instruction after a row's arrival counts, as the 16 or 32 warps of its block share
// four schedulers. So instances without casts have no code for them, and rows with a thread for every pack need no
// loops (`held` 1). `gamma_f32`: γ is of f32.
template <class R, bool casts, bool gamma_f32 = false>
struct RmsNorm {
  static constexpr DataType kType = R::kType;
  using Cast = Fp8Cast<kType>;
  using Packs = Tensor<typename R::Storage, R::kElements, true>;
  using Squares = NormSquares<R>;
  using Gamma = NormWeights<R, gamma_f32>;
  using PackWeights = typename Gamma::Weights;
  template <class T>
  static constexpr std::uint32_t kUnit = Squares::template kUnit<T>;

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
  // Calls `serve.template operator()<held>()`. `held`: no thread has more packs of a row, and they stay in registers;
  // or kAny.
  static constexpr std::uint32_t kAny = 0;
  template <Team T, class Serve>
  static WEFT_FN auto with_width(T& team, const NormWork& work, Serve serve) {
    const bool single = run_of<T>(work) == 1 && work.row_packs <= team.size();
    return single ? serve.template operator()<1>() : serve.template operator()<kAny>();
  }
  // The same for few threads, each of which holds several packs.
  template <Team T, class Serve>
  static WEFT_FN auto with_more_width(T& team, const NormWork& work, Serve serve) {
    const bool single_runs = run_of<T>(work) == 1;
    if (single_runs && work.row_packs <= 4 * team.size()) return serve.template operator()<4>();
    if (single_runs && work.row_packs <= 8 * team.size()) return serve.template operator()<8>();
    return serve.template operator()<kAny>();
  }
  // Calls `serve(n, i)` for each run of a thread; its first pack is the thread's n-th of the row, and the row's i-th.
  // All threads of the block make the same number of calls, also if i is behind the row's end.
  template <std::uint32_t held, Team T, class Serve>
  static WEFT_FN void each_run(T& team, const NormWork& work, Serve serve) {
    if constexpr (held > 1) {
      WEFT_UNROLL
      for (std::uint32_t n = 0; n < held; ++n) serve(n, n * team.size() + team.thread_rank());
    } else {
      const std::uint32_t run = run_of<T>(work), at_once = team.size() * run;
      std::uint32_t n = 0, begin = 0;
      do {
        serve(n, begin + team.thread_rank() * run);
        n += run;
        begin += at_once;
      } while (held == kAny && begin < work.row_packs);
    }
  }
  template <std::uint32_t held, Team T, class Serve>
  static WEFT_FN void each_pack_of_row(T& team, const NormWork& work, Serve serve) {
    const std::uint32_t run = held != kAny ? 1 : run_of<T>(work);
    each_run<held>(team, work, [&](std::uint32_t n, std::uint32_t i) {
      for (std::uint32_t k = 0; k < run; ++k) serve(n + k, i + k);
    });
  }
  static WEFT_FN Pack added(const Pack& a, const Pack& b) {
    typename R::Accumulator sum{};
    R::begin(sum, a);
    R::add(sum, b);
    return R::finish(sum);
  }
  // The sum of one pack alone, rounded as sums are. With a residual, added() does both.
  static WEFT_FN Pack rounded(const Pack& pack) {
    typename R::Accumulator sum{};
    R::begin(sum, pack);
    return R::finish(sum);
  }
  // Packs whose sums are awaited together: all that a thread holds, or one after the other.
  template <std::uint32_t held>
  static constexpr std::uint32_t kAtOnce = held == kAny ? 1
                                           : held < 4   ? held
                                                        : 4;
  template <std::uint32_t held, Team T, class Serve>
  static WEFT_FN void each_batch(T& team, const NormWork& work, Serve serve) {
    if constexpr (held == kAny) {
      each_pack_of_row<held>(team, work, serve);
    } else {
      WEFT_UNROLL
      for (std::uint32_t n = 0; n < held; n += kAtOnce<held>) serve(n, n * team.size() + team.thread_rank());
    }
  }

  // Weights for this thread's first packs of every row, loaded before the first row is awaited; none if the block has
  // no row. More would take too many registers.
  template <std::uint32_t packs>
  struct FirstWeights {
    static constexpr std::uint32_t kPacks = packs;
    PackWeights pack[packs];
  };
  template <std::uint32_t kept, Team T>
  static WEFT_FN FirstWeights<kept> first_weights(T& team, const NormWork& work, std::uint32_t first_row) {
    const Gamma gamma(work);
    const std::uint32_t run = run_of<T>(work), first = team.thread_rank() * run;
    const std::uint32_t packs = first_row < work.rows ? work.row_packs : 0;
    FirstWeights<kept> weights{};
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kept; ++k) {
      const std::uint32_t i = run == 1 ? first + k * team.size() : first + k;
      if (i < packs) weights.pack[k] = gamma.load(i);
    }
    return weights;
  }
  using Weights = FirstWeights<2>;
  template <Team T>
  static WEFT_FN Weights weights(T& team, const NormWork& work, std::uint32_t first_row) {
    return first_weights<2>(team, work, first_row);
  }

  // Finishes one row. `take(n, i, sums)` gives the row's pack i, this thread's n-th, of the all-reduce's result, and
  // those `team.size()` further on, if there is room for several; or false if the call has failed. Then every thread of
  // the block gets false. `uses`: of scratch memory, counted from 0 in a call. Its halves take turns, so that a late
  // thread still finds the others' values. For a thread that writes to a half again has passed the barrier of the other
  // half.
  // `send(i, pack)` gets the packs of the output, if there is one.
  template <std::uint32_t held, Team T, class FirstWeights, class Take, class Send = NothingElse>
  static WEFT_FN bool finish(T& team, const NormWork& work, std::uint32_t row, const FirstWeights& weights,
                             std::uint32_t& uses, Take take, Send send = {}) {
    constexpr std::uint32_t some = kAtOnce<held>;
    const std::uint32_t packs = work.row_packs;
    const Packs residual(static_cast<const Pack*>(work.residual) + row * work.residual_stride, 0);
    const Packs result(static_cast<Pack*>(work.residual_output) + row * work.residual_output_stride, 0);
    Row<held> mine{};
    bool good = true;
    float* const squares = half(team, uses);
    each_batch<held>(team, work, [&](std::uint32_t n, std::uint32_t i) {
      const auto exists = [&](std::uint32_t k) { return i + k * team.size() < packs; };
      float squared[some] = {};
      if (exists(0) && good) {
        // These loads run while the sums are awaited.
        Pack before[some] = {}, sums[some] = {};
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < some; ++k) {
          if (work.residual != nullptr && (k == 0 || exists(k))) before[k] = residual.load(i + k * team.size());
        }
        good = take(n, i, sums);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < some; ++k) {
          if (k != 0 && !exists(k)) break;
          if (work.residual != nullptr) sums[k] = added(sums[k], before[k]);
          if (Send::kKeepsAll || work.residual_output != nullptr) result.store(i + k * team.size(), sums[k]);
          mine.hold(n + k, sums[k]);
          squared[k] = Squares::of_pack(sums[k]);
        }
      }
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k) {
        const std::uint32_t at = i + k * team.size();
        const float sum = team.sum_of(squared[k], kUnit<T>);
        if (at % kUnit<T> == 0 && at < packs) squares[at / kUnit<T>] = sum;
      }
    });
    if (!team.all(good)) return false;
    mine.factor = factor_of(work, Squares::template total<held == 1>(team, squares, packs));
    write<held>(team, work, row, weights, uses, mine, send);
    return true;
  }

 protected:
  // A thread's part of its row. If a thread may have any number of packs, it holds two, and loads the others again.
  template <std::uint32_t held>
  struct Row {
    static constexpr std::uint32_t kPacks = held < 2 ? 2 : held;
    Pack pack[kPacks];
    float factor;  // 1 / root mean square

    WEFT_FN void hold(std::uint32_t n, const Pack& value) {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kPacks; ++k) {
        if (n == k) pack[k] = value;
      }
    }
  };

  template <Team T>
  static WEFT_FN float* half(T& team, std::uint32_t& uses) {
    return team.scratch() + uses++ % 2 * (T::kScratchWords / 2);
  }

  static WEFT_FN float factor_of(const NormWork& work, float squares) {
    return quotient(1.0f, square_root(squares * work.inverse_columns + work.epsilon));
  }

  // A pack of the normed row, rounded once.
  static WEFT_FN Pack normed(const NormWork& work, const Pack& pack, const PackWeights& gamma, float factor) {
    typename R::Accumulator x{}, weight{};
    R::begin(x, pack);
    Gamma::begin(weight, gamma);
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < R::kElements; ++i) {
      x.value[i] = x.value[i] * factor * (work.gamma_plus_one ? weight.value[i] + 1.0f : weight.value[i]);
    }
    return R::finish(x);
  }

  // Writes the row whose packs the threads hold, and gives it to `send`.
  template <std::uint32_t held, Team T, class FirstWeights, class Send>
  static WEFT_FN void write(T& team, const NormWork& work, std::uint32_t row, const FirstWeights& weights,
                            std::uint32_t& uses, const Row<held>& mine, Send send) {
    if constexpr (held == kAny) {
      write_any(team, work, row, weights, uses, mine, send);
    } else {
      write_held<held>(team, work, row, weights, uses, mine, send);
    }
  }
  // Each step is made for all packs before the next one: they are chains of slow instructions, which then overlap.
  template <std::uint32_t held, Team T, class FirstWeights, class Send>
  static WEFT_FN void write_held(T& team, const NormWork& work, std::uint32_t row, const FirstWeights& weights,
                                 std::uint32_t& uses, const Row<held>& mine, Send send) {
    const std::uint32_t packs = work.row_packs, first = team.thread_rank(), step = team.size();
    const Gamma gamma(work);
    const Packs output(static_cast<Pack*>(work.output) + row * work.output_stride, 0);
    const RowScaling scaling = scaling_of(work);
    Pack made[held];
    float inverse[held] = {};
    WEFT_UNROLL
    for (std::uint32_t n = 0; n < held; ++n) {
      const std::uint32_t i = first + n * step;
      const PackWeights weight = n < FirstWeights::kPacks ? weights.pack[n] : i < packs ? gamma.load(i) : PackWeights{};
      made[n] = normed(work, mine.pack[n], weight, mine.factor);
    }
    if (scaling == RowScaling::fixed) {
      inverse[0] = quotient(1.0f, *work.scale);
    } else if (scaling == RowScaling::per_token) {
      float most = 0;
      WEFT_UNROLL
      for (std::uint32_t n = 0; n < held; ++n) {
        if (first + n * step < packs) most = max_number(most, Cast::largest(made[n]));
      }
      inverse[0] = put_scale_of_row(team, work, row, uses, most);
    } else if (scaling == RowScaling::per_group) {
      float most[held];
      WEFT_UNROLL
      for (std::uint32_t n = 0; n < held; ++n)
        most[n] =
            team.max_of(first + n * step < packs ? Cast::largest(made[n]) : 0.0f, kUnit<T> == 1 ? 1 : kScalePacks);
      WEFT_UNROLL
      for (std::uint32_t n = 0; n < held; ++n) {
        const typename Cast::Scale scale = Cast::scale_for(most[n], work.floor, work.power_of_two);
        inverse[n] = scale.inverse, most[n] = scale.scale;
      }
      WEFT_UNROLL
      for (std::uint32_t n = 0; n < held; ++n) {
        const std::uint32_t i = first + n * step;
        if (i % kScalePacks == 0 && i < packs) put_scale(work, row, i / kScalePacks, most[n]);
      }
    }
    WEFT_UNROLL
    for (std::uint32_t n = 0; n < held; ++n) {
      const std::uint32_t i = first + n * step;
      if (i >= packs) break;
      if (work.output != nullptr) {
        output.store(i, made[n]);
        send(i, made[n]);
      }
      if (scaling != RowScaling::none)
        put_fp8(work, row, i, made[n], scaling == RowScaling::per_group ? inverse[n] : inverse[0]);
    }
  }
  template <Team T, class FirstWeights, class Send>
  static WEFT_FN void write_any(T& team, const NormWork& work, std::uint32_t row, const FirstWeights& weights,
                                std::uint32_t& uses, const Row<kAny>& mine, Send send) {
    const std::uint32_t run = run_of<T>(work), packs = work.row_packs;
    const Packs result(static_cast<Pack*>(work.residual_output) + row * work.residual_output_stride, 0);
    const Gamma gamma(work);
    const Packs output(static_cast<Pack*>(work.output) + row * work.output_stride, 0);
    const auto normed_at = [&](std::uint32_t n, std::uint32_t i) {
      if (n == 0) return normed(work, mine.pack[0], weights.pack[0], mine.factor);
      if (n == 1) return normed(work, mine.pack[1], weights.pack[1], mine.factor);
      return normed(work, result.load(i), gamma.load(i), mine.factor);
    };
    float inverse = scaling_of(work) == RowScaling::fixed ? quotient(1.0f, *work.scale) : 0.0f;
    if (scaling_of(work) == RowScaling::per_token) {
      float most = 0;
      each_pack_of_row<kAny>(team, work, [&](std::uint32_t n, std::uint32_t i) {
        if (i < packs) most = max_number(most, Cast::largest(normed_at(n, i)));
      });
      inverse = put_scale_of_row(team, work, row, uses, most);
    }
    each_run<kAny>(team, work, [&](std::uint32_t n, std::uint32_t i) {
      if (scaling_of(work) == RowScaling::per_group) {
        float most = 0;
        for (std::uint32_t k = 0; k < run; ++k) {
          if (i + k < packs) most = max_number(most, Cast::largest(normed_at(n + k, i + k)));
        }
        const typename Cast::Scale scale =
            Cast::scale_for(team.max_of(most, kUnit<T> == 1 ? 1 : kScalePacks), work.floor, work.power_of_two);
        if (i % kScalePacks == 0 && i < packs) put_scale(work, row, i / kScalePacks, scale.scale);
        inverse = scale.inverse;
      }
      for (std::uint32_t k = 0; k < run && i + k < packs; ++k) {
        const Pack pack = normed_at(n + k, i + k);
        if (work.output != nullptr) {
          output.store(i + k, pack);
          send(i + k, pack);
        }
        if (scaling_of(work) != RowScaling::none) put_fp8(work, row, i + k, pack, inverse);
      }
    });
  }

  // A row's only scale, of the largest of its values that this thread has. Call both in all threads of the block.
  template <Team T>
  static WEFT_FN float put_scale_of_row(T& team, const NormWork& work, std::uint32_t row, std::uint32_t& uses,
                                        float most) {
    const typename Cast::Scale scale = Cast::scale_for(most_of_block(team, uses, most), work.floor, work.power_of_two);
    if (team.thread_rank() == 0) put_scale(work, row, 0, scale.scale);
    return scale.inverse;
  }
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
