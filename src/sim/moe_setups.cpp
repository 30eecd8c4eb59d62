// Set-ups of dispatch and combine. Rows are as short as the formats allow: one pack where every bit is kept, eight with
// one scale where rows are cast.
#include <fmt/format.h>

#include "sim/setup.hpp"

namespace weft::sim {
namespace {

ExchangeArgs exact(std::uint32_t tokens, std::uint32_t experts, std::uint32_t top_k) {
  return {.tokens = tokens, .hidden = 8, .experts = experts, .top_k = top_k, .capacity = tokens * experts * top_k};
}
ExchangeArgs cast(RowCast how, std::uint32_t tokens, std::uint32_t experts, std::uint32_t top_k) {
  ExchangeArgs args = exact(tokens, experts, top_k);
  args.hidden = kScaleColumns;
  args.cast = how;
  return args;
}

// Dispatches and combines on streams of their own: each dispatch runs beside the combine of the one before, and takes a
// generation when the combine that had it last has ended.
std::vector<CallSetup> beside_each_other(std::vector<CallSetup> calls, int generations) {
  for (int call = 0; call < static_cast<int>(calls.size()); ++call) {
    const bool dispatches = calls[static_cast<std::size_t>(call)].moving == Moving::dispatch;
    calls[static_cast<std::size_t>(call)].after = dispatches ? std::max(call - 2 * generations + 1, -1) : call - 1;
  }
  return calls;
}

}  // namespace

std::vector<CallSetup> moe_rounds(const std::vector<Routing>& routings, const std::vector<Grid>& grids) {
  std::vector<CallSetup> calls;
  for (const Routing& ids : routings) {
    const auto dispatch = static_cast<int>(calls.size());
    calls.push_back({.grids = grids, .moving = Moving::dispatch, .ids = ids});
    calls.push_back({.grids = grids, .group = 1, .moving = Moving::combine, .of = dispatch});
  }
  return calls;
}

// One token on each of two ranks, which have one expert each.
std::vector<Setup> small_moe_setups() {
  const std::vector<CallSetup> rounds = moe_rounds({{{1}, {0}}, {{1}, {-1}}, {{0}, {0}}});
  const std::vector<CallSetup> two_rounds = moe_rounds({{{1}, {0}}, {{1}, {}}});
  constexpr Payload special = Payload::special;
  return {
      {.name = "moe-exact", .payload = special, .calls = rounds, .exchange = exact(1, 2, 1)},
      {.name = "moe-exact-torn8", .atomic_bytes = 8, .payload = special, .calls = rounds, .exchange = exact(1, 2, 1)},
      {.name = "moe-exact-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .payload = special,
       .calls = rounds,
       .exchange = exact(1, 2, 1)},
      {.name = "moe-cast", .calls = two_rounds, .bound = 1, .exchange = cast(RowCast::fp8, 1, 2, 1)},
      {.name = "moe-beside",
       .side_by_side = true,
       .payload = special,
       .calls = beside_each_other(rounds, 2),
       .bound = 1,
       .exchange = exact(1, 2, 1)},
      {.name = "moe-wrap31",
       .start_epoch = 0x7ffffffeu,
       .calls = moe_rounds({{{1}, {}}, {{}, {0}}, {{}, {}}, {{1}, {0}}}),
       .bound = 1,
       .exchange = exact(2, 2, 1)},
  };
}

std::vector<Setup> large_moe_setups() {
  std::vector<Setup> setups;
  return setups;
}

}  // namespace weft::sim
