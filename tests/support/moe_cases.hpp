// Dispatch and combine with known answers.
#pragma once

#include <vector>

#include "support/moe.hpp"
#include "weft/moe.hpp"

namespace weft::test {

enum class Choice { uniform, none, one_expert, duplicates, holes };

struct MoeCase {
  ExchangeArgs args;
  std::vector<std::uint32_t> tokens;  // by rank; the last one serves the rest
  Choice choice = Choice::uniform;
  bool any_bits = false;  // rows of any bit pattern, many of which are the wire's resting words
  bool residual = false;
  bool wide_ids = false;
};

// One call of each, with everybody's data, and what is right.
struct PreparedMoe {
  MoeCase call;
  std::vector<Tokens> tokens;
  Routing routing;
  std::vector<std::uint32_t> rank_of;
  std::vector<std::vector<Bytes>> outputs;  // of experts, by place
  std::vector<Bytes> residuals, results;    // by rank
};

PreparedMoe prepare(const MoeCase& c, std::uint32_t ranks, std::uint32_t seed);

// Makes the call on a CPU rank of the group and throws where anything is wrong, in what it wrote and what it left.
Ticket dispatch_and_check(const Exchange& exchange, const PreparedMoe& p, std::uint32_t rank, bool discard = false);
void combine_and_check(const Exchange& exchange, const PreparedMoe& p, std::uint32_t rank, Ticket ticket);

}  // namespace weft::test
