// Crossings as calls of a program: their tensors, and the expected outputs.
#include <cstring>

#include "numeric/rows.hpp"
#include "ops/crossings/sim_crossing_kernels.hpp"
#include "ops/crossings/sim_neighbours.hpp"
#include "ops/moves/sim_move_kernels.hpp"
#include "sim/all_reduce.hpp"

namespace weft::sim {

// In memory: a guard, the input, a guard, the output, a guard.
void AllReduceProgram::fill_crossing(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.call(call, rank);
  const bool gathers = spec.moving == Moving::gather_sums;
  const auto& members = world_.groups()[spec.group];
  const std::size_t n = members.size(), me = world_.group_rank(spec.group, rank), element = size_of(setup_.type);
  const std::uint64_t width = spec.count;
  const Neighbours neighbours(spec, n);
  const std::uint64_t inputs = (gathers ? neighbours.rows_of_group(me) : neighbours.all_slots()) * width;
  const std::uint64_t outputs = (gathers ? neighbours.all_slots() : neighbours.slots_of_group(me)) * width;

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
    const std::size_t first = neighbours.first_of(owner);
    if (!gathers && first != neighbours.first_of(me)) continue;
    const std::uint64_t in_group = neighbours.rows_before(owner), in_slots = neighbours.slots.begins[owner];
    const std::uint64_t from = gathers ? in_group : in_slots, to = gathers ? in_slots : in_group;
    for (std::uint64_t i = 0; i < neighbours.slots.rows[owner] * width; ++i) {
      std::vector<std::uint64_t> terms;
      const std::size_t begin = gathers ? first : 0, end = gathers ? begin + spec.group_ranks : n;
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
       .work = {.partition = partition_of(spec, neighbours, me, gathers, ~std::uint64_t{0}),
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
