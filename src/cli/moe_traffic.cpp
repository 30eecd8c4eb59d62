#include "moe_traffic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "core/numeric.hpp"

namespace weft::cli {
namespace {

// The `count` highest scores.
std::vector<std::int32_t> best(const std::vector<double>& scores, std::size_t count) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(order.begin(), middle, order.end(), [&](std::int32_t a, std::int32_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(count);
  return order;
}

std::vector<std::int32_t> choose(std::mt19937& random, const ModelShape& model, Traffic traffic, std::size_t experts,
                                 std::size_t top_k) {
  std::uniform_real_distribution<double> uniform(1e-9, 1.0);
  std::vector<double> scores(experts);
  for (std::size_t e = 0; e < experts; ++e) {
    // The largest of log(u) / w are a choice with weights w, without repetition.
    const double weight = traffic == Traffic::zipf ? 1.0 / static_cast<double>((e * 97 + 13) % experts + 1) : 1.0;
    scores[e] = traffic == Traffic::zipf ? std::log(uniform(random)) / weight : uniform(random);
  }
  if (traffic == Traffic::hot) scores[0] = 2;
  if (traffic == Traffic::grouped && model.n_group > 1) {
    const std::size_t size = experts / static_cast<std::size_t>(model.n_group);
    std::vector<double> groups;
    for (std::size_t first = 0; first + size <= experts; first += size) {
      const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(first);
      std::vector<double> group(begin, begin + static_cast<std::ptrdiff_t>(size));
      std::partial_sort(group.begin(), group.begin() + 2, group.end(), std::greater<>());
      groups.push_back(group[0] + group[1]);
    }
    std::vector<bool> chosen(groups.size());
    for (const std::int32_t g : best(groups, static_cast<std::size_t>(model.topk_group))) {
      chosen[static_cast<std::size_t>(g)] = true;
    }
    for (std::size_t e = 0; e < experts; ++e) {
      if (!chosen[std::min(e / size, chosen.size() - 1)]) scores[e] = -1;
    }
  }
  return best(scores, top_k);
}

float bf16(std::uint16_t bits) {
  return detail::bf16_to_f32(bits);
}

}  // namespace

MoeTraffic::MoeTraffic(const ModelShape& model, const ExchangeArgs& exchange, Traffic traffic, int ranks,
                       std::uint32_t tokens)
    : exchange_(exchange), ranks_(ranks), token_count_(tokens), arrivals_(exchange.experts) {
  for (int rank = 0; rank < ranks; ++rank) {
    std::mt19937 random(static_cast<std::uint32_t>(rank) * 7919u + tokens);
    RankTokens mine;
    for (std::size_t i = 0; i < std::size_t{tokens} * exchange.hidden; ++i) {
      const float value = static_cast<float>(static_cast<int>(random() >> 16) % 2001 - 1000) / 512.0f;
      mine.rows.push_back(detail::f32_to_bf16(value));
    }
    for (std::uint32_t token = 0; token < tokens; ++token) {
      std::vector<bool> seen(static_cast<std::size_t>(ranks));
      for (const std::int32_t id : choose(random, model, traffic, exchange.experts, exchange.top_k)) {
        const float weight = static_cast<float>(random() % 1000 + 1) / 1000.0f;
        mine.ids.push_back(id);
        mine.weights.push_back(weight);
        arrivals_[static_cast<std::size_t>(id)].push_back({static_cast<std::uint32_t>(rank), token, weight});
        seen[home(id)] = true;
      }
      seen[static_cast<std::size_t>(rank)] = false;
      wire_rows_ += static_cast<double>(std::count(seen.begin(), seen.end(), true)) / ranks;
    }
    tokens_.push_back(std::move(mine));
  }
}

std::size_t MoeTraffic::home(std::int32_t expert) const {
  const std::uint32_t ranks = static_cast<std::uint32_t>(ranks_), number = static_cast<std::uint32_t>(expert);
  const std::uint32_t least = exchange_.experts / ranks, more = exchange_.experts % ranks;
  return number < more * (least + 1) ? number / (least + 1) : more + (number - more * (least + 1)) / least;
}

std::vector<std::uint16_t> MoeTraffic::expert_row(std::uint32_t expert, const Arrival& arrival) const {
  const std::uint32_t seed = expert * 7 + arrival.rank * 131 + arrival.token * 17;
  std::vector<std::uint16_t> row(exchange_.hidden);
  for (std::uint32_t i = 0; i < exchange_.hidden; ++i) {
    row[i] = detail::f32_to_bf16(static_cast<float>(static_cast<int>((seed + i) % 257) - 128) / 64.0f);
  }
  return row;
}

std::vector<std::uint16_t> MoeTraffic::joint_row(std::span<const std::uint32_t> experts, const Arrival& arrival) const {
  const RankTokens& of = tokens(static_cast<int>(arrival.rank));
  std::vector<float> sum(exchange_.hidden);
  bool first = true;
  for (const std::uint32_t expert : experts) {
    for (std::uint32_t k = 0; k < exchange_.top_k; ++k) {
      const std::size_t entry = std::size_t{arrival.token} * exchange_.top_k + k;
      if (of.ids[entry] != static_cast<std::int32_t>(expert)) continue;
      const auto row = expert_row(expert, arrival);
      const float weight = of.weights[entry];
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] = first ? weight * bf16(row[i]) : std::fma(weight, bf16(row[i]), sum[i]);
      }
      first = false;
    }
  }
  std::vector<std::uint16_t> joint;
  for (const float value : sum) joint.push_back(detail::f32_to_bf16(value));
  return joint;
}

