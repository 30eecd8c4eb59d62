#include "bench/layer_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "numeric/numeric.hpp"

namespace weft::cli {
namespace {

// e4m3 of small numbers, none of them NaN.
std::vector<std::uint8_t> random_numbers(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> numbers(count);
  for (std::uint8_t& number : numbers) number = static_cast<std::uint8_t>((random() & 0x80) | (random() % 0x40));
  return numbers;
}

struct PlaceOfRow {
  std::size_t expert, place;
};

std::string check_row(RankDevice& device, const ExpertGemm& gemm, const ExpertWeights& weights, const PlaceOfRow& at) {
  const std::size_t k = gemm.input_columns, n = gemm.output_columns, row = at.expert * gemm.capacity + at.place;
  const auto get = [&]<class T>(T, const void* from, std::size_t first, std::size_t count) {
    std::vector<T> data(count);
    device.download(data.data(), static_cast<const T*>(from) + first, count * sizeof(T));
    return data;
  };
  const auto in = get(std::uint8_t{}, gemm.input, row * k, k);
  const auto out = get(std::uint16_t{}, gemm.output, row * n, n);
  const auto& number = e4m3_numbers();
  for (const std::size_t to : {std::size_t{0}, std::size_t{1}, n / 2 + 5, n - 1}) {
    const auto numbers = get(std::uint8_t{}, weights.numbers, (at.expert * n + to) * k, k);
    double sum = 0, most = 0;
    float scale = 0, weight_scale = 0;
    for (std::size_t i = 0; i < k; ++i) {
      const std::size_t group = i / 128;
      if (i % 128 == 0) {
        scale = get(float{}, gemm.input_scales, row * (k / 128) + group, 1)[0];
        weight_scale =
            get(float{}, weights.scales, at.expert * (n / 128) * (k / 128) + group * (n / 128) + to / 128, 1)[0];
      }
      const double term = double{number[in[i]]} * scale * number[numbers[i]] * weight_scale;
      sum += term;
      most += std::abs(term);
    }
    const double got = detail::bf16_to_f32(out[to]);
    if (!(std::abs(got - sum) <= most * 0x1p-9 + std::abs(sum) * 0x1p-8))
      return fmt::format("{} GEMM, expert {}, row {}, column {}: {} instead of {}",
                         gemm.which == ExpertGemm::Which::up ? "up" : "down", at.expert, at.place, to, got, sum);
  }
  return {};
}

}  // namespace

LayerWeights make_weights(RankDevice& device, const WeightsShape& shape, std::uint32_t seed) {
  const std::size_t up = std::size_t{2} * shape.intermediate * shape.hidden, down = up / 2;
  const std::size_t all = (up + down) * shape.experts;
  constexpr std::size_t kBlock = std::size_t{16} << 20;
  const std::vector<std::uint8_t> numbers = random_numbers(std::min(kBlock, all), seed);
  std::vector<float> scales(all / 128 / 128);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = (1.0f + static_cast<float>(i % 7) / 8) / 64.0f;
  auto* const memory = static_cast<std::byte*>(device.allocate(all));
  for (std::size_t at = 0; at < all; at += numbers.size())
    device.upload(memory + at, numbers.data(), std::min(numbers.size(), all - at));
  auto* const of_scales = static_cast<float*>(device.allocate(scales.size() * sizeof(float)));
  device.upload(of_scales, scales.data(), scales.size() * sizeof(float));
  return {.up = {memory, of_scales}, .down = {memory + up * shape.experts, of_scales + up / 128 / 128 * shape.experts}};
}

std::string check_gemm(RankDevice& device, const ExpertGemm& gemm, const ExpertWeights& weights,
                       std::uint32_t experts) {
  std::vector<std::int32_t> counts(experts);
  device.download(counts.data(), gemm.counts, counts.size() * 4);
  const auto found = std::ranges::find_if(counts, [](std::int32_t count) { return count > 0; });
  if (found == counts.end()) return {};
  const auto expert = static_cast<std::size_t>(found - counts.begin());
  for (const std::uint32_t place : {0u, std::min(static_cast<std::uint32_t>(*found), gemm.capacity) - 1}) {
    const std::string wrong = check_row(device, gemm, weights, {expert, place});
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace weft::cli
