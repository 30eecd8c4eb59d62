// Crossings with residual and norm as calls of a program: their tensors, and the expected outputs.
#include <cstring>

#include "ops/crossings/sim_neighbours.hpp"
#include "ops/moves/sim_move_kernels.hpp"
#include "ops/norm/rms_norm.hpp"
#include "ops/norm/sim_norm_rows.hpp"
#include "ops/normed_crossings/sim_normed_crossing_kernels.hpp"
#include "sim/all_reduce.hpp"

namespace weft::sim {

// In memory, each with a guard in front: input, residual, new residual, output, weights, a scale, e4m3 rows, scales. In
// place, the new residual is the residual.
void AllReduceProgram::fill_normed_crossing(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.call(call, rank);
  const NormForm& form = spec.norm;
  const DataType type = setup_.type;
  const bool gathers = spec.moving == Moving::gather_sums_norm;
  const auto& members = world_.groups()[spec.group];
  const std::size_t n = members.size(), me = world_.group_rank(spec.group, rank);
  const std::uint64_t columns = spec.count, packs = columns / 8, groups = scale_groups(form, columns);
  const Neighbours neighbours(spec, n);
  const std::uint64_t own_rows = neighbours.slots.rows[me];
  const std::uint64_t inputs = gathers ? neighbours.rows_of_group(me) : neighbours.all_slots();
  const std::uint64_t outputs = gathers ? neighbours.all_slots() : neighbours.slots_of_group(me);

  const std::size_t row = columns * 2, guard = 16, scale_bytes = form.power_of_two ? 1 : 4;
  const auto room = [&](std::size_t bytes) { return (bytes + 15) / 16 * 16 + guard; };
  const std::size_t sizes[] = {inputs * row,
                               own_rows * row,
                               own_rows * row,
                               outputs * row,
                               columns * weight_bytes(form),
                               sizeof(float),
                               outputs * columns,
                               outputs * groups * scale_bytes};
  std::size_t bytes = 2 * guard;
  for (const std::size_t size : sizes) bytes += room(size);
  Tensors& t = tensors(call, rank);
  auto* const memory = reinterpret_cast<std::byte*>(make_tensors(call, rank, bytes).data());
  std::size_t place[8], at = (16 - reinterpret_cast<std::uintptr_t>(memory) % 16) % 16 + guard;
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    place[i] = at;
    at += room(sizes[i]);
  }
  if (spec.in_place) place[2] = place[1];
  const auto [input, residual, residual_output, output, gamma, fixed, fp8, scales] = place;
  t.output_offset = output;

  const auto put = [](std::vector<std::uint32_t>& words, std::size_t to, std::uint32_t value, std::size_t size) {
    std::memcpy(reinterpret_cast<std::byte*>(words.data()) + to, &value, size);
  };
  const auto bits = [&](unsigned what, std::size_t member, std::uint64_t i) {
    return static_cast<std::uint32_t>(element_bits(setup_.payload, type, call * 8 + what, members[member], i));
  };
  const auto weight = [&](std::uint64_t i) { return weight_bits(type, form, bits(2, 0, i)); };
  put(t.initial, fixed, detail::bits_of<std::uint32_t>(kFixedScale), 4);
  for (std::uint64_t i = 0; i < inputs * columns; ++i) put(t.initial, input + i * 2, bits(0, me, i), 2);
  for (std::uint64_t i = 0; i < own_rows * columns; ++i) put(t.initial, residual + i * 2, bits(1, me, i), 2);
  for (std::uint64_t i = 0; i < columns; ++i)
    put(t.initial, gamma + i * weight_bytes(form), weight(i), weight_bytes(form));
  t.expected = t.initial;
  const bool casts = form.scaling != detail::RowScaling::none;
  const bool makes_scales = casts && form.scaling != detail::RowScaling::fixed;
  const auto put_row = [&](std::uint64_t to, const NormedRow& normed) {
    for (std::uint64_t i = 0; i < columns; ++i) {
      if (form.output) put(t.expected, output + (to * columns + i) * 2, normed.output[i], 2);
      if (casts) put(t.expected, fp8 + to * columns + i, normed.cast[i], 1);
    }
    for (std::uint64_t group = 0; makes_scales && group < groups; ++group) {
      const std::uint64_t index = form.apart ? group * outputs + to : to * groups + group;
      put(t.expected, scales + index * scale_bytes, normed.scales[group], scale_bytes);
    }
  };
  const bool stale = world_.stale(call);
  const std::vector<std::uint32_t> zeros(columns);
  for (std::uint64_t i = 0; i < outputs && !stale; ++i) put_row(i, {zeros, zeros, zeros, zeros});
  for (std::size_t owner = 0; owner < n && !stale; ++owner) {
    const std::size_t first = neighbours.first_of(owner);
    if (!gathers && first != neighbours.first_of(me)) continue;
    const std::uint64_t in_group = neighbours.rows_before(owner), in_slots = neighbours.slots.begins[owner];
    const std::uint64_t from = gathers ? in_group : in_slots, to = gathers ? in_slots : in_group;
    for (std::uint64_t r = 0; r < neighbours.slots.rows[owner]; ++r) {
      const auto sum = [&](std::uint64_t i) {
        std::vector<std::uint64_t> terms;
        const std::size_t begin = gathers ? first : 0, end = gathers ? begin + spec.group_ranks : n;
        for (std::size_t member = begin; member < end; ++member)
          terms.push_back(bits(0, member, (from + r) * columns + i));
        return static_cast<std::uint32_t>(reduced(type, ReduceOp::sum, terms));
      };
      const NormedRow normed = normed_row(
          type, form, columns, sum, [&](std::uint64_t i) { return bits(1, owner, r * columns + i); }, weight);
      put_row(to + r, normed);
      for (std::uint64_t i = 0; owner == me && i < columns; ++i)
        put(t.expected, residual_output + (r * columns + i) * 2, normed.residual[i], 2);
    }
  }

  detail::NormedCrossingWork work{
      .shards = {.partition = partition_of(spec, neighbours, me, gathers, own_rows),
                 .slot_packs = spec.flows ? 0 : world_.channel(spec.group, rank).layout.two_shot_packs,
                 .one_hop_packs = spec.one_hop ? world_.channel(spec.group, rank).layout.one_shot_packs : 0,
                 .input = memory + input,
                 .output = nullptr,
                 .row_bytes = row,
                 .input_stride = row,
                 .output_stride = 0},
      .norm = norm_work(form, columns,
                        {memory, input, residual, residual_output, gamma, output, fp8, scales, fixed, packs, outputs}),
      .shape = {}};
  work.norm.rows = 1;
  if (!form.output) work.norm.output_stride = 0;  // as in production
  work.shape = detail::shape_of(work.norm);
  t.kernel = find_normed_crossing_kernel({.query = {.type = type,
                                                    .size = static_cast<std::uint32_t>(n),
                                                    .casts = true,
                                                    .flows = true,
                                                    .gamma_f32 = form.gamma_f32},
                                          .work = work},
                                         {setup_.atomic_bytes, setup_.one_thread});
}

}  // namespace weft::sim