std::string MoeTraffic::check_count(std::uint32_t expert, std::int32_t count) const {
  const std::size_t wanted = arrivals_[expert].size();
  if (count == static_cast<std::int32_t>(wanted)) return {};
  return fmt::format("expert {} counts {} rows, not {}", expert, count, wanted);
}

std::string MoeTraffic::check_row(std::uint32_t expert, std::size_t place, const std::uint8_t* got,
                                  const std::uint8_t* scales) const {
  const Arrival& arrival = arrivals_[expert][place];
  const std::size_t hidden = exchange_.hidden;
  const std::uint16_t* const row = &tokens_[arrival.rank].rows[arrival.token * hidden];
  const std::string where = fmt::format("expert {}, row {}", expert, place);
  if (exchange_.cast == RowCast::none) {
    return std::memcmp(got, row, hidden * 2) == 0 ? "" : where + ": other bits than its token";
  }
  for (std::size_t g = 0; g < hidden / kScaleColumns; ++g) {
    float amax = 1e-4f;
    for (std::size_t i = 0; i < kScaleColumns; ++i) amax = std::max(amax, std::fabs(bf16(row[g * kScaleColumns + i])));
    const float scale = amax / 448.0f, inverse = 448.0f / amax;
    if (std::memcmp(scales + g * 4, &scale, 4) != 0) return fmt::format("{}: scale {}", where, g);
    for (std::size_t i = g * kScaleColumns; i < (g + 1) * kScaleColumns; ++i) {
      if (got[i] != detail::f32_to_e4m3(bf16(row[i]) * inverse)) return fmt::format("{}: column {}", where, i);
    }
  }
  return {};
}

std::string MoeTraffic::check_combined(int rank, const std::uint16_t* rows) const {
  const RankTokens& mine = tokens(rank);
  for (std::uint32_t token = 0; token < token_count_; ++token) {
    std::vector<std::pair<std::int32_t, float>> entries;
    for (std::uint32_t k = 0; k < exchange_.top_k; ++k) {
      entries.emplace_back(mine.ids[token * exchange_.top_k + k], mine.weights[token * exchange_.top_k + k]);
    }
    std::sort(entries.begin(), entries.end());  // blocks of experts ascend with ranks
    std::vector<float> total(exchange_.hidden), part(exchange_.hidden);
    bool first_rank = true;
    for (std::size_t e = 0; e < entries.size(); ++e) {
      const auto [id, weight] = entries[e];
      const auto row = expert_row(static_cast<std::uint32_t>(id), {static_cast<std::uint32_t>(rank), token, weight});
      const bool first = e == 0 || home(entries[e - 1].first) != home(id);
      const bool last = e + 1 == entries.size() || home(entries[e + 1].first) != home(id);
      for (std::size_t i = 0; i < part.size(); ++i) {
        part[i] = first ? weight * bf16(row[i]) : std::fma(weight, bf16(row[i]), part[i]);
        if (!last) continue;
        const float returned = bf16(detail::f32_to_bf16(part[i]));
        total[i] = first_rank ? returned : total[i] + returned;
      }
      if (last) first_rank = false;
    }
    for (std::size_t i = 0; i < total.size(); ++i) {
      if (rows[token * total.size() + i] == detail::f32_to_bf16(total[i])) continue;
      return fmt::format("combined row {}: column {}", token, i);
    }
  }
  return {};
}

}  // namespace weft::cli
