#include "ops/moe/sim_rows.hpp"

#include <bit>
#include <cstring>

#include "ops/moe/exchange_shape.hpp"
#include "ops/moe/moe_rows.hpp"
#include "sim/all_reduce.hpp"

namespace weft::sim {

using detail::ExchangeShape;

Bytes given_row(const Setup& setup, const ExchangeShape& shape, unsigned call, unsigned rank, std::uint32_t token) {
  const std::size_t row = input_row_bytes(shape);
  const std::size_t beside = shape.scale_bytes + detail::side_sizes(setup.exchange).bytes;
  Bytes bytes(row + beside);
  for (std::size_t i = 0; i < row / 2; ++i) {
    const std::uint64_t bits = element_bits(setup.payload, DataType::bf16, call, rank, token * row / 2 + i);
    std::memcpy(&bytes[2 * i], &bits, 2);
  }
  for (std::size_t i = 0; i < beside / 4; ++i) {
    const std::uint64_t bits = element_bits(setup.payload, DataType::f32, call, rank, (token + 1) * 7'919 + i);
    std::memcpy(&bytes[row + 4 * i], &bits, 4);
  }
  return bytes;
}
Bytes sent_row(const Setup& setup, const ExchangeShape& shape, unsigned call, unsigned rank, std::uint32_t token) {
  const Bytes given = given_row(setup, shape, call, rank, token);
  if (shape.cast == RowCast::none) return given;
  using Cast = detail::CastRow<DataType::bf16, ScaleOrder::rows>;
  constexpr std::uint32_t kPacks = kScaleColumns * 2 / sizeof(Pack);
  Bytes sent(sent_row_bytes(shape) + sent_scale_bytes(shape));
  for (std::uint32_t group = 0; group < shape.groups; ++group) {
    Pack packs[kPacks];
    std::memcpy(packs, &given[group * sizeof(packs)], sizeof(packs));
    float most = 0;
    for (const Pack& pack : packs) most = detail::max_number(most, Cast::largest(pack));
    const Cast::Scale scale = Cast::scale_for(most, detail::kFp8Floor, detail::scales_are_powers(shape.cast));
    std::uint32_t words[kPacks * 2];
    for (std::uint32_t i = 0; i < kPacks; ++i) Cast::cast_half(packs[i], scale.inverse, words + 2 * i);
    std::memcpy(&sent[group * sizeof(words)], words, sizeof(words));
    const auto bits = std::bit_cast<std::uint32_t>(scale.scale);
    const std::uint32_t seen = detail::scales_are_bytes(shape.cast) ? bits >> 23 : bits;
    const std::size_t size = sent_scale_bytes(shape) / shape.groups;
    std::memcpy(&sent[shape.columns + group * size], &seen, size);
  }
  return sent;
}

}  // namespace weft::sim
