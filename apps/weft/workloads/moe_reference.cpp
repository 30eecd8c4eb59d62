#include "workloads/moe_reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace weft::cli {

oracle::Bytes expert_row(const MoeTraffic& traffic, std::uint32_t expert, std::uint32_t rank, std::uint32_t token) {
  const std::uint32_t seed = expert * 7 + rank * 131 + token * 17;
  const DataType type = traffic.exchange().combine_type;
  oracle::Bytes row(std::size_t{traffic.exchange().hidden} * 2);
  for (std::uint32_t i = 0; i < traffic.exchange().hidden; ++i)
    oracle::put(row, type, i,
                oracle::round_to(oracle::format_of(type),
                                 static_cast<float>(static_cast<int>((seed + i) % 257) - 128) / 64.0f));
  return row;
}

oracle::Bytes joint_row(const MoeTraffic& traffic, std::span<const std::uint32_t> experts, std::uint32_t rank,
                        std::uint32_t token) {
  const std::uint32_t top_k = traffic.exchange().top_k;
  const RankTokens& of = traffic.tokens(rank);
  std::vector<oracle::Made> made;
  for (const std::uint32_t expert : experts) {
    for (std::size_t entry = std::size_t{token} * top_k; entry < (std::size_t{token} + 1) * top_k; ++entry) {
      if (of.ids[entry] == static_cast<std::int32_t>(expert))
        made.push_back({of.weights[entry], expert_row(traffic, expert, rank, token)});
    }
  }
  return oracle::sum_of_rank(traffic.exchange().combine_type, made);
}

std::string check_row(const MoeTraffic& traffic, std::uint32_t rank, std::uint32_t token, const std::uint8_t* row,
                      const std::uint8_t* scales) {
  const oracle::MoeRules rules(traffic.exchange());
  const auto sent =
      std::as_bytes(std::span(traffic.tokens(rank).rows)).subspan(token * rules.row_bytes, rules.row_bytes);
  const oracle::Bytes wanted = oracle::arriving_row(rules, sent, {});
  if (!rules.casts) return std::memcmp(row, wanted.data(), wanted.size()) == 0 ? "" : "other bits than its token";
  const std::byte* const wanted_scales = wanted.data() + rules.hidden;
  const std::size_t groups = rules.hidden / oracle::kScaleColumns, scale_bytes = rules.arriving_scale_bytes() / groups;
  for (std::size_t g = 0; g < groups; ++g) {
    if (std::memcmp(scales + g * scale_bytes, wanted_scales + g * scale_bytes, scale_bytes) != 0)
      return fmt::format("scale {}", g);
    for (std::size_t i = g * oracle::kScaleColumns; i < (g + 1) * oracle::kScaleColumns; ++i)
      if (std::byte{row[i]} != wanted[i]) return fmt::format("column {}", i);
  }
  return {};
}

std::string check_payload(const MoeTraffic& traffic, std::uint32_t rank, std::uint32_t token, std::size_t number,
                          const std::uint8_t* payload) {
  const std::size_t bytes = traffic.exchange().payload_bytes[number];
  const std::byte* const sent = traffic.tokens(rank).payloads[number].data() + token * bytes;
  return std::memcmp(payload, sent, bytes) == 0 ? "" : fmt::format("other bits in payload {}", number);
}

std::string check_entries(const MoeTraffic& traffic, std::span<const std::uint32_t> experts, std::uint32_t rank,
                          std::uint32_t token, const std::int32_t* ids, const float* weights) {
  const std::uint32_t top_k = traffic.exchange().top_k;
  for (std::uint32_t k = 0; k < top_k; ++k) {
    const std::size_t entry = std::size_t{token} * top_k + k;
    const std::int32_t id = oracle::local_id(experts, traffic.tokens(rank).ids[entry]);
    const float weight = id >= 0 ? traffic.tokens(rank).weights[entry] : 0;
    if (ids[k] != id) return fmt::format("id {} is {}, not {}", k, ids[k], id);
    if (traffic.exchange().weighted && weights[k] != weight) {
      return fmt::format("weight {} is {}, not {}", k, weights[k], weight);
    }
  }
  return {};
}

std::string check_combined(const MoeTraffic& traffic, std::uint32_t rank, const std::uint16_t* rows) {
  const std::size_t row_bytes = std::size_t{traffic.exchange().hidden} * 2;
  const bool joint = oracle::MoeRules(traffic.exchange()).joint();
  const auto made_of = [&](std::uint32_t expert, std::size_t place) {
    const std::uint32_t token = traffic.routing()[expert][place].token;
    if (!joint) return expert_row(traffic, expert, rank, token);
    return joint_row(traffic, traffic.experts(traffic.homes()[expert]), rank, token);
  };
  const oracle::Bytes wanted = oracle::combined(traffic.exchange(), traffic.homes(), traffic.routing(),
                                                traffic.placed(), made_of, rank, traffic.token_count(), {});
  const auto got = std::as_bytes(std::span(rows, wanted.size() / 2));
  const auto [right, wrong] = std::ranges::mismatch(wanted, got);
  if (right == wanted.end()) return {};
  const auto at = static_cast<std::size_t>(right - wanted.begin());
  return fmt::format("combined row {}: column {}", at / row_bytes, at % row_bytes / 2);
}

}  // namespace weft::cli
