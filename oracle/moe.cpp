#include "oracle/moe.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "oracle/fp8.hpp"

namespace weft::oracle {

std::vector<std::uint32_t> homes_of(std::uint32_t experts, std::uint32_t ranks) {
  std::vector<std::uint32_t> homes;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    homes.insert(homes.end(), experts / ranks + (rank < experts % ranks ? 1 : 0), rank);
  return homes;
}

void route(const MoeRules& rules, std::uint32_t rank, std::span<const std::int64_t> ids, std::span<const float> weights,
           Routing& routing) {
  routing.resize(rules.experts);
  for (std::uint32_t entry = 0; entry < ids.size(); ++entry) {
    const std::int64_t id = ids[entry];
    if (id < 0 || id >= rules.experts) continue;
    routing[static_cast<std::size_t>(id)].push_back({rank, entry / rules.top_k, weights[entry]});
  }
}

namespace {

// The tokens that have a row on a rank, as (source, token).
using Source = std::pair<std::uint32_t, std::uint32_t>;
using Sources = std::set<Source>;
Source source_of(const Arrival& arrival) {
  return Source(arrival.rank, arrival.token);
}
Sources sources_of(std::span<const std::uint32_t> homes, const Routing& routing, std::uint32_t rank) {
  Sources sources;
  for (std::uint32_t expert = 0; expert < routing.size(); ++expert) {
    for (const Arrival& arrival : routing[expert])
      if (homes[expert] == rank) sources.insert(source_of(arrival));
  }
  return sources;
}

}  // namespace

std::vector<std::int32_t> rank_prefix(std::span<const std::uint32_t> homes, const Routing& routing,
                                      std::uint32_t ranks) {
  std::vector<std::int32_t> prefix;
  for (std::uint32_t last = 0; last < ranks; ++last) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Sources sources = sources_of(homes, routing, rank);
      prefix.push_back(static_cast<std::int32_t>(
          std::ranges::count_if(sources, [&](const auto& source) { return source.first <= last; })));
    }
  }
  return prefix;
}

std::size_t capacity_of(const MoeRules& rules, std::span<const std::uint32_t> homes, std::uint32_t ranks) {
  if (rules.layout == MoeRules::by_rank) return rules.tokens;
  if (rules.given_capacity != 0) return rules.given_capacity;
  std::size_t most_experts = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    most_experts = std::max(most_experts, static_cast<std::size_t>(std::ranges::count(homes, rank)));
  std::size_t rows = std::size_t{ranks} * rules.tokens;
  if (rules.layout == MoeRules::contiguous) {
    // Each token names an expert once; behind each expert there may be pads.
    rows = rows * std::min<std::size_t>(rules.top_k, most_experts) + most_experts * (rules.alignment - 1);
  }
  while (rules.by_columns && rows % 4 != 0) ++rows;
  return rows;
}

std::vector<std::size_t> offsets_of(const MoeRules& rules, std::span<const std::size_t> counts) {
  std::vector<std::size_t> offsets{0};
  for (const std::size_t count : counts) {
    std::size_t end = offsets.back() + count;
    while (end % rules.alignment != 0) ++end;
    offsets.push_back(end);
  }
  return offsets;
}

std::vector<ExpertRows> place_rows(const MoeRules& rules, std::span<const std::uint32_t> homes, const Routing& routing,
                                   std::uint32_t ranks) {
  const std::size_t capacity = capacity_of(rules, homes, ranks);
  std::vector<std::vector<std::size_t>> counts(ranks);  // of each rank's experts
  std::vector<Sources> sources;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) sources.push_back(sources_of(homes, routing, rank));
  std::vector<ExpertRows> all;
  for (std::uint32_t expert = 0; expert < routing.size(); ++expert) {
    std::vector<std::size_t>& before = counts[homes[expert]];
    const std::size_t block = before.size() * capacity, offset = offsets_of(rules, before).back();
    ExpertRows rows;
    for (std::size_t place = 0; place < routing[expert].size(); ++place) {
      const Arrival& arrival = routing[expert][place];
      std::size_t row = std::size_t{arrival.rank} * rules.tokens + arrival.token;
      if (rules.layout == MoeRules::masked) row = block + place;
      if (rules.layout == MoeRules::contiguous) row = offset + place;
      const Sources& here = sources[homes[expert]];
      if (rules.layout == MoeRules::compact)
        row = static_cast<std::size_t>(std::distance(here.begin(), here.find(source_of(arrival))));
      const std::size_t taken = rules.layout == MoeRules::masked ? place : row;
      if (rules.layout == MoeRules::by_rank || taken < capacity) ++rows.kept;
      rows.row.push_back(row);
    }
    before.push_back(routing[expert].size());
    all.push_back(std::move(rows));
  }
  return all;
}

