#include "support/moe_rounds.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "support/bytes.hpp"

namespace weft::test {

std::uint32_t end_of(const Division& division, std::size_t round) {
  return std::accumulate(division.begin(), division.begin() + static_cast<std::ptrdiff_t>(round) + 1, 0u);
}

namespace {

std::uint32_t most_experts(const MoeExchangeArgs& args, std::uint32_t ranks) {
  std::vector<std::uint32_t> count(ranks);
  for (const std::uint32_t rank : args.rank_of_expert) ++count[rank];
  for (const std::vector<std::uint32_t>& replicas : args.ranks_of_expert) {
    for (const std::uint32_t rank : replicas) ++count[rank];
  }
  const std::uint32_t most = *std::ranges::max_element(count);
  return most != 0 ? most : (args.experts + ranks - 1) / ranks;
}

}  // namespace

std::vector<Division> every_division(const MoeExchangeArgs& args, std::uint32_t ranks) {
  const std::uint32_t experts = most_experts(args, ranks);
  std::vector<Division> all{{0, experts}, {experts, 0}, {experts - 1, 0, 1}};
  if (experts > 2) all.push_back({1, experts - 2, 1});
  for (const std::uint32_t count : {1u, 2u, 3u, 4u, 8u, std::min(experts, 16u)}) {
    Division even(count, experts / count);
    for (std::uint32_t round = 0; round < experts % count; ++round) ++even[round];
    all.push_back(even);
  }
  return all;
}

std::vector<std::size_t> rows_below(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t end, bool alone) {
  std::set<std::size_t> rows;
  for (std::uint32_t local = 0; local < exchange.local_experts(); ++local) {
    const ExpertRows& placed = p.placed[exchange.experts()[local]];
    for (std::size_t place = 0; place < placed.kept; ++place) {
      if (local < end) {
        rows.insert(placed.row[place]);
      } else if (alone) {
        rows.erase(placed.row[place]);
      }
    }
  }
  return {rows.begin(), rows.end()};
}

void expect_rows_below(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t end,
                       std::span<const std::byte> got, std::span<const std::byte> wanted) {
  const std::size_t row = exchange.output_rows() != 0 ? wanted.size() / exchange.output_rows() : 0;
  for (const std::size_t at : rows_below(exchange, p, end, false)) {
    expect_bytes(got.subspan(at * row, row), wanted.subspan(at * row, row),
                 "row " + std::to_string(at) + " of experts below " + std::to_string(end));
  }
}

void put_rows_below(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t end,
                    std::span<const std::byte> all, std::span<std::byte> made) {
  const std::size_t row = std::size_t{p.call.args.hidden} * 2;
  fill_bytes(made, std::byte{0x5a});
  for (const std::size_t at : rows_below(exchange, p, end, true))
    copy_bytes(all.subspan(at * row, row), made.subspan(at * row));
}

Bytes expert_rows_below(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t end) {
  const Bytes all = expert_rows(exchange, p);
  Bytes made(all.size());
  put_rows_below(exchange, p, end, all, made);
  return made;
}

}  // namespace weft::test
