// Gathers and scatters as calls of a program: their tensors, and the expected outputs.
#include <algorithm>
#include <bit>
#include <cstring>

#include "ops/moves/sim_move_kernels.hpp"
#include "ops/moves/sim_slots.hpp"
#include "sim/all_reduce.hpp"

namespace weft::sim {

Slots slots_of(const CallSetup& spec, std::size_t ranks) {
  Slots s;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (spec.sharding == Sharding::none) {
      s.rows.push_back(spec.counts.empty() ? 1 : static_cast<std::uint64_t>(spec.counts[rank]));
      continue;
    }
    const auto all = static_cast<std::uint64_t>(spec.counts[0]);
    const std::uint64_t part = (all + ranks - 1) / ranks, before = std::min(rank * part, all);
    s.rows.push_back(spec.sharding == Sharding::ceil ? std::min(part, all - before) : (all + ranks - 1 - rank) / ranks);
  }
  const std::uint64_t most = *std::ranges::max_element(s.rows);
  s.begins = {0};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t rows = s.rows[rank];
    const std::uint64_t given = spec.slots.empty() ? 0 : static_cast<std::uint64_t>(spec.slots[rank]);
    const std::uint64_t by_kind[] = {rows, (rows + kSlotRows - 1) / kSlotRows * kSlotRows, most, kSlotRows, given};
    s.slots.push_back(spec.counts.empty() ? 1 : by_kind[static_cast<int>(spec.padding)]);
    s.begins.push_back(s.begins.back() + s.slots.back());
  }
  return s;
}

namespace {

// One tensor of a call in memory: input, guard, output, guard. Numbers are elements.
struct Layout {
  std::uint64_t inputs, outputs;
};

}  // namespace

