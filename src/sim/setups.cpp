#include <fmt/format.h>

#include <algorithm>

#include "sim/fault_setups.hpp"
#include "sim/setup.hpp"
#include "weft/error.hpp"

namespace weft::sim {
namespace {

// Adds a replay of an earlier call.
void replay(std::vector<CallSetup>& calls, int recorded, int only = -1) {
  CallSetup again = calls[static_cast<std::size_t>(recorded)];
  again.replays = recorded;
  again.only = only;
  calls.push_back(std::move(again));
}

}  // namespace

std::vector<CallSetup> replays(const std::vector<CallSetup>& eager) {
  std::vector<CallSetup> calls{eager[0], eager[1]};
  for (std::size_t i = 2; i <= eager.size(); ++i) {
    replay(calls, 0);
    replay(calls, 1);
    if (i < eager.size()) calls.push_back(eager[i]);
  }
  return calls;
}

std::vector<CallSetup> releases(const std::vector<CallSetup>& eager, int last_rank) {
  const CallSetup release{.act = Act::release};
  std::vector<CallSetup> calls{eager[0], release};
  replay(calls, 0);
  calls.push_back({.act = Act::acquire});
  replay(calls, 0);
  calls.insert(calls.end(), {eager[1], release, {.act = Act::acquire_elsewhere}, eager[0]});
  replay(calls, 0, last_rank);
  calls.push_back(eager[1]);
  return calls;
}

const std::vector<Setup>& all_setups() {
  static const std::vector<Setup> setups = [] {
    std::vector<Setup> all = small_all_reduce_setups();
    const auto add = [&](std::vector<Setup> setups) {
      for (Setup& setup : setups) all.push_back(std::move(setup));
    };
    add(small_move_setups());
    add(small_in_place_setups());
    add(small_column_setups());
    add(small_top_k_setups());
    add(small_crossing_setups());
    add(small_normed_crossing_setups());
    add(small_message_setups());
    add(small_moe_setups());
    add(small_tally_setups());
    add(small_round_setups());
    add(small_ring_setups());
    add(small_compact_setups());
    add(small_again_setups());
    add(small_norm_setups());
    add(small_multimem_setups());
    for (Setup& setup : all) setup.small = true;
    add(large_all_reduce_setups());
    add(large_move_setups());
    add(large_in_place_setups());
    add(symmetric_setups());
    add(large_column_setups());
    add(large_top_k_setups());
    add(large_crossing_setups());
    add(large_normed_crossing_setups());
    add(large_message_setups());
    add(large_moe_setups());
    add(large_tally_setups());
    add(large_round_setups());
    add(large_ring_setups());
    add(large_compact_setups());
    add(place_setups());
    add(large_again_setups());
    add(payload_setups());
    add(large_norm_setups());
    add(large_multimem_setups());
    return all;
  }();
  return setups;
}

namespace {

const Setup* look_up(std::string_view name) {
  for (const auto* setups : {&all_setups(), &all_fault_setups()}) {
    const auto found = std::ranges::find(*setups, name, &Setup::name);
    if (found != setups->end()) return &*found;
  }
  return name == unordered_setup().name ? &unordered_setup() : nullptr;
}

}  // namespace

bool is_listed(const Setup& setup) {
  const bool trial = std::ranges::any_of(setup.calls, [](const CallSetup& call) { return call.trial != nullptr; });
  return !trial && look_up(setup.name) != nullptr;
}

const Setup& find_setup(std::string_view name) {
  if (const Setup* const found = look_up(name)) return *found;
  throw Error(Errc::invalid_argument,
              fmt::format("protocol set-up \"{}\" is unknown; weft simulate --list names all", name));
}

}  // namespace weft::sim
