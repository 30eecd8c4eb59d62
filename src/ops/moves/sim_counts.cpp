// Exchanges of counts as calls of a program.
#include <algorithm>

#include "ops/moves/counts_work.hpp"
#include "ops/moves/sim_move_kernels.hpp"
#include "sim/all_reduce.hpp"

namespace weft::sim {
namespace {

std::int64_t slot_of(Padding kind, std::int64_t rows, std::int64_t most) {
  const std::int64_t by_kind[] = {rows, (rows + kSlotRows - 1) / kSlotRows * kSlotRows, most, kSlotRows};
  return by_kind[static_cast<int>(kind)];
}

std::int64_t shard_of(Sharding sharding, std::int64_t rows, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t part = (rows + ranks - 1) / ranks, before = std::min(rank * part, rows);
  return sharding == Sharding::ceil ? std::min(part, rows - before) : (rows + ranks - 1 - rank) / ranks;
}

}  // namespace

// In memory: a guard, the input, a guard, the output, the host's output, a guard.
void AllReduceProgram::fill_counts(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.call(call, rank);
  const auto& members = world_.groups()[spec.group];
  const GatheredCounts parts{.ranks = members.size(), .columns = spec.count, .group_ranks = spec.group_ranks};
  constexpr std::size_t guard = 4;
  const std::size_t input = guard, output = input + parts.columns + guard, host = output + parts.words();
  std::uint32_t* const memory = make_tensors(call, rank, (host + parts.words() + guard) * 4).data();
  Tensors& t = tensors(call, rank);
  t.output_offset = output * 4;

  const auto rows_of = [&](std::size_t group) { return std::int64_t{spec.counts[group]}; };
  const auto number = [&](std::size_t member, std::uint64_t column) {
    if (column == 0) return static_cast<std::uint32_t>(rows_of(member / parts.group_ranks));
    return static_cast<std::uint32_t>(element_bits(setup_.payload, DataType::i32, call, members[member], column));
  };
  const std::size_t me = world_.group_rank(spec.group, rank);
  for (std::uint64_t column = 0; column < parts.columns; ++column) t.initial[input + column] = number(me, column);
  t.expected = t.initial;
  if (!world_.stale(call)) {
    std::int64_t begin = 0, most = 0, total = 0;
    const auto put = [&](std::size_t at, std::int64_t value) {
      for (const std::size_t copy : {output, host}) t.expected[copy + at] = static_cast<std::uint32_t>(value);
    };
    for (std::size_t group = 0; group < parts.groups(); ++group) most = std::max(most, rows_of(group));
    for (std::size_t group = 0; group < parts.groups(); ++group) {
      put(parts.rows() + group, rows_of(group));
      put(parts.slots() + group, slot_of(spec.padding, rows_of(group), most));
      put(parts.offsets() + group, begin);
      begin += slot_of(spec.padding, rows_of(group), most);
      total += rows_of(group);
    }
    put(parts.offsets() + parts.groups(), begin);
    put(parts.most(), most);
    put(parts.total(), total);
    for (std::size_t column = 0; column < parts.columns; ++column) {
      std::uint32_t any = 0, every = ~0u;
      for (std::size_t member = 0; member < parts.ranks; ++member) {
        any |= number(member, column);
        every &= number(member, column);
        put(parts.all() + member * parts.columns + column, number(member, column));
      }
      put(parts.any() + column, any);
      put(parts.every() + column, every);
    }
    const auto ranks = static_cast<std::int64_t>(parts.group_ranks);
    for (std::size_t member = 0; member < parts.ranks; ++member) {
      const auto part = static_cast<std::int64_t>(member % parts.group_ranks);
      const std::int64_t rows = rows_of(member / parts.group_ranks);
      const std::int64_t shared = spec.split_slots ? slot_of(spec.padding, rows, most) : rows;
      std::int64_t before = 0;
      for (std::int64_t other = 0; other < part; ++other) before += shard_of(spec.sharding, shared, ranks, other);
      const std::int64_t shard = shard_of(spec.sharding, shared, ranks, part);
      put(parts.shard_slots() + member, shard);
      put(parts.shards() + member, std::clamp(rows - before, std::int64_t{0}, shard));
    }
  }

  auto* const words = reinterpret_cast<std::int32_t*>(memory);
  detail::CountsWork work = detail::counts_work(parts);
  work.input = words + input;
  work.output = words + output;
  work.host_output = words + host;
  work.sharding = spec.sharding;
  work.split_slots = spec.split_slots;
  work.padding = spec.padding;
  work.slot_rows = kSlotRows;
  t.kernel = find_move_kernel<detail::CountsQuery>({{}, work}, {setup_.atomic_bytes, setup_.one_thread});
}

}  // namespace weft::sim
