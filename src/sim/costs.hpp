// Costs of steps in virtual time, on an H200 of an NVLink host. docs/moe.md has the source of each number.
#pragma once

namespace weft::sim {

// In nanoseconds, and in bytes of each.
struct Costs {
  double launch = 1'500;    // from the end of what a launch waits for to its begin
  double look = 700;        // from asking memory to having the answer
  double flag = 770;        // a store to a peer, until it is seen
  double release = 1'420;   // a store with release, likewise
  double port = 338;        // from a rank to all its peers together, and from them
  double sm_store = 35;     // that a processor's threads store to peers
  double sm_bulk = 43;      // that a processor copies to peers in bulk
  double sm_local = 155;    // that a processor reads from its own memory, or writes there
  double warps = 16;        // of a processor, which look at memory beside each other
  double processors = 132;  // of a GPU
};

inline constexpr Costs kCosts{};

}  // namespace weft::sim
