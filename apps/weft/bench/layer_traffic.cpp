#include "bench/layer_traffic.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <span>

#include "ops/moe/rounds.hpp"
#include "ops/moe/rows_of_rounds.hpp"

namespace weft::cli {

LayerTokens make_layer_tokens(const LayerShape& shape, std::uint32_t rank, std::uint32_t tokens, std::uint32_t layer) {
  LayerTokens made;
  std::mt19937 random(layer * 1'000'003 + rank * 10'007 + tokens);
  const std::uint32_t owners = shape.emulated != 0 ? shape.emulated : 1, local = shape.local();
  const std::uint32_t of_owner = shape.emulated != 0 ? local : shape.experts;
  for (std::uint32_t token = 0; token < tokens; ++token) {
    made.firsts.push_back(static_cast<std::int32_t>(made.sources.size()));
    std::vector<std::uint32_t> chosen;
    while (chosen.size() < shape.top_k) {
      const std::uint32_t expert = random() % shape.experts;
      if (std::ranges::find(chosen, expert) == chosen.end()) chosen.push_back(expert);
    }
    std::map<std::uint32_t, std::vector<std::uint32_t>> by_owner;
    for (const std::uint32_t expert : chosen) by_owner[expert / of_owner].push_back(expert % of_owner);
    for (const auto& [owner, experts] : by_owner) {
      // All owners but this rank are played by the next rank; a rank alone plays all of them.
      const std::uint32_t to = owner == rank % owners ? rank : (rank + 1) % shape.ranks;
      const std::uint32_t first = shape.emulated != 0 ? to * local : 0;
      for (std::uint32_t k = 0; k < shape.top_k; ++k) {
        const bool one = k < experts.size();
        made.ids.push_back(one ? static_cast<std::int32_t>(first + experts[k]) : -1);
        made.weights.push_back(one ? static_cast<float>(random() % 1000 + 1) / 4000.0f : 0.0f);
      }
      made.sources.push_back(static_cast<std::int32_t>(token));
    }
  }
  made.firsts.push_back(static_cast<std::int32_t>(made.sources.size()));
  return made;
}

detail::Rounds divided(const LayerShape& shape, const LayerRounds& division) {
  return detail::divide(shape.local(), {.count = division.rounds,
                                        .experts = division.experts.empty() ? nullptr : division.experts.data()});
}

std::vector<std::int32_t> ids_of_round(const LayerShape& shape, const LayerTokens& tokens,
                                       const detail::ExpertRange& experts) {
  std::vector<std::int32_t> ids = tokens.ids;
  for (std::int32_t& id : ids) {
    const auto of_rank = static_cast<std::uint32_t>(id) % shape.local();
    if (id >= 0 && (of_rank < experts.begin || of_rank >= experts.end)) id = -1;
  }
  return ids;
}

std::vector<std::int32_t> ids_of_rows(const LayerShape& shape, const LayerTokens& tokens, SomeRows rows,
                                      const detail::Rounds& rounds) {
  std::vector<std::int32_t> ids = tokens.ids;
  const auto local = static_cast<std::int32_t>(shape.local());
  const std::int32_t first_end = rounds.end[0];
  const auto last_begin = static_cast<std::int32_t>(rounds.experts(rounds.count - 1).begin);
  for (std::size_t token = 0; rows != SomeRows::all && token < ids.size(); token += shape.top_k) {
    detail::keep_rows(std::span(ids).subspan(token, shape.top_k), local, [&](std::int32_t first, std::int32_t last) {
      return rows == SomeRows::first ? first < first_end : last >= last_begin;
    });
  }
  return ids;
}

}  // namespace weft::cli
