#include "oracle/moves.hpp"

#include <algorithm>

namespace weft::oracle {
namespace {

void copy_rows(std::span<const std::byte> from, Bytes& to, std::size_t at) {
  std::copy(from.begin(), from.end(), to.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

Rows part_of(std::size_t rows, std::size_t parts, std::size_t part, Sharding sharding) {
  if (sharding.name == Sharding::none) return {0, rows};
  if (sharding.name == Sharding::balanced) {
    const std::size_t less = rows / parts, longer = rows % parts;
    return {part * less + std::min(part, longer), less + (part < longer ? 1 : 0)};
  }
  const std::size_t most = (rows + parts - 1) / parts;
  const std::size_t begin = std::min(rows, part * most), end = std::min(rows, begin + most);
  return {begin, end - begin};
}

std::vector<Place> places_of(std::span<const std::size_t> rows, Padding padding, std::size_t slot_rows,
                             std::span<const std::int32_t> given) {
  std::vector<Place> places;
  std::size_t begin = 0;
  for (const std::size_t count : rows) {
    std::size_t length = count;
    if (padding.name == Padding::aligned) {
      while (length % slot_rows != 0) ++length;
    }
    if (padding.name == Padding::max) length = *std::ranges::max_element(rows);
    if (padding.name == Padding::fixed) length = slot_rows;
    if (padding.name == Padding::per_rank) length = static_cast<std::size_t>(given[places.size()]);
    places.push_back({count, begin, length});
    begin += length;
  }
  return places;
}

std::size_t rows_of(std::span<const Place> places) {
  return places.empty() ? 0 : places.back().begin + places.back().slot;
}

Bytes gathered(std::span<const Place> places, Messages messages, std::size_t row_bytes) {
  Bytes all(rows_of(places) * row_bytes);
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    copy_rows(messages[rank].first(places[rank].rows * row_bytes), all, places[rank].begin * row_bytes);
  }
  return all;
}

Bytes exchanged(Messages messages, std::size_t rank) {
  const std::size_t part = messages[0].size() / messages.size();
  Bytes all(messages[0].size());
  for (std::size_t from = 0; from < messages.size(); ++from) {
    copy_rows(messages[from].subspan(rank * part, part), all, from * part);
  }
  return all;
}

Bytes scattered(Type type, Op op, std::span<const Place> places, Messages messages, std::size_t rank,
                std::size_t row_bytes) {
  std::size_t before = 0;
  for (std::size_t other = 0; other < rank; ++other) before += places[other].rows;
  std::vector<Bytes> parts;
  for (const auto message : messages) {
    const auto part = message.subspan(before * row_bytes, places[rank].rows * row_bytes);
    parts.emplace_back(part.begin(), part.end());
  }
  Bytes rows = reduce(type, op, parts);
  rows.resize(places[rank].slot * row_bytes);
  return rows;
}

Bytes gathered_sums(Type type, std::span<const Place> places, std::size_t group_ranks, Messages messages,
                    std::size_t row_bytes) {
  Bytes all(rows_of(places) * row_bytes);
  for (std::size_t first = 0; first < places.size(); first += group_ranks) {
    std::vector<Bytes> parts;
    for (const auto message : messages.subspan(first, group_ranks)) parts.emplace_back(message.begin(), message.end());
    const Bytes sums = reduce(type, Op::sum, parts);
    std::size_t row = 0;
    for (const Place& place : places.subspan(first, group_ranks)) {
      copy_rows(std::span(sums).subspan(row * row_bytes, place.rows * row_bytes), all, place.begin * row_bytes);
      row += place.rows;
    }
  }
  return all;
}

Bytes scattered_sums(Type type, std::span<const Place> places, std::size_t group_ranks, Messages messages,
                     std::size_t rank, std::size_t row_bytes) {
  const std::size_t first = rank / group_ranks * group_ranks;
  Bytes sums;
  std::size_t pads = 0;
  for (std::size_t member = first; member < first + group_ranks; ++member) {
    const Bytes shard = scattered(type, Op::sum, places, messages, member, row_bytes);
    const std::size_t bytes = places[member].rows * row_bytes;
    sums.insert(sums.end(), shard.begin(), shard.begin() + static_cast<std::ptrdiff_t>(bytes));
    pads += places[member].slot - places[member].rows;
  }
  sums.resize(sums.size() + pads * row_bytes);
  return sums;
}

Rows taken_of(std::span<const Place> places, std::size_t slot, std::size_t shards, std::size_t shard, Sharding sharding,
              bool of_slots) {
  const Place& place = places[slot];
  const Rows part = part_of(of_slots ? place.slot : place.rows, shards, shard, sharding);
  const std::size_t first = std::min(part.begin, place.rows);
  const std::size_t end = std::min(part.begin + part.size, place.rows);
  return {place.begin + first, end - first};
}

std::vector<std::int32_t> table_of_counts(const CountRules& rules, std::span<const std::int32_t> said) {
  const std::size_t ranks = said.size() / rules.columns, groups = ranks / rules.group_ranks;
  std::vector<std::size_t> rows;
  for (std::size_t group = 0; group < groups; ++group)
    rows.push_back(static_cast<std::size_t>(said[group * rules.group_ranks * rules.columns]));
  const std::vector<Place> places = places_of(rows, rules.padding, rules.slot_rows);
  std::vector<std::int32_t> table;
  const auto add = [&](std::size_t number) { table.push_back(static_cast<std::int32_t>(number)); };
  const auto of_members = [&](auto number) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t group = rank / rules.group_ranks, member = rank % rules.group_ranks;
      add(number(group, member));
    }
  };
  std::size_t most = 0, sum = 0;
  for (const Place& place : places) add(place.rows);
  for (const Place& place : places) add(place.slot);
  for (const Place& place : places) add(place.begin);
  add(rows_of(places));
  for (const Place& place : places) most = std::max(most, place.rows), sum += place.rows;
  add(most);
  add(sum);
  of_members([&](std::size_t group, std::size_t member) {
    return taken_of(places, group, rules.group_ranks, member, rules.sharding, rules.split_slots).size;
  });
  of_members([&](std::size_t group, std::size_t member) {
    const std::size_t shared = rules.split_slots ? places[group].slot : places[group].rows;
    return part_of(shared, rules.group_ranks, member, rules.sharding).size;
  });
  std::vector<std::int32_t> any(rules.columns, 0), every(rules.columns, -1);
  for (std::size_t i = 0; i < said.size(); ++i) {
    any[i % rules.columns] |= said[i];
    every[i % rules.columns] &= said[i];
  }
  for (const auto& part : {any, every, std::vector(said.begin(), said.end())})
    table.insert(table.end(), part.begin(), part.end());
  return table;
}

}  // namespace weft::oracle
