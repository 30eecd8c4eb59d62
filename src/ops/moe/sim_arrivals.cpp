#include "ops/moe/sim_arrivals.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "ops/moe/rounds.hpp"

namespace weft::sim {

using detail::ExchangeShape;

// The replica that serves an id; an expert without replicas serves its own.
std::optional<std::uint32_t> AllReduceProgram::replica_of(std::int64_t id, unsigned rank, std::uint32_t token) const {
  if (id < 0 || id >= setup_.exchange.experts) return std::nullopt;
  const auto expert = static_cast<std::uint32_t>(id);
  const std::vector<std::uint32_t>& first = plan_of(world_).map().first_replica;
  return first.empty() ? expert : first[expert] + (rank + token) % (first[expert + 1] - first[expert]);
}

// Arrivals by replica.
std::vector<std::vector<AllReduceProgram::Arrival>> AllReduceProgram::arrivals(unsigned dispatch) const {
  const std::uint32_t top_k = setup_.exchange.top_k;
  std::vector<std::vector<Arrival>> by_expert(plan_of(world_).map().homes.size());
  for (unsigned rank = 0; rank < setup_.ranks; ++rank) {
    const std::vector<std::int64_t>& ids = ids_of(setup_.calls[dispatch], rank);
    for (std::uint32_t i = 0; i < ids.size(); ++i) {
      const std::optional<std::uint32_t> replica = replica_of(ids[i], rank, i / top_k);
      if (replica) by_expert[*replica].push_back({rank, i / top_k, weight_of(routing_of(dispatch), rank, i)});
    }
  }
  return by_expert;
}

// The row of each expert's begin in the output of its rank; by rank: nothing.
std::vector<std::size_t> AllReduceProgram::beginnings(const std::vector<std::vector<Arrival>>& by_expert) const {
  const ExchangeShape& shape = plan_of(world_).shape(0);
  const std::vector<detail::ExpertHome>& homes = plan_of(world_).map().homes;
  std::vector<std::size_t> all(by_expert.size()), next(setup_.ranks);
  std::vector<std::uint32_t> in_order(by_expert.size());  // empty places lie between experts
  std::iota(in_order.begin(), in_order.end(), 0);
  std::ranges::stable_sort(in_order, {}, [&](std::uint32_t expert) { return homes[expert].local; });
  for (const std::uint32_t expert : in_order) {
    const auto [home, local] = homes[expert];
    const bool masked = shape.layout == RowLayout::expert_masked;
    all[expert] = masked ? std::size_t{local} * shape.capacity : next[home];
    next[home] += (by_expert[expert].size() + shape.alignment - 1) / shape.alignment * shape.alignment;
  }
  return all;
}

namespace {

// The tokens that have a row on a rank, as (source, token).
using Sources = std::set<std::pair<unsigned, std::uint32_t>>;
template <class Arrivals>
Sources sources_of(const Arrivals& by_expert, const std::vector<detail::ExpertHome>& homes, unsigned rank) {
  Sources sources;
  for (std::size_t expert = 0; expert < by_expert.size(); ++expert) {
    for (const auto& arrival : by_expert[expert])
      if (homes[expert].rank == rank) sources.emplace(arrival.rank, arrival.token);
  }
  return sources;
}

}  // namespace

std::int32_t AllReduceProgram::rows_for(const std::vector<std::vector<Arrival>>& by_expert, unsigned source,
                                        unsigned rank) const {
  std::int32_t rows = 0;
  for (const auto& [from, token] : sources_of(by_expert, plan_of(world_).map().homes, rank)) rows += from == source;
  return rows;
}

// The output's row for one arrival; none if there is no room.
std::optional<std::size_t> AllReduceProgram::row_of(const std::vector<std::vector<Arrival>>& by_expert,
                                                    std::uint32_t expert, std::size_t place,
                                                    std::size_t beginning) const {
  const ExchangeShape& shape = plan_of(world_).shape(0);
  const std::vector<detail::ExpertHome>& homes = plan_of(world_).map().homes;
  const Arrival& arrival = by_expert[expert][place];
  if (shape.layout == RowLayout::rank_major) return std::size_t{arrival.rank} * shape.tokens + arrival.token;
  if (shape.layout == RowLayout::rank_compact) {
    const Sources here = sources_of(by_expert, homes, homes[expert].rank);
    const auto before = std::distance(here.begin(), here.find({arrival.rank, arrival.token}));
    return before < shape.capacity ? std::optional(static_cast<std::size_t>(before)) : std::nullopt;
  }
  const bool masked = shape.layout == RowLayout::expert_masked;
  if ((masked ? place : beginning + place) >= shape.capacity) return std::nullopt;
  return beginning + place;
}

}  // namespace weft::sim
