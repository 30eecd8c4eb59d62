// Counts that a dispatch tells the host (DispatchArgs::host_counts).
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <set>
#include <stdexcept>
#include <vector>

#include "support/moe_cases.hpp"

namespace weft::test {

// The number of words of a rank.
inline std::size_t host_words(const MoeExchange& exchange, std::size_t ranks) {
  return exchange.local_experts() + (exchange.args().layout == RowLayout::rank_compact ? 2 : 1) * ranks;
}

// The right words of a rank, without their stamps.
inline std::vector<std::uint32_t> host_counts(const MoeExchange& exchange, const PreparedMoe& p) {
  std::vector<std::uint32_t> counts;
  for (const std::uint32_t expert : exchange.experts())
    counts.push_back(static_cast<std::uint32_t>(p.routing[expert].size()));
  for (const Tokens& tokens : p.tokens) counts.push_back(tokens.count);
  if (p.call.args.layout != RowLayout::rank_compact) return counts;
  for (std::uint32_t source = 0; source < p.tokens.size(); ++source) {
    std::set<std::uint32_t> tokens;
    for (const std::uint32_t expert : exchange.experts()) {
      for (const Arrival& arrival : p.routing[expert])
        if (arrival.rank == source) tokens.insert(arrival.token);
    }
    counts.push_back(static_cast<std::uint32_t>(tokens.size()));
  }
  return counts;
}

// After the call: all words have one stamp, which is odd and not `before`.
inline void expect_host_counts(std::uint64_t* words, const std::vector<std::uint32_t>& counts, std::uint32_t before) {
  const std::uint32_t stamp = read_host_count(words).stamp;
  if (stamp % 2 == 0 || stamp == before) throw std::runtime_error(fmt::format("a stamp of {}", stamp));
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const HostCount got = read_host_count(words + i);
    if (got == HostCount{.count = counts[i], .stamp = stamp}) continue;
    throw std::runtime_error(
        fmt::format("word {} is {} with stamp {}, not {} with {}", i, got.count, got.stamp, counts[i], stamp));
  }
}

// While the call runs: reads each word until its stamp is another than `before`. `check()` may end it by throwing.
template <class Check>
std::vector<std::uint32_t> poll_host_counts(std::uint64_t* words, std::size_t size, std::uint32_t before, Check check) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::vector<std::uint32_t> counts;
  for (std::size_t i = 0; i < size; ++i) {
    HostCount got;
    while ((got = read_host_count(words + i)).stamp == before) {
      check();
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error(fmt::format("word {} does not come", i));
    }
    counts.push_back(got.count);
  }
  return counts;
}

}  // namespace weft::test
