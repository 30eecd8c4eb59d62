// The weights of a row, pack by pack: as many of them as a pack of the row has numbers. As f32 they take two packs.
// The choice is made at run time, for all threads alike, so γ of 16 bits pays for one branch.
#pragma once

#include <cstdint>

#include "numeric/numeric.hpp"
#include "numeric/tensor.hpp"
#include "ops/norm/norm_work.hpp"
#include "team/team.hpp"

namespace weft::detail {

template <class R>
struct NormWeights {
  using Packs = Tensor<typename R::Storage, R::kElements, true>;
  using Values = typename R::Accumulator;

  // Weights for this thread's first packs of every row, loaded before the first row is awaited. More would take too
  // many registers. f32: for the first half of these packs, each as two packs behind each other.
  template <std::uint32_t packs>
  struct First {
    static constexpr std::uint32_t kPacks = packs;
    Pack pack[packs];
  };
  // `run`: neighbouring packs of one thread. None are loaded if the block has no row.
  template <std::uint32_t kept, Team T>
  static WEFT_FN First<kept> load(T& team, const NormWork& work, std::uint32_t first_row, std::uint32_t run) {
    const Packs gamma(work.gamma, 0);
    const std::uint32_t first = team.thread_rank() * run, packs = first_row < work.rows ? work.row_packs : 0;
    First<kept> weights{};
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kept; ++k) {
      const std::uint32_t n = work.gamma_f32 ? k / 2 : k;
      const std::uint32_t i = run == 1 ? first + n * team.size() : first + n;
      if (i < packs) weights.pack[k] = gamma.load(work.gamma_f32 ? 2 * i + k % 2 : i);
    }
    return weights;
  }

  // Weights of the row's pack i, this thread's n-th; zeros behind the row's end.
  template <std::uint32_t kept>
  static WEFT_FN Values at(const NormWork& work, const First<kept>& first, std::uint32_t n, std::uint32_t i) {
    static_assert(R::kElements == 8);
    const Packs gamma(work.gamma, 0);
    Values values{};
    Pack half[2] = {};
    if (work.gamma_f32) {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < 2; ++k) {
        if (n >= kept / 2 && i < work.row_packs) half[k] = gamma.load(2 * i + k);
        WEFT_UNROLL
        for (std::uint32_t own = 0; own < kept / 2; ++own) {
          if (n == own) half[k] = first.pack[2 * own + k];
        }
      }
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < R::kElements; ++k) values.value[k] = bits_of<float>(half[k / 4].word[k % 4]);
    } else {
      if (n >= kept && i < work.row_packs) half[0] = gamma.load(i);
      WEFT_UNROLL
      for (std::uint32_t own = 0; own < kept; ++own) {
        if (n == own) half[0] = first.pack[own];
      }
      R::begin(values, half[0]);
    }
    return values;
  }
};

}  // namespace weft::detail
