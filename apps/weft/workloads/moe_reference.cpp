#include "workloads/moe_reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "numeric/numeric.hpp"
#include "workloads/reference.hpp"

namespace weft::cli {
namespace {

float widen(RowType type, std::uint16_t bits) {
  return type == RowType::f16 ? detail::f16_to_f32(bits) : detail::bf16_to_f32(bits);
}
RowType combined_type(const ExchangeArgs& exchange) {
  return exchange.combine_type == DataType::f16 ? RowType::f16 : RowType::bf16;
}

Fp8Scale scale_of(const ExchangeArgs& exchange, const std::uint16_t* row) {
  float largest = 0;
  for (std::size_t i = 0; i < kScaleColumns; ++i) largest = std::max(largest, std::fabs(widen(exchange.type, row[i])));
  return fp8_scale(largest, exchange.cast == RowCast::fp8_ue8m0);
}

// Adds `weight` times a row to `sum`, as combine does.
void add_row(std::vector<float>& sum, const std::vector<std::uint16_t>& row, RowType type, float weight, bool first) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const float value = widen(type, row[i]);
    sum[i] = first ? weight * value : std::fma(weight, value, sum[i]);
  }
}

}  // namespace

std::uint16_t narrow(RowType type, float value) {
  return type == RowType::f16 ? detail::f32_to_f16(value) : detail::f32_to_bf16(value);
}

std::vector<std::uint16_t> expert_row(const MoeTraffic& traffic, std::uint32_t expert,
                                      const MoeTraffic::Arrival& arrival) {
  const std::uint32_t seed = expert * 7 + arrival.rank * 131 + arrival.token * 17;
  std::vector<std::uint16_t> row(traffic.exchange().hidden);
  for (std::uint32_t i = 0; i < row.size(); ++i) {
    row[i] =
        narrow(combined_type(traffic.exchange()), static_cast<float>(static_cast<int>((seed + i) % 257) - 128) / 64.0f);
  }
  return row;
}

std::vector<std::uint16_t> joint_row(const MoeTraffic& traffic, std::span<const std::uint32_t> experts,
                                     const MoeTraffic::Arrival& arrival) {
  const ExchangeArgs& exchange = traffic.exchange();
  const RankTokens& of = traffic.tokens(arrival.rank);
  const RowType type = combined_type(exchange);
  std::vector<float> sum(exchange.hidden);
  bool first = true;
  for (const std::uint32_t expert : experts) {
    for (std::uint32_t k = 0; k < exchange.top_k; ++k) {
      const std::size_t entry = std::size_t{arrival.token} * exchange.top_k + k;
      if (of.ids[entry] != static_cast<std::int32_t>(expert)) continue;
      add_row(sum, expert_row(traffic, expert, arrival), type, of.weights[entry], first);
      first = false;
    }
  }
  std::vector<std::uint16_t> joint;
  for (const float value : sum) joint.push_back(narrow(type, value));
  return joint;
}

std::string check_row(const MoeTraffic& traffic, const MoeTraffic::Arrival& arrival, const std::uint8_t* row,
                      const std::uint8_t* scales) {
  const ExchangeArgs& exchange = traffic.exchange();
  const std::size_t hidden = exchange.hidden;
  const std::uint16_t* const sent = &traffic.tokens(arrival.rank).rows[arrival.token * hidden];
  if (exchange.cast == RowCast::none) return std::memcmp(row, sent, hidden * 2) == 0 ? "" : "other bits than its token";
  for (std::size_t g = 0; g < hidden / kScaleColumns; ++g) {
    const Fp8Scale wanted = scale_of(exchange, sent + g * kScaleColumns);
    const bool right = exchange.cast == RowCast::fp8 ? std::memcmp(scales + g * 4, &wanted.scale, 4) == 0
                                                     : scales[g] == std::ilogb(wanted.scale) + 127;
    if (!right) return fmt::format("scale {}", g);
    for (std::size_t i = g * kScaleColumns; i < (g + 1) * kScaleColumns; ++i) {
      if (row[i] != detail::f32_to_e4m3(widen(exchange.type, sent[i]) * wanted.inverse)) {
        return fmt::format("column {}", i);
      }
    }
  }
  return {};
}

std::string check_entries(const MoeTraffic& traffic, std::span<const std::uint32_t> experts, std::uint32_t rank,
                          std::uint32_t token, const std::int32_t* ids, const float* weights) {
  const std::uint32_t top_k = traffic.exchange().top_k;
  for (std::uint32_t k = 0; k < top_k; ++k) {
    const std::size_t entry = std::size_t{token} * top_k + k;
    const auto found = std::ranges::find(experts, static_cast<std::uint32_t>(traffic.tokens(rank).ids[entry]));
    const bool here = found != experts.end();
    const auto id = here ? static_cast<std::int32_t>(found - experts.begin()) : -1;
    const float weight = here ? traffic.tokens(rank).weights[entry] : 0;
    if (ids[k] != id) return fmt::format("id {} is {}, not {}", k, ids[k], id);
    if (traffic.exchange().weighted && weights[k] != weight) {
      return fmt::format("weight {} is {}, not {}", k, weights[k], weight);
    }
  }
  return {};
}

std::string check_combined(const MoeTraffic& traffic, std::uint32_t rank, const std::uint16_t* rows) {
  const ExchangeArgs& exchange = traffic.exchange();
  const RankTokens& mine = traffic.tokens(rank);
  const RowType type = combined_type(exchange);
  for (std::uint32_t token = 0; token < traffic.token_count(); ++token) {
    std::vector<std::tuple<std::int32_t, float, bool>> entries;
    for (std::size_t i = std::size_t{token} * exchange.top_k; i < (token + std::size_t{1}) * exchange.top_k; ++i) {
      entries.emplace_back(mine.ids[i], mine.weights[i], mine.kept[i]);
    }
    std::ranges::sort(entries);  // blocks of experts are in the order of their ranks
    std::vector<float> total(exchange.hidden);
    bool first_rank = true;
    for (std::size_t e = 0; e < entries.size(); first_rank = false) {
      const std::uint32_t home = traffic.home(std::get<0>(entries[e]));
      std::vector<float> part(exchange.hidden);
      bool first = true;
      for (; e < entries.size() && traffic.home(std::get<0>(entries[e])) == home; ++e) {
        const auto [id, weight, kept] = entries[e];
        if (!kept) continue;
        const MoeTraffic::Arrival arrival{.rank = rank, .token = token, .row = 0, .kept = true};
        add_row(part, expert_row(traffic, static_cast<std::uint32_t>(id), arrival), type, weight, first);
        first = false;
      }
      for (std::size_t i = 0; i < part.size(); ++i) {
        const float returned = widen(type, narrow(type, part[i]));
        total[i] = first_rank ? returned : total[i] + returned;
      }
    }
    for (std::size_t i = 0; i < total.size(); ++i) {
      if (rows[token * total.size() + i] == narrow(type, total[i])) continue;
      return fmt::format("combined row {}: column {}", token, i);
    }
  }
  return {};
}

}  // namespace weft::cli
