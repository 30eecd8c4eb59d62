// The norm alone, for rows whose sums earlier kernels have put into the new residual (ops/norm/norm_steps.hpp). Other
// ranks do not matter: there is neither an epoch nor a header, and no block waits.
#pragma once

#include <cstdint>

#include "ops/norm/rms_norm.hpp"
#include "protocol/one_rank.hpp"

namespace weft::detail {

template <class R, bool gamma_f32 = false>
struct NormRows {
  using Work = NormWork;
  using Norm = RmsNorm<R, true, gamma_f32>;
  using Packs = typename Norm::Packs;
  static constexpr int kMostThreads = kMostNormThreads;

  // By all threads of all blocks. False: the call has failed.
  template <Team T>
  static WEFT_FN bool run(T& team, const Call& call, const NormWork& work) {
    if (!may_begin(team, call)) return false;
    Norm::with_width(team, work, [&]<std::uint32_t held>() {
      const auto weights = Norm::weights(team, work, team.block_rank());
      std::uint32_t uses = 0;
      for (std::uint32_t row = team.block_rank(); row < work.rows; row += team.blocks()) {
        const Packs sums(static_cast<const Pack*>(work.residual_output) + row * work.residual_output_stride, 0);
        const auto take = [&](std::uint32_t, std::uint32_t i, Pack(&sum)[1]) {
          sum[0] = sums.load(i);
          return true;
        };
        static_cast<void>(Norm::template finish<held>(team, work, row, weights, uses, take));
      }
    });
    return true;
  }
};

}  // namespace weft::detail
