// γ by packs: for each pack of a row as many weights as it has numbers. As f32 they are two packs of memory, which
// takes registers. So γ of f32 has kernels of its own, and those of 16 bits pay nothing for it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "numeric/numeric.hpp"
#include "numeric/tensor.hpp"
#include "ops/norm/norm_work.hpp"

namespace weft::detail {

template <class R, bool f32>
struct NormWeights {
  struct Wide {
    Pack half[2];
  };
  using Weights = std::conditional_t<f32, Wide, Pack>;  // of a pack of the row
  static_assert(R::kElements == 8);

  explicit WEFT_FN NormWeights(const NormWork& work) : gamma(work.gamma, 0) {}

  // The weights of the row's pack i.
  WEFT_FN Weights load(std::uint32_t i) const {
    if constexpr (f32) {
      return {{gamma.load(2 * i), gamma.load(2 * i + 1)}};
    } else {
      return gamma.load(i);
    }
  }
  static WEFT_FN void begin(typename R::Accumulator& values, const Weights& weights) {
    if constexpr (f32) {
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < R::kElements; ++i)
        values.value[i] = bits_of<float>(weights.half[i / 4].word[i % 4]);
    } else {
      R::begin(values, weights);
    }
  }

 private:
  Tensor<typename R::Storage, R::kElements, true> gamma;
};

}  // namespace weft::detail
