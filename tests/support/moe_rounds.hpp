// Dispatches and combines in rounds of experts, the same for CPU ranks and GPU ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "support/moe_batches.hpp"
#include "weft/moe.hpp"

namespace weft::test {

// Experts of each round.
using Division = std::vector<std::uint32_t>;

inline ExpertRounds rounds_of(const Division& division) {
  return {.count = static_cast<std::uint32_t>(division.size()), .experts = division.data()};
}
// The local expert behind a round.
std::uint32_t end_of(const Division& division, std::size_t round);

// Even ones of 1, 2, 3, 4, 8 and all rounds, and uneven ones with empty rounds, for the rank that has most experts.
std::vector<Division> every_division(const MoeExchangeArgs& args, std::uint32_t ranks);

// The rows of a dispatch's output that belong to experts below local number `end`. With `alone`, without those that
// later experts share (rank-major).
std::vector<std::size_t> rows_below(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t end, bool alone);
// Puts those of `all` expert_rows() that these experts alone have made into `made`. The others have made nothing yet.
void put_rows_below(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t end,
                    std::span<const std::byte> all, std::span<std::byte> made);
Bytes expert_rows_below(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t end);

// Throws if a row of these experts is not in the output `got`.
void expect_rows_below(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t end,
                       std::span<const std::byte> got, std::span<const std::byte> wanted);

// Makes a dispatch and its combine in rounds, and checks the output behind each round. A side has the tensors of one
// call: dispatch(), combine(handle), check_rows(end), make_results(end), check_dispatch(), check_combine().
template <class Side>
void exchange_in_rounds(const MoeExchange& exchange, Side& side, const Division& division) {
  DispatchArgs there = side.dispatch();
  there.rounds = rounds_of(division);
  const DispatchHandle handle = exchange.dispatch_send(there);
  CombineArgs back = side.combine(handle);
  back.rounds = rounds_of(division);
  for (std::uint32_t round = 0; round < division.size(); ++round) {
    there.round = back.round = round;
    exchange.dispatch_wait(handle, there);
    side.check_rows(end_of(division, round));
    side.make_results(end_of(division, round));
    exchange.combine_send(back);
  }
  exchange.combine_wait(back);
  side.check_dispatch();
  side.check_combine();
}

}  // namespace weft::test
