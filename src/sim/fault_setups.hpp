// Set-ups with a deliberate fault.
#pragma once

#include <string>
#include <vector>

#include "sim/setup.hpp"

namespace weft::sim {

struct FaultArgs {
  // The rank to blame "stops", "dies", "aborts", is "aborted" asleep or "ahead", or sleeps: "slow" within the deadline,
  // "late" beyond it. Its call is a "mismatch" ("host-reads": and the host reads it), "other-count", "other-operation",
  // "other-rows" or an "overflow" of its room. "overlap", "unordered": it calls on several streams.
  std::string kind;
  std::string protocol;  // of its calls: "one-shot", "moves", "crossings", …, "moe" (sim/fault_calls.cpp)
  unsigned ranks;
  bool one_thread = false;
  bool first = false;     // the first rank is to blame, not the last
  unsigned odd_call = 1;  // number of the call that differs, in the kinds that need one
  // The unusual property of the calls; empty: none.
  //   "wrap": their epochs come round              "torn16": packs travel whole, as on GPUs.
  //   "i32": all-reduces by lines, not sentinels   "halves": sends and waits of an exchange apart.
  //   "replays": of recordings                     "groups": of two groups in turns.
  //   "lanes": by warps of two lanes               "apart": some blocks move, others reduce (pipelined).
  //   "roles": some warps of a block only send     "roles-lanes": some of several warps of two lanes do.
  //   "threads": in chunks that two threads share  "contiguous": experts one behind the other.
  //   "chunks": detours in chunks, not in lines    "stale": a stale replay before.
  //   "groups-beside": of two groups at once.      "ring": rows flow through a ring. "ring-lanes": likewise, by lanes.
  //   "rounds": an exchange in rounds of experts   "rounds-ring": likewise, through a ring.
  std::string variant = {};
};
Setup fault_setup(const FaultArgs& args);

// All set-ups that the tests run and find_setup() finds. Their names begin with the kind.
const std::vector<Setup>& all_fault_setups();
// The set-up that fails: a forbidden use that is not noticed for certain (docs/reliability.md). find_setup() finds it.
const Setup& unordered_setup();

}  // namespace weft::sim