void AllReduceProgram::fill_move(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.call(call, rank);
  const auto& members = world_.groups()[spec.group];
  const std::size_t n = members.size(), me = world_.group_rank(spec.group, rank);
  const std::size_t element = size_of(setup_.type);
  const bool gathers_v = spec.moving == Moving::all_gather_v, scatters_v = spec.moving == Moving::reduce_scatter_v;
  const std::uint64_t width = spec.count;
  const Slots slots = slots_of(spec, n);
  // With replicas a rank's input is its group's first rank's, and has the rows of all of the group.
  const std::size_t each = gathers_v ? spec.group_ranks : 1;
  const bool replicas = each > 1;
  const auto rows_up_to = [&](std::size_t end) {
    std::uint64_t rows = 0;
    for (std::size_t member = (end - 1) / each * each; member < end; ++member) rows += slots.rows[member];
    return rows;
  };
  const std::size_t tensors_in_call = gathers_v && spec.second != 0 ? 2 : 1;
  const auto layout = [&](std::uint64_t w) -> Layout {
    switch (spec.moving) {
      case Moving::all_gather:
        return {w, n * w};
      case Moving::all_to_all:
        return {n * w, n * w};
      case Moving::broadcast:
      case Moving::reduce:
        return {w, w};
      case Moving::reduce_scatter:
        return {n * w, w};
      case Moving::all_gather_v:
        return {(replicas ? rows_up_to(me / each * each + each) : slots.rows[me]) * w, slots.begins[n] * w};
      case Moving::reduce_scatter_v:
        return {slots.begins[n] * w, slots.slots[me] * w};
      default:
        return {0, 0};
    }
  };
  const auto bytes = [&](std::uint64_t elements) { return (elements * element + 15) / 16 * 16 + 32; };
  const std::uint64_t widths[] = {width, spec.second};
  Tensors& t = tensors(call, rank);
  std::size_t total = 16;
  for (std::size_t k = 0; k < tensors_in_call; ++k) {
    total += bytes(layout(widths[k]).inputs) + bytes(layout(widths[k]).outputs);
  }
  auto* const memory = reinterpret_cast<std::byte*>(make_tensors(call, rank, total).data());
  std::size_t next = (16 - reinterpret_cast<std::uintptr_t>(memory) % 16) % 16 + 16;

  struct Made {
    std::size_t input, output;
  } made[2] = {};
  const auto bits = [&](std::size_t member, std::size_t tensor, std::uint64_t i) {
    const std::size_t of = members[member / each * each];
    return element_bits(setup_.payload, setup_.type, call * 2 + static_cast<unsigned>(tensor), of, i);
  };
  const auto put = [&](std::vector<std::uint32_t>& words, std::size_t at, std::uint64_t i, std::uint64_t value) {
    std::memcpy(reinterpret_cast<std::byte*>(words.data()) + at + i * element, &value, element);
  };
  // In place, the input is the own slot of the output, or the output that of the input. Only a root has both.
  const auto place_own = [&](std::size_t& input, std::size_t& output, std::size_t k) {
    const std::uint64_t slot = slots.begins[me] * widths[k] * element;
    if (gathers_v || spec.moving == Moving::all_gather) input = output + slot;
    if (scatters_v || spec.moving == Moving::reduce_scatter) output = input + slot;
    const bool has_root = spec.moving == Moving::broadcast || spec.moving == Moving::reduce;
    if (has_root && me == n - 1) output = input;
  };
  for (std::size_t k = 0; k < tensors_in_call; ++k) {
    const auto [inputs, outputs] = layout(widths[k]);
    made[k] = {next, next + bytes(inputs)};
    if (spec.in_place) place_own(made[k].input, made[k].output, k);
    next += bytes(inputs) + bytes(outputs);
    for (std::uint64_t i = 0; i < inputs; ++i) put(t.initial, made[k].input, i, bits(me, k, i));
  }
  t.output_offset = made[0].output;
  t.expected = t.initial;
  for (std::size_t k = 0; k < tensors_in_call; ++k) {
    const std::uint64_t w = widths[k];
    const auto result = [&](std::uint64_t i, std::uint64_t value) { put(t.expected, made[k].output, i, value); };
    for (std::size_t from = 0; from < n; ++from) {
      if (spec.moving == Moving::all_gather) {
        for (std::uint64_t i = 0; i < w; ++i) result(from * w + i, bits(from, k, i));
      } else if (spec.moving == Moving::all_to_all) {
        for (std::uint64_t i = 0; i < w; ++i) result(from * w + i, bits(from, k, me * w + i));
      } else if (gathers_v) {
        const std::uint64_t first = (rows_up_to(from + 1) - slots.rows[from]) * w;
        for (std::uint64_t i = 0; i < slots.slots[from] * w; ++i) {
          result(slots.begins[from] * w + i, i < slots.rows[from] * w ? bits(from, k, first + i) : 0);
        }
      }
    }
    if (spec.moving == Moving::broadcast) {
      for (std::uint64_t i = 0; i < w; ++i) result(i, bits(n - 1, k, i));
    }
    const bool reduces = spec.moving == Moving::reduce && me == n - 1;
    if (spec.moving != Moving::reduce_scatter && !scatters_v && !reduces) continue;
    const std::uint64_t begin = reduces ? 0 : slots.begins[me];
    for (std::uint64_t i = 0; i < slots.slots[me] * w; ++i) {
      if (i >= slots.rows[me] * w) {
        result(i, 0);
        continue;
      }
      std::vector<std::uint64_t> terms;
      for (std::size_t from = 0; from < n; ++from) terms.push_back(bits(from, k, begin * w + i));
      result(i, reduced(setup_.type, setup_.op, terms));
    }
  }

  if (world_.stale(call)) t.expected = t.initial;
  const std::uint64_t slot_packs = spec.flows ? 0 : world_.channel(spec.group, rank).layout.two_shot_packs;
  const std::uint64_t lacking = setup_.faults.no_room && setup_.is_odd(call, rank) ? 1 : 0;
  detail::CountedPartition counted = counts_of(spec, n);
  counted.own_padded = scatters_v;
  counted.own_rows = scatters_v ? slots.slots[me] - lacking : slots.rows[me];
  counted.whole_rows = slots.begins[n] - (gathers_v ? lacking : 0);
  counted.detour_packs = spec.detour ? 0 : ~std::uint64_t{0};
  const detail::EqualPartition equal{
      .rows = 1,
      .input_step = spec.moving == Moving::all_to_all || spec.moving == Moving::reduce_scatter ? 1u : 0u,
      .output_step = spec.moving == Moving::broadcast ? 0u : 1u,
      .sender = spec.moving == Moving::broadcast || spec.moving == Moving::reduce ? static_cast<std::uint32_t>(n - 1)
                                                                                  : detail::kEverybody,
      .detour = spec.detour};
  // Outputs in symmetric memory begin at the same places on all ranks.
  std::size_t places[2] = {};
  for (std::size_t k = 0, next_place = 0; k < tensors_in_call && spec.symmetric; ++k) {
    const std::size_t size = layout(widths[k]).outputs * element;
    places[k] = next_place;
    t.symmetric.push_back({.from = places[k], .to = made[k].output, .bytes = size});
    next_place += (size + 15) / 16 * 16;
  }
  const auto tensor = [&](std::size_t k) {
    const std::uint64_t row = widths[k] * element;
    std::byte* const output = spec.symmetric ? world_.symmetric(rank) + places[k] : memory + made[k].output;
    return detail::CopyTensor{memory + made[k].input, output, row, row, row};
  };
  // Each rank chooses for itself, as the host does in production.
  const auto aligned16 = [&](std::size_t k) {
    const std::uint64_t row = widths[k] * element;
    return detail::rows_are_aligned16(memory + made[k].input, row, row) &&
           detail::rows_are_aligned16(memory + made[k].output, row, row);
  };
  const RunAs as{setup_.atomic_bytes, setup_.one_thread};
  const auto copy = [&]<std::uint32_t most>(const auto& partition) {
    using Partition = std::remove_cvref_t<decltype(partition)>;
    bool all_aligned16 = true;
    for (std::size_t k = 0; k < tensors_in_call; ++k) all_aligned16 = all_aligned16 && aligned16(k);
    const auto find = [&]<bool symmetric>() {
      Wanted<detail::CopyQuery<Partition, most, symmetric>> wanted{.query = {.aligned16 = all_aligned16}, .work = {}};
      wanted.work.partition = partition;
      wanted.work.line_packs = slot_packs;
      wanted.work.tensors = static_cast<std::uint32_t>(tensors_in_call);
      for (std::size_t k = 0; k < tensors_in_call; ++k) wanted.work.tensor[k] = tensor(k);
      if constexpr (symmetric) {
        for (std::size_t member = 0; member < n; ++member)
          wanted.work.outputs.near[member] = world_.symmetric(members[member]);
        wanted.work.outputs.tile_shift = static_cast<std::uint32_t>(std::countr_zero(setup_.pipeline_packs));
      }
      return find_move_kernel(wanted, as);
    };
    return spec.symmetric ? find.template operator()<true>() : find.template operator()<false>();
  };
  const auto scatter = [&](const auto& partition) {
    using Query = detail::ScatterQuery<std::remove_cvref_t<decltype(partition)>>;
    const Query query{{.type = setup_.type,
                       .ops = detail::ops_for(setup_.type, setup_.op),
                       .size = static_cast<std::uint32_t>(n),
                       .aligned16 = aligned16(0)}};
    return find_move_kernel<Query>({.query = query,
                                    .work = {.partition = partition,
                                             .slot_packs = slot_packs,
                                             .input = memory + made[0].input,
                                             .output = memory + made[0].output,
                                             .row_bytes = width * element,
                                             .input_stride = width * element,
                                             .output_stride = width * element,
                                             .op = setup_.op}},
                                   as);
  };
  if (spec.moving == Moving::reduce_scatter || spec.moving == Moving::reduce) {
    t.kernel = scatter(equal);
  } else if (scatters_v) {
    t.kernel = scatter(counted);
  } else if (replicas) {
    detail::ReplicaPartition partition{};
    static_cast<detail::CountedPartition&>(partition) = counted;
    partition.own_rows = ~std::uint64_t{0};
    partition.self = static_cast<std::uint32_t>(me);
    partition.group_ranks = spec.group_ranks;
    partition.group_rows = rows_up_to(me / each * each + each);
    t.kernel = copy.operator()<detail::kMaxTensors>(partition);
  } else if (gathers_v && tensors_in_call > 1) {
    t.kernel = copy.operator()<detail::kMaxTensors>(counted);
  } else if (gathers_v) {
    t.kernel = copy.operator()<1>(counted);
  } else if (spec.moving == Moving::barrier) {
    t.kernel = find_move_kernel<detail::BarrierQuery>({}, as);
  } else {
    t.kernel = copy.operator()<1>(equal);
  }
}

}  // namespace weft::sim
