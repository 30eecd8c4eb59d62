// Set-ups in which something goes wrong on purpose.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "sim/setup.hpp"

namespace weft::sim {

inline constexpr std::uint64_t kDeadline = 100'000;  // ns of the simulated clock: ten thousand steps

inline const std::vector<std::string>& fault_protocols() {
  static const std::vector<std::string> protocols{"one-shot", "two-shot", "bulk", "moves", "ragged", "moe"};
  return protocols;
}

// What the calls of a fault set-up are: all-reduces of an algorithm, gathers and scatters, or dispatches and combines.
inline void set_calls(Setup& setup, const std::string& protocol) {
  const std::vector<Grid> grids{{2, 2}, {3, 1}};
  if (protocol == "moe") {
    setup.exchange = {.tokens = 1, .hidden = 8, .experts = setup.ranks, .top_k = 2, .capacity = 2 * setup.ranks};
    setup.exchange.generations = 1;  // tables of an earlier call must not be taken for those of a call that failed
    setup.calls = moe_rounds({{{1, 0}, {0, 0}}, {{1, -1}, {0, 1}, {}}}, grids);
  } else if (protocol == "moves") {
    setup.calls = {{.count = 9, .grids = grids, .moving = Moving::all_gather},
                   {.count = 9, .moving = Moving::reduce_scatter},
                   {.count = 12, .grids = grids, .moving = Moving::all_to_all, .flows = true}};
  } else if (protocol == "ragged") {
    std::vector<std::int32_t> counts(setup.ranks, 1);
    counts[0] = 2;
    setup.calls = {{.count = 5, .grids = grids, .moving = Moving::all_gather_v, .counts = counts},
                   {.count = 9, .moving = Moving::broadcast},
                   {.moving = Moving::barrier},
                   {.count = 5, .grids = grids, .moving = Moving::reduce_scatter_v, .flows = true, .counts = counts}};
  } else {
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot, Algorithm::bulk}) {
      if (name(algorithm) == protocol) setup.algorithm = algorithm;
    }
    setup.calls = {{.count = 17, .grids = grids}, {.count = 9, .in_place = true}, {.count = 20}};
  }
}

struct FaultArgs {
  // "mismatch", "other count", "other operation", "ahead", "stops", "dies", "aborted", "aborts", "host reads",
  // "overlap", "unordered"
  std::string kind;
  std::string protocol;
  unsigned ranks;
  bool one_thread = false;
  bool first = false;     // the first rank is to blame, not the last
  unsigned odd_call = 1;  // which call differs, in the kinds that need one
};

inline Setup fault_setup(const FaultArgs& args) {
  const auto& [kind, protocol, ranks, one_thread, first, odd_call] = args;
  Setup setup{.name = kind,
              .type = DataType::bf16,
              .ranks = ranks,
              .atomic_bytes = 8,
              .one_thread = one_thread,
              .payload = Payload::special,
              .deadline_ns = kDeadline};
  set_calls(setup, protocol);
  const int culprit = first ? 0 : static_cast<int>(ranks) - 1;
  if (kind == "mismatch" || kind == "host reads") {
    setup.faults.odd_rank = culprit;
    setup.faults.odd_call = odd_call;
  }
  if (kind == "other count" || kind == "other operation") {
    setup.faults.odd_rank = culprit;
    setup.faults.odd_call = odd_call;
    CallSetup odd = setup.calls[odd_call];
    if (kind == "other count") {
      odd.count += 5;
    } else {
      odd.moving = odd.moving == Moving::nothing ? Moving::all_to_all : Moving::nothing;
    }
    setup.faults.odd = odd;
  }
  if (kind == "host reads") setup.faults.host_reads = true;
  if (kind == "ahead") setup.faults.ahead_rank = culprit;
  if (kind == "stops" || kind == "dies" || kind == "aborted") setup.faults.stopping_rank = culprit;
  if (kind == "dies" || kind == "aborted") setup.deadline_ns = 0;
  if (kind == "aborted" || kind == "aborts") setup.faults.aborting_rank = 0;
  if (kind == "overlap" || kind == "unordered") setup.faults.unordered_rank = culprit;
  setup.faults.overlaps = kind == "overlap";
  if (!setup.faults.any()) throw std::invalid_argument("no such fault: " + kind);
  return setup;
}

}  // namespace weft::sim