std::int32_t local_id(std::span<const std::uint32_t> experts, std::int64_t id) {
  for (std::size_t local = 0; local < experts.size(); ++local) {
    if (std::int64_t{experts[local]} == id) return static_cast<std::int32_t>(local);
  }
  return -1;
}

Bytes arriving_row(const MoeRules& rules, std::span<const std::byte> row, std::span<const std::byte> scales) {
  if (!rules.casts) {
    Bytes arriving(row.begin(), row.end());
    arriving.insert(arriving.end(), scales.begin(), scales.end());
    return arriving;
  }
  std::vector<float> values;
  for (std::size_t i = 0; i < rules.hidden; ++i)
    values.push_back(static_cast<float>(number_at(row, rules.row_type, i)));
  Fp8Row cast = cast_row(values, kScaleColumns, rules.scales);
  cast.numbers.insert(cast.numbers.end(), cast.scales.begin(), cast.scales.end());
  return cast.numbers;
}

std::size_t scale_place(const MoeRules& rules, std::size_t capacity, std::size_t rows, std::size_t row,
                        std::size_t byte) {
  const std::size_t bytes = rules.output_scale_bytes();
  if (!rules.by_columns) return row * bytes + byte;
  const std::size_t together = rules.layout == MoeRules::masked ? capacity : rows;
  const std::size_t first = row / together * together;
  const std::size_t column = byte / 4;  // of words, one of each row
  return first * bytes + (column * together + row - first) * 4 + byte % 4;
}

Bytes sum_of_rank(Type type, std::span<const Made> made) {
  const Format format = format_of(type);
  Bytes sums(made[0].row.size());
  for (std::size_t i = 0; i < sums.size() / bytes_of(type); ++i) {
    float sum = made[0].weight * static_cast<float>(value_of(format, get(made[0].row, type, i)));
    for (const Made& next : made.subspan(1))
      sum = std::fma(next.weight, static_cast<float>(value_of(format, get(next.row, type, i))), sum);
    put(sums, type, i, round_to(format, sum));
  }
  return sums;
}

Bytes sum_of_ranks(Type type, std::span<const Bytes> returned, std::span<const std::byte> residual,
                   std::size_t hidden) {
  const Format format = format_of(type);
  Bytes sums(hidden * bytes_of(type));
  std::vector<float> values;
  for (std::size_t i = 0; i < hidden; ++i) {
    values.clear();
    for (const Bytes& row : returned) values.push_back(static_cast<float>(value_of(format, get(row, type, i))));
    if (!residual.empty()) values.push_back(static_cast<float>(value_of(format, get(residual, type, i))));
    float sum = values.empty() ? 0.0f : values[0];
    for (std::size_t next = 1; next < values.size(); ++next) sum += values[next];
    put(sums, type, i, round_to(format, sum));
  }
  return sums;
}

Bytes combined(const MoeRules& rules, std::span<const std::uint32_t> homes, const Routing& routing,
               std::span<const ExpertRows> placed, const MadeOf& made_of, std::uint32_t rank, std::size_t tokens,
               std::span<const std::byte> residual) {
  // For each token, the results of its experts, by the rank that returns them and by ascending expert.
  std::vector<std::map<std::uint32_t, std::vector<std::pair<std::uint32_t, std::size_t>>>> parts(tokens);
  for (std::uint32_t expert = 0; expert < routing.size(); ++expert) {
    for (std::size_t place = 0; place < routing[expert].size(); ++place) {
      const Arrival& arrival = routing[expert][place];
      if (arrival.rank == rank) parts[arrival.token][homes[expert]].emplace_back(expert, place);
    }
  }
  const std::size_t row_bytes = rules.hidden * bytes_of(rules.combine_type);
  Bytes result;
  for (std::size_t token = 0; token < tokens; ++token) {
    std::vector<Bytes> returned;
    for (const auto& [home, of_home] : parts[token]) {
      std::vector<Made> made;
      for (const auto& [expert, place] : of_home) {
        if (place >= placed[expert].kept) continue;  // there was no room
        const bool weighted = rules.weighted && !rules.joint();
        made.push_back({weighted ? routing[expert][place].weight : 1.0f, made_of(expert, place)});
        if (rules.joint()) break;
      }
      returned.push_back(made.empty() ? Bytes(row_bytes) : sum_of_rank(rules.combine_type, made));
    }
    const auto mine = residual.empty() ? residual : residual.subspan(token * row_bytes, row_bytes);
    const Bytes row = sum_of_ranks(rules.combine_type, returned, mine, rules.hidden);
    result.insert(result.end(), row.begin(), row.end());
  }
  return result;
}

}  // namespace weft::oracle
