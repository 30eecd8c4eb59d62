// Impossible norms.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "support/norms.hpp"

namespace weft::test {

std::vector<RejectedNorm> rejected_norms(std::byte* memory) {
  std::vector<RejectedNorm> all;
  const AllReduceRmsNormArgs good{.input = memory,
                                  .residual = memory + 1024,
                                  .residual_output = memory + 2048,
                                  .gamma = memory + 3072,
                                  .output = memory + 4096,
                                  .fp8 = {.rows = memory + 5120, .scales = memory + 6144},
                                  .tokens = 2,
                                  .hidden = 64};
  const auto add = [&](const std::string& part, auto&& spoil) {
    AllReduceRmsNormArgs args = good;
    spoil(args);
    all.push_back({part, args});
  };
  for (const std::size_t hidden : {std::size_t{0}, std::size_t{4}, std::size_t{12}, std::size_t{65'544}, SIZE_MAX}) {
    add(fmt::format("hidden: {} is not", hidden), [&](auto& a) { a.hidden = hidden; });
  }
  add("hidden: 64 is not a multiple of 128", [](auto& a) { a.fp8.scaling = Fp8Scaling::per_128_columns; });
  add("tokens: 18446744073709551615 is not between 0 and 2^31", [](auto& a) { a.tokens = SIZE_MAX; });
  for (const DataType type : {DataType::f32, DataType::i32, static_cast<DataType>(9)}) {
    const int number = static_cast<int>(type);
    add(fmt::format("type: {} is neither bf16 nor f16", number < 4 ? std::string(name(type)) : std::to_string(number)),
        [&](auto& a) { a.type = type; });
  }
  for (const Algorithm algorithm : {Algorithm::pipelined, Algorithm::nccl, static_cast<Algorithm>(9)}) {
    add(" is not automatic, one-shot or two-shot", [&](auto& a) { a.algorithm = algorithm; });
  }
  for (const float epsilon : {-1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    add(fmt::format("epsilon: {} is not a number between 0 and 1e30", epsilon), [&](auto& a) { a.epsilon = epsilon; });
  }
  add("input: null", [](auto& a) { a.input = nullptr; });
  add("residual_output: null", [](auto& a) { a.residual_output = nullptr; });
  add("gamma: null", [](auto& a) { a.gamma = nullptr; });
  add("output: null, and no fp8.rows", [](auto& a) { a.output = nullptr, a.fp8.rows = nullptr; });
  add("fp8.scales: null", [](auto& a) { a.fp8.scales = nullptr; });
  add("fp8.scale: null", [](auto& a) { a.fp8.scaling = Fp8Scaling::fixed; });
  add("fp8.scaling: 3 is not fixed, per token or per 128 columns",
      [](auto& a) { a.fp8.scaling = static_cast<Fp8Scaling>(3); });
  add("fp8.scale_type: 2 is not f32 or ue8m0", [](auto& a) { a.fp8.scale_type = static_cast<ScaleType>(2); });
  for (const float floor : {0.0f, -1.0f, 9e-31f, 449.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    add(fmt::format("fp8.floor: {} is not a number between 1e-30 and 448", floor),
        [&](auto& a) { a.fp8.floor = floor; });
  }
  add("input: ", [&](auto& a) { a.input = memory + 8; });
  add("residual: ", [&](auto& a) { a.residual = memory + 1026; });
  add("residual_output: ", [&](auto& a) { a.residual_output = memory + 2056; });
  add("gamma: ", [&](auto& a) { a.gamma = memory + 3074; });
  add("gamma: ", [&](auto& a) { a.gamma = memory + 3080, a.gamma_f32 = true; });
  add("output: ", [&](auto& a) { a.output = memory + 4100; });
  add("fp8.rows: ", [&](auto& a) { a.fp8.rows = memory + 5124; });
  add("fp8.scales: ", [&](auto& a) { a.fp8.scales = memory + 6146; });
  add("input_stride: 68 elements", [](auto& a) { a.input_stride = 68; });
  add("input_stride: 112 bytes", [](auto& a) { a.input_stride = 56; });
  add("residual_stride: 68 elements", [](auto& a) { a.residual_stride = 68; });
  add("residual_output_stride: 68 elements", [](auto& a) { a.residual_output_stride = 68; });
  add("output_stride: 68 elements", [](auto& a) { a.output_stride = 68; });
  add("fp8.stride: 68 bytes", [](auto& a) { a.fp8.stride = 68; });
  add("output: overlaps input", [&](auto& a) { a.output = memory + 128; });
  add("output: overlaps input", [&](auto& a) { a.output = memory, a.output_stride = 72; });
  add("residual_output: overlaps residual", [&](auto& a) { a.residual_output = memory + 1040; });
  add("residual_output: overlaps input", [&](auto& a) { a.residual_output = memory; });
  add("output: overlaps residual_output", [&](auto& a) { a.output = memory + 2048; });
  add("fp8.rows: overlaps residual", [&](auto& a) { a.fp8.rows = memory + 1024; });
  // Every block reads γ and writes scales.
  add("output: overlaps gamma", [&](auto& a) { a.gamma = memory + 4096 + 128; });
  add("output: overlaps gamma", [&](auto& a) { a.gamma = memory + 4096 - 240, a.gamma_f32 = true; });
  add("residual_output: overlaps gamma", [&](auto& a) { a.gamma = memory + 2048 - 112; });
  add("fp8.scales: overlaps input", [&](auto& a) { a.fp8.scales = memory + 252; });
  add("fp8.scales: overlaps gamma", [&](auto& a) { a.fp8.scales = memory + 3072 - 4; });
  add("fp8.scales: overlaps residual",
      [&](auto& a) { a.fp8.scales = memory + 1023, a.fp8.scale_type = ScaleType::ue8m0; });
  add("fp8.rows: overlaps fp8.scales", [&](auto& a) { a.fp8.scales = memory + 5120 - 4; });
  add("output: overlaps fp8.scale ", [&](auto& a) {
    a.fp8.scaling = Fp8Scaling::fixed, a.fp8.scale = reinterpret_cast<const float*>(memory + 4096 + 252);
  });
  add("fp8.scale_token_stride, scale_group_stride: 1099511627776 and 0 lead past 2^40 scales",
      [](auto& a) { a.fp8.scale_token_stride = std::size_t{1} << 40; });
  struct Strides {
    std::size_t token, group;
  };
  for (const Strides strides : {Strides{1, 0}, {3, 3}, {0, 2}}) {
    add(fmt::format("fp8.scale_token_stride, scale_group_stride: {} and {} put several scales in one place",
                    strides.token, strides.group),
        [strides](auto& a) {
          a.hidden = 256;
          a.fp8.scaling = Fp8Scaling::per_128_columns;
          a.fp8.scale_token_stride = strides.token;
          a.fp8.scale_group_stride = strides.group;
        });
  }
  add("launch.blocks: 1 ", [](auto& a) { a.launch.blocks = 1; });
  add("launch.threads: 33 ", [](auto& a) { a.launch.threads = 33; });
  add("launch.threads: 1056 ", [](auto& a) { a.launch.threads = 1056; });
  // bf16 may have so many threads on two or four ranks, but f16's instance has no registers for them.
  add("launch.threads: 544 is not 0 or a multiple of 32 between 32 and 512", [](auto& a) {
    a.type = DataType::f16;
    a.launch.threads = 544;
  });
  return all;
}

}  // namespace weft::test
