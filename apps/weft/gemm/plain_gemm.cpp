#include <array>
#include <cmath>
#include <vector>

#include "gemm/grouped_gemm.hpp"
#include "numeric/numeric.hpp"

namespace weft::cli {
namespace {

class PlainGemms final : public ExpertGemms {
 public:
  void enqueue(const ExpertGemm& gemm, const ExpertWeights& weights) override {
    for (std::uint32_t e = gemm.first_expert; e < gemm.first_expert + gemm.experts; ++e) {
      for (std::int32_t place = 0; place < gemm.counts[e]; ++place)
        make(gemm, weights, e, static_cast<std::uint32_t>(place));
    }
  }

 private:
  static void make(const ExpertGemm& gemm, const ExpertWeights& weights, std::uint32_t expert, std::uint32_t place) {
    const std::size_t n = gemm.output_columns, row = std::size_t{expert} * gemm.capacity + place;
    const bool scaled = weights.type() == GemmType::fp8;
    const std::vector<float> input = scaled ? scaled_row(gemm, row) : bf16_row(gemm, row);
    auto* const output = static_cast<std::uint16_t*>(gemm.output) + row * n;
    for (std::size_t to = 0; to < n; ++to)
      output[to] = detail::f32_to_bf16(scaled ? scaled_sum(input, weights, expert, n, to)
                                              : bf16_sum(input, weights, std::size_t{expert} * n + to));
  }

  static std::vector<float> scaled_row(const ExpertGemm& gemm, std::size_t row) {
    const std::size_t k = gemm.input_columns;
    const auto* const input = static_cast<const std::uint8_t*>(gemm.input) + row * k;
    const auto* const scales = static_cast<const float*>(gemm.input_scales) + row * (k / 128);
    const float* const number = e4m3_numbers().data();
    std::vector<float> values(k);
    for (std::size_t i = 0; i < k; ++i) values[i] = number[input[i]] * scales[i / 128];
    return values;
  }
  static std::vector<float> bf16_row(const ExpertGemm& gemm, std::size_t row) {
    const auto* const input = static_cast<const std::uint16_t*>(gemm.input) + row * gemm.input_columns;
    std::vector<float> values(gemm.input_columns);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = detail::bf16_to_f32(input[i]);
    return values;
  }

  static float scaled_sum(const std::vector<float>& input, const ExpertWeights& weights, std::size_t expert,
                          std::size_t n, std::size_t to) {
    const std::size_t k = input.size();
    const auto* const numbers = static_cast<const std::uint8_t*>(weights.numbers) + (expert * n + to) * k;
    const float* const number = e4m3_numbers().data();
    // As the scales of CUTLASS's weights: neighbouring output columns lie side by side.
    const float* const of = weights.scales + expert * (n / 128) * (k / 128) + to / 128;
    const float* const in = input.data();
    float sum = 0;
    for (std::size_t from = 0; from < k; from += 128) {
      const float scale = of[from / 128 * (n / 128)];
      for (std::size_t i = from; i < from + 128; ++i) sum += in[i] * number[numbers[i]] * scale;
    }
    return sum;
  }
  static float bf16_sum(const std::vector<float>& input, const ExpertWeights& weights, std::size_t column) {
    const auto* const numbers = static_cast<const std::uint16_t*>(weights.numbers) + column * input.size();
    float sum = 0;
    for (std::size_t i = 0; i < input.size(); ++i) sum += input[i] * detail::bf16_to_f32(numbers[i]);
    return sum;
  }
};

}  // namespace

const std::array<float, 256>& e4m3_numbers() {
  static const std::array<float, 256> all = [] {
    std::array<float, 256> numbers{};
    for (std::size_t bits = 0; bits < numbers.size(); ++bits) {
      const int exponent = static_cast<int>(bits >> 3 & 15), fraction = static_cast<int>(bits & 7);
      const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                            : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
      numbers[bits] = (bits & 0x80) != 0 ? -magnitude : magnitude;
    }
    return numbers;
  }();
  return all;
}

std::unique_ptr<ExpertGemms> open_plain_gemms() {
  return std::make_unique<PlainGemms>();
}

}  // namespace weft::cli
