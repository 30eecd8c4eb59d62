// Crossings as calls of a program: their tensors, and the expected outputs.
#include <cstring>

#include "numeric/rows.hpp"
#include "ops/crossings/sim_crossing_kernels.hpp"
#include "ops/moves/sim_move_kernels.hpp"
#include "ops/moves/sim_slots.hpp"
#include "sim/all_reduce.hpp"

namespace weft::sim {

// In memory: a guard, the input, a guard, the output, a guard.
void AllReduceProgram::fill_crossing(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.call(call, rank);
  const bool gathers = spec.moving == Moving::gather_sums;
  const auto& members = world_.groups()[spec.group];
  const std::size_t n = members.size(), me = world_.group_rank(spec.group, rank), element = size_of(setup_.type);
  const std::uint64_t width = spec.count;
  const Slots slots = slots_of(spec, n);
  // Groups of neighbours: the first rank of a rank's group, and the rows of the group's ranks up to it.
  const auto first_of = [&](std::size_t of) { return of / spec.group_ranks * spec.group_ranks; };
  const auto rows_before = [&](std::size_t of) {
    std::uint64_t rows = 0;
    for (std::size_t member = first_of(of); member < of; ++member) rows += slots.rows[member];
    return rows;
  };
  const std::size_t first = first_of(me), last = first + spec.group_ranks - 1;
  const std::uint64_t own_rows = rows_before(last) + slots.rows[last];
  const std::uint64_t own_slots = slots.begins[last + 1] - slots.begins[first];
  const std::uint64_t inputs = (gathers ? own_rows : slots.begins[n]) * width;
  const std::uint64_t outputs = (gathers ? slots.begins[n] : own_slots) * width;

  const auto bytes = [&](std::uint64_t elements) { return (elements * element + 15) / 16 * 16 + 32; };
  Tensors& t = tensors(call, rank);
  auto* const memory =
      reinterpret_cast<std::byte*>(make_tensors(call, rank, 16 + bytes(inputs) + bytes(outputs)).data());
  const std::size_t input = (16 - reinterpret_cast<std::uintptr_t>(memory) % 16) % 16 + 16;
  const std::size_t output = input + bytes(inputs);
  t.output_offset = output;
  const auto bits = [&](std::size_t member, std::uint64_t i) {
    return element_bits(setup_.payload, setup_.type, call * 2, members[member], i);
  };
  const auto put = [&](std::vector<std::uint32_t>& words, std::size_t at, std::uint64_t i, std::uint64_t value) {
    std::memcpy(reinterpret_cast<std::byte*>(words.data()) + at + i * element, &value, element);
  };
  for (std::uint64_t i = 0; i < inputs; ++i) put(t.initial, input, i, bits(me, i));
  t.expected = t.initial;
  for (std::uint64_t i = 0; i < outputs && !world_.stale(call); ++i) put(t.expected, output, i, 0);
  for (std::size_t owner = 0; owner < n && !world_.stale(call); ++owner) {
    if (!gathers && first_of(owner) != first) continue;
    const std::uint64_t from = gathers ? rows_before(owner) : slots.begins[owner];
    const std::uint64_t to = gathers ? slots.begins[owner] : rows_before(owner);
    for (std::uint64_t i = 0; i < slots.rows[owner] * width; ++i) {
      std::vector<std::uint64_t> terms;
      const std::size_t begin = gathers ? first_of(owner) : 0, end = gathers ? begin + spec.group_ranks : n;
      for (std::size_t member = begin; member < end; ++member) terms.push_back(bits(member, from * width + i));
      put(t.expected, output, to * width + i, reduced(setup_.type, ReduceOp::sum, terms));
    }
  }

  const std::uint64_t row = width * element;
  const auto aligned16 = [&](std::size_t at) { return detail::rows_are_aligned16(memory + at, row, row); };
  t.kernel = find_crossing_kernel(
      {.query = {.type = setup_.type,
                 .size = static_cast<std::uint32_t>(n),
                 .aligned16 = aligned16(input) && aligned16(output)},
       .work = {.partition = {.shards = {.counts = spec.counts.data(),
                                         .ranks = static_cast<std::uint32_t>(n),
                                         .sharding = Sharding::none,
                                         .padding = spec.padding,
                                         .slot_rows = kSlotRows,
                                         .slots = spec.slots.data(),
                                         .own_padded = false,
                                         .own_rows = ~std::uint64_t{0},
                                         .whole_rows = slots.begins[n]},
                              .group_ranks = spec.group_ranks,
                              .gathers = gathers,
                              .own_rows = gathers ? own_rows : own_slots},
                .slot_packs = spec.flows ? 0 : world_.channel(spec.group, rank).layout.two_shot_packs,
                .one_hop_packs = spec.one_hop ? world_.channel(spec.group, rank).layout.one_shot_packs : 0,
                .input = memory + input,
                .output = memory + output,
                .row_bytes = row,
                .input_stride = row,
                .output_stride = row}},
      {setup_.atomic_bytes, setup_.one_thread});
}

}  // namespace weft::sim
