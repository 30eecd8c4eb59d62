// Norms rows by few threads: each has a few packs of its row at a time, and loads them again for its second pass. A row
// that stays in registers takes five times the code, which outgrows the instruction cache (docs/notes/0052).
#pragma once

#include <cstdint>

#include "ops/norm/rms_norm.hpp"

namespace weft::detail {

template <class R, bool casts, bool gamma_f32 = false>
struct NormInBatches : protected RmsNorm<R, casts, gamma_f32> {
  using Base = RmsNorm<R, casts, gamma_f32>;
  using Base::added;
  using typename Base::Packs;

  // Finishes one row as RmsNorm::finish does, bit for bit. `take(i, step, sums)` gives the row's packs i, i + step, …,
  // as far as there are any. `send(i, pack)` gets the packs of the output, if there is one.
  template <Team T, class Take, class Send>
  static WEFT_FN void finish(T& team, const NormWork& work, std::uint32_t row, std::uint32_t& uses, Take take,
                             Send send) {
    const Packs residual(static_cast<const Pack*>(work.residual) + row * work.residual_stride, 0);
    const Packs result(static_cast<Pack*>(work.residual_output) + row * work.residual_output_stride, 0);
    float* const squares = Base::half(team, uses);
    each_batch(team, work, [&](std::uint32_t first, std::uint32_t step) {
      Pack before[kBatch<T>] = {}, sums[kBatch<T>] = {};
      float squared[kBatch<T>] = {};
      if (first < work.row_packs) {
        const auto each = [&](auto serve) { each_of<T>(work, first, step, serve); };
        if (work.residual != nullptr) each([&](std::uint32_t k, std::uint32_t i) { before[k] = residual.load(i); });
        take(first, step, sums);
        each([&](std::uint32_t k, std::uint32_t i) {
          if (work.residual != nullptr) sums[k] = added(sums[k], before[k]);
          result.store(i, sums[k]);
          squared[k] = Base::Squares::of_pack(sums[k]);
        });
      }
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch<T>; ++k) {
        const std::uint32_t i = first + k * step;
        const float sum = team.sum_of(squared[k], kUnit<T>);
        if (i % kUnit<T> == 0 && i < work.row_packs) squares[i / kUnit<T>] = sum;
      }
    });
    team.sync();
    write(team, work, row, uses,
          Base::factor_of(work, Base::Squares::template total<false>(team, squares, work.row_packs)), send);
  }

 private:
  template <class T>
  static constexpr std::uint32_t kUnit = Base::template kUnit<T>;
  // Packs of a thread at a time. If lanes cannot read each other's values, they are neighbours, and share a scale.
  template <class T>
  static constexpr std::uint32_t kBatch = kUnit<T> == 1 ? kScalePacks : 4;

  // Calls `serve(first, step)` for each batch: packs first, first + step, … All threads make the same number of calls.
  template <Team T, class Serve>
  static WEFT_FN void each_batch(T& team, const NormWork& work, Serve serve) {
    constexpr bool neighbours = kUnit<T> == 1;
    WEFT_NO_UNROLL
    for (std::uint32_t begin = 0; begin < work.row_packs; begin += kBatch<T> * team.size())
      serve(begin + team.thread_rank() * (neighbours ? kBatch<T> : 1), neighbours ? 1 : team.size());
  }
  // Calls `serve(k, i)` for the packs of a batch that exist.
  template <class T, class Serve>
  static WEFT_FN void each_of(const NormWork& work, std::uint32_t first, std::uint32_t step, Serve serve) {
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kBatch<T>; ++k) {
      if (first + k * step < work.row_packs) serve(k, first + k * step);
    }
  }

  template <Team T, class Send>
  static WEFT_FN void write(T& team, const NormWork& work, std::uint32_t row, std::uint32_t& uses, float factor,
                            Send send) {
    const Packs result(static_cast<Pack*>(work.residual_output) + row * work.residual_output_stride, 0);
    const Packs output(static_cast<Pack*>(work.output) + row * work.output_stride, 0);
    const typename Base::Gamma gamma(work);
    const RowScaling scaling = Base::scaling_of(work);
    using Cast = typename Base::Cast;
    using Scale = typename Cast::Scale;
    const auto load = [&](std::uint32_t first, std::uint32_t step, Pack(&made)[kBatch<T>]) {
      typename Base::PackWeights weights[kBatch<T>] = {};
      each_of<T>(work, first, step,
                 [&](std::uint32_t k, std::uint32_t i) { made[k] = result.load(i), weights[k] = gamma.load(i); });
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch<T>; ++k) made[k] = Base::normed(work, made[k], weights[k], factor);
    };
    float inverse = scaling == RowScaling::fixed ? quotient(1.0f, *work.scale) : 0.0f;
    if (scaling == RowScaling::per_token) {
      float most = 0;
      each_batch(team, work, [&](std::uint32_t first, std::uint32_t step) {
        Pack made[kBatch<T>] = {};
        load(first, step, made);
        each_of<T>(work, first, step,
                   [&](std::uint32_t k, std::uint32_t) { most = max_number(most, Cast::largest(made[k])); });
      });
      inverse = Base::put_scale_of_row(team, work, row, uses, most);
    }
    each_batch(team, work, [&](std::uint32_t first, std::uint32_t step) {
      Pack made[kBatch<T>] = {};
      float inverses[kBatch<T>] = {};
      load(first, step, made);
      if (scaling == RowScaling::per_group) {
        const auto put = [&](std::uint32_t i, float most) {
          const Scale scale = Cast::scale_for(most, work.floor, work.power_of_two);
          if (i % kScalePacks == 0 && i < work.row_packs) Base::put_scale(work, row, i / kScalePacks, scale.scale);
          return scale.inverse;
        };
        float most[kBatch<T>] = {};
        each_of<T>(work, first, step, [&](std::uint32_t k, std::uint32_t) { most[k] = Cast::largest(made[k]); });
        if constexpr (kUnit<T> == 1) {
          for (std::uint32_t k = 1; k < kBatch<T>; ++k) most[0] = max_number(most[0], most[k]);
          most[0] = put(first, most[0]);
          for (std::uint32_t k = 0; k < kBatch<T>; ++k) inverses[k] = most[0];
        } else {
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kBatch<T>; ++k)
            inverses[k] = put(first + k * step, team.max_of(most[k], kScalePacks));
        }
      }
      each_of<T>(work, first, step, [&](std::uint32_t k, std::uint32_t i) {
        if (work.output != nullptr) {
          output.store(i, made[k]);
          send(i, made[k]);
        }
        if (scaling != RowScaling::none)
          Base::put_fp8(work, row, i, made[k], scaling == RowScaling::per_group ? inverses[k] : inverse);
      });
    });
  }
};

}  // namespace weft::detail
