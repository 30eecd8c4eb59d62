// Set-ups with a deliberate fault.
#pragma once

#include <string>
#include <vector>

#include "sim/setup.hpp"

namespace weft::sim {

struct FaultArgs {
  // The fault of the rank to blame. It "stops" for ever, is "slow" (sleeps for less than the deadline) or "late" (for
  // longer), "dies", is "aborted" while it sleeps, or "aborts". It makes another call ("mismatch", "other-count",
  // "other-operation"), finds other counts ("other-rows"), or gets more rows than it has room for ("overflow"). It is
  // "ahead". "host-reads": a mismatch, and the host reads the record. "overlap", "unordered": it makes its calls on
  // several streams.
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
  std::string variant = {};
};
Setup fault_setup(const FaultArgs& args);

// All set-ups that the tests run and find_setup() finds. Their names begin with the kind.
const std::vector<Setup>& all_fault_setups();
// The set-up that fails: a forbidden use that is not noticed for certain (docs/reliability.md). find_setup() finds it.
const Setup& unordered_setup();

}  // namespace weft::sim
