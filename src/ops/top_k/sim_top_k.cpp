// Searches for the largest numbers as calls of a program: their tensors, and the expected outputs.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "numeric/column_shares.hpp"
#include "numeric/numeric.hpp"
#include "ops/columns/sim_column_source.hpp"
#include "ops/top_k/sim_top_k_kernels.hpp"
#include "sim/all_reduce.hpp"

namespace weft::sim {

// In memory, with a guard in front of each and behind the last: the input, the values, the indices.
void AllReduceProgram::fill_top_k(unsigned call, unsigned rank) {
  using Half = detail::Element<DataType::bf16>;
  const CallSetup& spec = setup_.call(call, rank);
  const auto& members = world_.groups()[spec.group];
  const std::size_t me = world_.group_rank(spec.group, rank);
  const std::uint64_t shard = spec.count, columns = spec.columns != 0 ? spec.columns : members.size() * shard;
  const auto padded = [](std::uint64_t bytes) { return (bytes + 15) / 16 * 16 + 16; };
  const std::uint64_t found = spec.rows * spec.k;
  Tensors& t = tensors(call, rank);
  const std::uint64_t bytes = padded(spec.rows * shard * 2) + padded(found * 2) + padded(found * 4);
  auto* const memory = reinterpret_cast<std::byte*>(make_tensors(call, rank, 32 + bytes).data());
  const std::size_t input = (16 - reinterpret_cast<std::uintptr_t>(memory) % 16) % 16 + 16;
  const std::size_t values = input + padded(spec.rows * shard * 2), indices = values + padded(found * 2);
  t.output_offset = values;
  const auto bits = [&](std::size_t member, std::uint64_t row, std::uint64_t column) {
    return static_cast<std::uint16_t>(
        element_bits(setup_.payload, DataType::bf16, call * 2, members[member], row * shard + column));
  };
  const auto put = [](std::vector<std::uint32_t>& words, std::size_t at, std::uint64_t value, std::size_t size) {
    std::memcpy(reinterpret_cast<std::byte*>(words.data()) + at, &value, size);
  };
  for (std::uint64_t i = 0; i < spec.rows * shard; ++i)
    put(t.initial, input + i * 2, bits(me, i / shard, i % shard), 2);
  t.expected = t.initial;
  for (std::uint64_t row = 0; row < spec.rows && !world_.stale(call); ++row) {
    const auto value = [&](std::uint64_t column) {
      const ColumnSource source = source_of_column(spec, members.size(), column);
      return Half::widen(bits(source.member, row, source.column));
    };
    std::vector<std::uint64_t> order(columns);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](std::uint64_t a, std::uint64_t b) {
      return detail::is_nan(value(a)) ? !detail::is_nan(value(b)) : value(a) > value(b);
    });
    for (std::uint64_t i = 0; i < spec.k; ++i) {
      const float number = value(order[i]);
      put(t.expected, values + (row * spec.k + i) * 2, number == 0 ? 0 : Half::narrow(number), 2);
      put(t.expected, indices + (row * spec.k + i) * 4, order[i], 4);
    }
  }
  const detail::ColumnShares shares = detail::column_shares(columns, shard, members.size(), spec.even_shards);
  const detail::TopKWork work{.input = memory + input,
                              .values = memory + values,
                              .indices = reinterpret_cast<std::int32_t*>(memory + indices),
                              .input_stride = shard * 2,
                              .rows = static_cast<std::uint32_t>(spec.rows),
                              .k = spec.k,
                              .first_column = static_cast<std::uint32_t>(shares.first(static_cast<std::uint32_t>(me))),
                              .own_columns = static_cast<std::uint32_t>(shares.count(static_cast<std::uint32_t>(me))),
                              .parts = spec.parts,
                              .part_columns = detail::columns_of_part(shard, spec.parts)};
  if (work.lines() > world_.channel(spec.group, rank).layout.two_shot_packs)
    throw std::invalid_argument("simulator: more candidates than a slot has room for");
  t.kernel = find_top_k_kernel({{.type = DataType::bf16, .one = spec.k == 1}, work},
                               {setup_.atomic_bytes, setup_.one_thread, setup_.lanes});
}

}  // namespace weft::sim
