// All-reduces with residual and norm on CPU ranks: weights of f32 and floors of scales, against numbers worked out by
// hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/fused.hpp"

namespace weft::test {
namespace {

// 1 + γ lies beside the middle of two numbers of bf16. With γ as bf16 it would be that middle.
TEST(RmsNormWeights, OfF32AreUsedAsTheyAre) {
  expect_all_well(run_world(2, cpu_config(), [](Communicator& communicator, int) {
    alignas(16) static thread_local std::uint16_t ones[264], sums[264], normed[264];
    alignas(16) static thread_local float gamma[264];
    std::ranges::fill(ones, std::uint16_t{0x3f00});  // 0.5, of each of two ranks
    for (const bool plus_one : {false, true}) {
      for (std::size_t i = 0; i < std::size(gamma); ++i)
        gamma[i] = (plus_one ? 0 : 1) + (i % 2 == 0 ? 0x1p-8f + 0x1p-20f : 0x1p-8f - 0x1p-20f);
      all_reduce_rms_norm(communicator, {.input = ones,
                                         .residual_output = sums,
                                         .gamma = gamma,
                                         .output = normed,
                                         .tokens = 1,
                                         .hidden = std::size(ones),
                                         .epsilon = 0,
                                         .gamma_plus_one = plus_one,
                                         .gamma_f32 = true});
      for (std::size_t i = 0; i < std::size(normed); ++i) ASSERT_EQ(normed[i], i % 2 == 0 ? 0x3f81 : 0x3f80) << i;
    }
  }));
}

// Rows of zeros, and rows whose numbers are 2^-20.
TEST(RmsNormScales, AreOfTheFloorAtLeast) {
  expect_all_well(run_world(2, cpu_config(), [](Communicator& communicator, int) {
    for (const Fp8Scaling scaling : {Fp8Scaling::per_token, Fp8Scaling::per_128_columns}) {
      for (const float floor : {0x1p-20f, 1e-10f, 1e-30f, 1.0f / 512, 448.0f}) {
        alignas(16) static thread_local std::uint16_t input[3][128], sums[3][128], gamma[128];
        alignas(16) static thread_local std::uint8_t rows[3][128];
        float scales[3];
        std::uint8_t exponents[3];
        // γ is 2^-20, and a row of equal numbers has a factor of 1 by them.
        std::ranges::fill(gamma, std::uint16_t{0x3580});
        std::ranges::fill(input[1], std::uint16_t{0x3f80});
        std::ranges::fill(input[2], std::uint16_t{0x4000});
        AllReduceRmsNormArgs args{.input = input,
                                  .residual_output = sums,
                                  .gamma = gamma,
                                  .fp8 = {.rows = rows, .scaling = scaling, .scales = scales, .floor = floor},
                                  .tokens = 3,
                                  .hidden = 128,
                                  .epsilon = 1e-30f};
        all_reduce_rms_norm(communicator, args);
        args.fp8.scales = exponents;
        args.fp8.scale_type = ScaleType::ue8m0;
        all_reduce_rms_norm(communicator, args);
        for (int row = 0; row < 3; ++row) {
          const float amax = std::max(row == 0 ? 0.0f : 0x1p-20f, floor);
          ASSERT_EQ(scales[row], amax / 448.0f) << floor;
          ASSERT_EQ(std::ldexp(1.0f, exponents[row] - 127), std::exp2(std::ceil(std::log2(amax / 448.0f)))) << floor;
        }
      }
    }
  }));
}

}  // namespace
}  // namespace weft::test
