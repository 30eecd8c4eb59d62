#include "bench/layer_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "numeric/numeric.hpp"

namespace weft::cli {
namespace {

// Small numbers, none of them NaN.
std::vector<std::uint8_t> random_e4m3(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> numbers(count);
  for (std::uint8_t& number : numbers) number = static_cast<std::uint8_t>((random() & 0x80) | (random() % 0x40));
  return numbers;
}
std::vector<std::uint16_t> random_bf16(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint16_t> numbers(count);
  for (std::uint16_t& number : numbers)
    number = detail::f32_to_bf16((static_cast<float>(random() % 2001) - 1000) / 32000.0f);
  return numbers;
}

// Uploads `numbers` again and again, until `count` of them are there.
template <class T>
void fill(RankDevice& device, std::byte* memory, std::size_t count, const std::vector<T>& numbers) {
  for (std::size_t at = 0; at < count; at += numbers.size())
    device.upload(memory + at * sizeof(T), numbers.data(), std::min(numbers.size(), count - at) * sizeof(T));
}

template <class T>
std::vector<T> downloaded(RankDevice& device, const void* from, std::size_t first, std::size_t count) {
  std::vector<T> data(count);
  device.download(data.data(), static_cast<const T*>(from) + first, count * sizeof(T));
  return data;
}

std::vector<float> numbers_of(RankDevice& device, GemmType type, const void* from, std::size_t first,
                              std::size_t count) {
  std::vector<float> numbers(count);
  if (type == GemmType::fp8)
    std::ranges::transform(downloaded<std::uint8_t>(device, from, first, count), numbers.begin(),
                           [](std::uint8_t bits) { return e4m3_numbers()[bits]; });
  else
    std::ranges::transform(downloaded<std::uint16_t>(device, from, first, count), numbers.begin(), detail::bf16_to_f32);
  return numbers;
}

struct PlaceOfRow {
  std::size_t expert, place;
};

std::string check_row(RankDevice& device, const ExpertGemm& gemm, const ExpertWeights& weights, const PlaceOfRow& at) {
  const std::size_t k = gemm.input_columns, n = gemm.output_columns, row = at.expert * gemm.capacity + at.place;
  const bool scaled = weights.type() == GemmType::fp8;
  const auto in = numbers_of(device, weights.type(), gemm.input, row * k, k);
  const auto out = downloaded<std::uint16_t>(device, gemm.output, row * n, n);
  for (const std::size_t to : {std::size_t{0}, std::size_t{1}, std::min(n / 2 + 5, n - 1), n - 1}) {
    const auto numbers = numbers_of(device, weights.type(), weights.numbers, (at.expert * n + to) * k, k);
    double sum = 0, most = 0;
    float scale = 1, weight_scale = 1;
    for (std::size_t i = 0; i < k; ++i) {
      const std::size_t group = i / 128;
      if (scaled && i % 128 == 0) {
        scale = downloaded<float>(device, gemm.input_scales, row * (k / 128) + group, 1)[0];
        weight_scale = downloaded<float>(device, weights.scales,
                                         at.expert * (n / 128) * (k / 128) + group * (n / 128) + to / 128, 1)[0];
      }
      const double term = double{in[i]} * scale * numbers[i] * weight_scale;
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
  auto* const memory = static_cast<std::byte*>(device.allocate(all * bytes_of(shape.type)));
  if (shape.type == GemmType::bf16) {
    fill(device, memory, all, random_bf16(std::min(kBlock, all), seed));
    return {.up = {.numbers = memory}, .down = {.numbers = memory + up * shape.experts * bytes_of(shape.type)}};
  }
  fill(device, memory, all, random_e4m3(std::min(kBlock, all), seed));
  std::vector<float> scales(all / 128 / 128);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = (1.0f + static_cast<float>(i % 7) / 8) / 64.0f;
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
