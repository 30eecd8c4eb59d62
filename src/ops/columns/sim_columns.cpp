// Calls that put columns together, as calls of a program: their tensors, and the expected outputs.
#include <algorithm>
#include <bit>
#include <cstring>

#include "numeric/rows.hpp"
#include "ops/columns/sim_column_kernels.hpp"
#include "ops/columns/sim_column_source.hpp"
#include "ops/moves/sim_move_kernels.hpp"
#include "ops/moves/sim_slots.hpp"
#include "sim/all_reduce.hpp"

namespace weft::sim {

// In memory: a guard, the input, a guard, the output, a guard. A changed element is twice the bf16, in f32.
void AllReduceProgram::fill_columns(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.call(call, rank);
  const auto& members = world_.groups()[spec.group];
  const std::size_t n = members.size(), me = world_.group_rank(spec.group, rank);
  const std::size_t element = size_of(setup_.type), widening = spec.changed ? 2 : 1;
  const std::uint64_t shard = spec.count, columns = spec.columns != 0 ? spec.columns : n * shard;
  const auto bytes = [](std::uint64_t size) { return (size + 15) / 16 * 16 + 32; };
  // Rows of the input, and those of them that come to this rank.
  const bool to_groups = spec.moving == Moving::all_to_all_columns;
  const Slots slots = to_groups ? slots_of(spec, n / spec.group_ranks) : Slots{};
  const std::size_t group = me / spec.group_ranks;
  const std::uint64_t rows = to_groups ? slots.begins.back() : spec.rows;
  const std::uint64_t first = to_groups ? slots.begins[group] : 0, taken = to_groups ? slots.rows[group] : rows;
  // Room for the rows of any group, so that a wrong rank's rows are found and overwrite nothing else.
  const std::uint64_t room = to_groups ? *std::ranges::max_element(slots.rows) : rows;
  const std::uint64_t inputs = rows * shard * element, outputs = room * columns * element * widening;
  Tensors& t = tensors(call, rank);
  auto* const memory =
      reinterpret_cast<std::byte*>(make_tensors(call, rank, 16 + bytes(inputs) + bytes(outputs)).data());
  const std::size_t input = (16 - reinterpret_cast<std::uintptr_t>(memory) % 16) % 16 + 16;
  const std::size_t output = input + bytes(inputs);
  t.output_offset = output;
  const auto bits = [&](std::size_t member, std::uint64_t row, std::uint64_t column) {
    return element_bits(setup_.payload, setup_.type, call * 2, members[member], row * shard + column);
  };
  const auto put = [](std::vector<std::uint32_t>& words, std::size_t at, std::uint64_t value, std::size_t size) {
    std::memcpy(reinterpret_cast<std::byte*>(words.data()) + at, &value, size);
  };
  for (std::uint64_t i = 0; i < rows * shard; ++i) {
    put(t.initial, input + i * element, bits(me, i / shard, i % shard), element);
  }
  t.expected = t.initial;
  for (std::uint64_t row = 0; row < taken && !world_.stale(call); ++row) {
    for (std::uint64_t column = 0; column < columns; ++column) {
      const ColumnSource source = source_of_column(spec, n, column);
      const std::uint64_t value = bits(source.member, first + row, source.column);
      const std::size_t at = output + (row * columns + column) * element * widening;
      const float twice = 2 * std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
      put(t.expected, at, spec.changed ? std::bit_cast<std::uint32_t>(twice) : value, element * widening);
    }
  }

  const detail::EqualPartition equal{
      .rows = spec.rows, .input_step = 0, .output_step = 0, .sender = detail::kEverybody};
  if (spec.symmetric) t.symmetric.push_back({.from = 0, .to = output, .bytes = outputs});
  const detail::CopyTensor tensor{.input = memory + input,
                                  .output = spec.symmetric ? world_.symmetric(rank) : memory + output,
                                  .row_bytes = shard * element,
                                  .input_stride = shard * element,
                                  .output_stride = columns * element * widening};
  const auto bytes_of_element = static_cast<std::uint32_t>(element);
  const detail::ColumnShares shares = detail::column_shares(columns, shard, n, spec.even_shards);
  const bool aligned16 = shares.are_whole_packs(element) &&
                         detail::rows_are_aligned16(tensor.input, tensor.row_bytes, tensor.input_stride) &&
                         detail::rows_are_aligned16(tensor.output, tensor.row_bytes, tensor.output_stride);
  const auto find = [&]<bool symmetric = false>(const auto& partition) {
    using Query = detail::CopyQuery<std::remove_cvref_t<decltype(partition)>, 1, symmetric>;
    Wanted<Query> wanted{.query = {.aligned16 = aligned16}, .work = {}};
    wanted.work.partition = partition;
    wanted.work.line_packs = spec.flows ? 0 : world_.channel(spec.group, rank).layout.two_shot_packs;
    wanted.work.tensors = 1;
    wanted.work.tensor[0] = tensor;
    if constexpr (symmetric) {
      for (std::size_t member = 0; member < n; ++member)
        wanted.work.outputs.near[member] = world_.symmetric(members[member]);
      wanted.work.outputs.tile_shift = static_cast<std::uint32_t>(std::countr_zero(setup_.pipeline_packs));
    }
    return find_column_kernel(wanted, {setup_.atomic_bytes, setup_.one_thread});
  };
  const auto place = [&](const auto& partition) {
    return spec.symmetric ? find.operator()<true>(partition) : find.operator()<false>(partition);
  };
  const detail::ColumnPlaces<true> doubled{
      shares, bytes_of_element, {.from = setup_.type, .to = DataType::f32, .factor = 2, .soft_cap = 0}};
  const detail::ColumnPlaces<false> kept{shares, bytes_of_element, {}};
  if (!to_groups) {
    t.kernel = spec.changed ? place(detail::ColumnPartition<true>{equal, doubled})
                            : place(detail::ColumnPartition<false>{equal, kept});
    return;
  }
  detail::CountedPartition counted = counts_of(spec, n / spec.group_ranks);
  counted.own_rows = room;
  counted.whole_rows = rows;
  t.kernel = spec.changed ? find(detail::GroupColumnPartition<true>{counted, doubled, spec.group_ranks})
                          : find(detail::GroupColumnPartition<false>{counted, kept, spec.group_ranks});
}

}  // namespace weft::sim
