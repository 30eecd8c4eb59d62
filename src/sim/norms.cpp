// All-reduces with residual and norm as calls of a program: their tensors, and what must come out.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "algorithms/rms_norm.hpp"
#include "sim/all_reduce.hpp"
#include "sim/move_kernels.hpp"

namespace weft::sim {
namespace {

using detail::Element;
constexpr DataType kType = DataType::bf16;

// Of at most 32: neighbours first.
float tree(std::vector<float> sums) {
  sums.resize(32);
  for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
    for (std::size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  }
  return sums[0];
}
// Of the squares of a row's packs, of at most 32 segments (algorithms/rms_norm.hpp).
float sum_of_squares(const std::vector<float>& packs) {
  std::vector<float> segments;
  for (auto begin = packs.begin(); begin != packs.end();) {
    const auto end = begin + std::min<std::ptrdiff_t>(detail::kSegmentPacks, packs.end() - begin);
    segments.push_back(tree({begin, end}));
    begin = end;
  }
  return tree(segments);
}

float value(std::uint32_t bits) {
  return Element<kType>::widen(static_cast<std::uint16_t>(bits));
}

}  // namespace

// Bytes of a rank's tensors, one behind the other, with a guard of a pack in front of each and behind the last. In
// place, the output is the input, and the residual's output the residual.
void AllReduceProgram::fill_norm(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.call(call, rank);
  const auto& members = world_.groups()[spec.group];
  const std::uint64_t columns = spec.count, elements = spec.rows * columns;
  const std::size_t bytes = elements * 2, step = bytes + 16;
  const std::size_t tensors_in_call = spec.in_place ? 2 : 4;
  auto* const memory = reinterpret_cast<std::byte*>(
      make_tensors(call, rank, 32 + tensors_in_call * step + columns * 2 + 16 + bytes / 2 + 16 + spec.rows * 4).data());
  Tensors& t = tensors(call, rank);
  const std::size_t input = (16 - reinterpret_cast<std::uintptr_t>(memory) % 16) % 16 + 16;
  const std::size_t residual = input + step;
  const std::size_t output = spec.in_place ? input : residual + step;
  const std::size_t residual_output = spec.in_place ? residual : output + step;
  const std::size_t gamma = input + tensors_in_call * step;
  const std::size_t fp8 = gamma + columns * 2 + 16, scales = fp8 + bytes / 2 + 16;
  t.output_offset = output;

  const auto put = [](std::vector<std::uint32_t>& words, std::size_t at, std::uint32_t value, std::size_t size) {
    std::memcpy(reinterpret_cast<std::byte*>(words.data()) + at, &value, size);
  };
  const auto bits = [&](unsigned what, unsigned member, std::uint64_t i) {
    return element_bits(setup_.payload, kType, call * 8 + what, member, i);
  };
  for (std::uint64_t i = 0; i < elements; ++i) {
    put(t.initial, input + i * 2, bits(0, rank, i), 2);
    put(t.initial, residual + i * 2, bits(1, 0, i), 2);
  }
  for (std::uint64_t i = 0; i < columns; ++i) put(t.initial, gamma + i * 2, bits(2, 0, i), 2);
  t.expected = t.initial;
  for (std::uint64_t row = 0; row < spec.rows && !world_.stale(call); ++row) {
    std::vector<float> sums(columns / 8), x, y;
    for (std::uint64_t i = 0; i < columns; ++i) {
      const std::uint64_t at = row * columns + i;
      std::vector<std::uint32_t> terms;
      for (const unsigned member : members) terms.push_back(bits(0, member, at));
      const std::uint32_t sum = reduced(kType, ReduceOp::sum, terms);
      const std::uint32_t added = reduced(kType, ReduceOp::sum, {sum, bits(1, 0, at)});
      put(t.expected, residual_output + at * 2, added, 2);
      x.push_back(value(added));
      sums[i / 8] += x[i] * x[i];
    }
    const float factor = 1.0f / std::sqrt(sum_of_squares(sums) * (1.0f / static_cast<float>(columns)) + 1e-5f);
    float most = 1e-4f;
    for (std::uint64_t i = 0; i < columns; ++i) {
      const std::uint32_t normed = Element<kType>::narrow(x[i] * factor * value(bits(2, 0, i)));
      put(t.expected, output + (row * columns + i) * 2, normed, 2);
      y.push_back(value(normed));
      most = std::fmax(most, std::fabs(y.back()));
    }
    if (!spec.cast) continue;
    const float scale = most / 448.0f, inverse = 448.0f / most;
    put(t.expected, scales + row * 4, detail::bits_of<std::uint32_t>(scale), 4);
    for (std::uint64_t i = 0; i < columns; ++i) {
      put(t.expected, fp8 + row * columns + i, detail::f32_to_e4m3(y[i] * inverse), 1);
    }
  }

  const std::uint64_t packs = columns / 8;
  t.kernel = find_norm_kernel({.work = {.input = memory + input,
                                        .residual = memory + residual,
                                        .residual_output = memory + residual_output,
                                        .gamma = memory + gamma,
                                        .output = memory + output,
                                        .fp8 = reinterpret_cast<std::uint8_t*>(memory + fp8),
                                        .scales = memory + scales,
                                        .scale = nullptr,
                                        .input_stride = packs,
                                        .residual_stride = packs,
                                        .residual_output_stride = packs,
                                        .output_stride = packs,
                                        .fp8_stride = packs,
                                        .scale_row_stride = 1,
                                        .scale_group_stride = 1,
                                        .rows = static_cast<std::uint32_t>(spec.rows),
                                        .row_packs = static_cast<std::uint32_t>(packs),
                                        .inverse_columns = 1.0f / static_cast<float>(columns),
                                        .epsilon = 1e-5f,
                                        .gamma_plus_one = false,
                                        .scaling = spec.cast ? detail::RowScaling::per_token : detail::RowScaling::none,
                                        .power_of_two = false},
                               .type = kType,
                               .size = static_cast<std::uint32_t>(members.size()),
                               .algorithm = setup_.algorithm},
                              setup_.atomic_bytes, setup_.one_thread, setup_.lanes);
}

}  // namespace weft::sim
