// Litmus tests: a few threads with a few loads and stores, and the values that the loads can have together. The
// simulator and Relacy run the same tests.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace weft::sim {

enum class Order : std::uint8_t { relaxed, acquire, release };

struct Op {
  enum class Code : std::uint8_t { load, store, exchange, fence_acq_rel, fence_seq_cst, sync } code;
  unsigned place = 0;  // 0, 1, 2: x, y, z
  std::uint32_t value = 0;
  Order order = Order::relaxed;
};
constexpr Op load(unsigned place, Order order = Order::relaxed) {
  return {Op::Code::load, place, 0, order};
}
constexpr Op store(unsigned place, std::uint32_t value, Order order = Order::relaxed) {
  return {Op::Code::store, place, value, order};
}
// Relaxed. The replaced value is part of the outcome, like a load's value.
constexpr Op exchange(unsigned place, std::uint32_t value) {
  return {Op::Code::exchange, place, value};
}
constexpr Op fence() {
  return {Op::Code::fence_seq_cst};
}
constexpr Op light_fence() {
  return {Op::Code::fence_acq_rel};
}
// The barrier of a block.
constexpr Op sync() {
  return {Op::Code::sync};
}

struct Litmus {
  std::string name;
  std::vector<std::vector<Op>> threads;
  std::string weak;  // an outcome: values of all loads and exchanges, thread by thread
  bool allowed;      // whether the model allows `weak`
  // Whether Relacy shows an allowed `weak`. Its stores take their places in the order in which they run, and its
  // exchanges continue the release of the value that they replace.
  bool relacy = true;
  unsigned block = 1;  // the last `block` threads form a block
};

using Outcomes = std::set<std::string>;

inline const std::vector<Litmus>& litmus_tests() {
  constexpr unsigned x = 0, y = 1, z = 2;
  constexpr Order acq = Order::acquire, rel = Order::release;
  static const std::vector<Litmus> tests{
      {"MP", {{store(x, 1), store(y, 1)}, {load(y), load(x)}}, "10", true},
      {"MP_rel", {{store(x, 1), store(y, 1, rel)}, {load(y), load(x)}}, "10", true},
      {"MP_acq", {{store(x, 1), store(y, 1)}, {load(y, acq), load(x)}}, "10", true},
      {"MP_rel_acq", {{store(x, 1), store(y, 1, rel)}, {load(y, acq), load(x)}}, "10", false},
      {"MP_fences", {{store(x, 1), fence(), store(y, 1)}, {load(y), fence(), load(x)}}, "10", false},
      {"MP_acq_rel_fences",
       {{store(x, 1), light_fence(), store(y, 1)}, {load(y), light_fence(), load(x)}},
       "10",
       false},
      {"SB", {{store(x, 1), load(y)}, {store(y, 1), load(x)}}, "00", true},
      {"SB_rel_acq", {{store(x, 1, rel), load(y, acq)}, {store(y, 1, rel), load(x, acq)}}, "00", true},
      {"SB_fences", {{store(x, 1), fence(), load(y)}, {store(y, 1), fence(), load(x)}}, "00", false},
      {"SB_acq_rel_fences", {{store(x, 1), light_fence(), load(y)}, {store(y, 1), light_fence(), load(x)}}, "00", true},
      // PTX and C++ allow it without dependencies; neither tool shows it (docs/reliability.md).
      {"LB", {{load(x), store(y, 1)}, {load(y), store(x, 1)}}, "11", false},
      {"LB_rel_acq", {{load(x, acq), store(y, 1, rel)}, {load(y, acq), store(x, 1, rel)}}, "11", false},
      {"LB_fences", {{load(x), fence(), store(y, 1)}, {load(y), fence(), store(x, 1)}}, "11", false},
      {"LB_acq_rel_fences",
       {{load(x), light_fence(), store(y, 1)}, {load(y), light_fence(), store(x, 1)}},
       "11",
       false},
      {"IRIW", {{store(x, 1)}, {store(y, 1)}, {load(x), load(y)}, {load(y), load(x)}}, "1010", true},
      {"IRIW_rel_acq",
       {{store(x, 1, rel)}, {store(y, 1, rel)}, {load(x, acq), load(y, acq)}, {load(y, acq), load(x, acq)}},
       "1010",
       true},
      {"IRIW_fences",
       {{store(x, 1)}, {store(y, 1)}, {load(x), fence(), load(y)}, {load(y), fence(), load(x)}},
       "1010",
       false},
      {"CoRR", {{store(x, 1)}, {load(x), load(x)}}, "10", false},
      {"CoRR2", {{store(x, 1)}, {store(x, 2)}, {load(x), load(x)}, {load(x), load(x)}}, "1221", false},
      {"WRC", {{store(x, 1)}, {load(x), store(y, 1)}, {load(y), load(x)}}, "110", true},
      {"WRC_rel_acq", {{store(x, 1, rel)}, {load(x, acq), store(y, 1, rel)}, {load(y, acq), load(x)}}, "110", false},
      {"2+2W", {{store(x, 1), store(y, 2), load(y)}, {store(y, 1), store(x, 2), load(x)}}, "11", true, false},
      // One thread gets the claim. A thread that finds `busy` set does so while another is inside.
      {"claim", {{exchange(x, 1)}, {exchange(x, 1)}, {exchange(x, 1)}}, "001", false},
      {"busy", {{exchange(x, 1), store(x, 0)}, {exchange(x, 1), store(x, 0)}}, "11", false},
      // Relaxed exchanges order nothing.
      {"MP_exchange", {{store(x, 1), exchange(y, 1)}, {exchange(y, 2), load(x)}}, "010", true},
      {"SB_exchange", {{exchange(x, 1), load(y)}, {exchange(y, 1), load(x)}}, "0000", true},
      {"MP_rel_exchange_acq",
       {{store(x, 1), store(y, 1, rel)}, {exchange(y, 2)}, {load(y, acq), load(x)}},
       "120",
       true,
       false},
      // An acquire covers its own read. A fence covers all reads of its thread.
      {"acq_of_nothing", {{store(x, 1), store(y, 1, rel)}, {load(y), load(z, acq), load(x)}}, "100", true},
      {"acq_of_another",
       {{store(x, 1), store(y, 1, rel)}, {store(z, 1, rel)}, {load(y), load(z, acq), load(x)}},
       "110",
       true},
      {"fence_after_acq_of_another",
       {{store(x, 1), store(y, 1, rel)}, {load(y), load(z, acq), light_fence(), load(x)}},
       "100",
       false},
      // A block's barrier passes on a thread's knowledge, without its reads that were not acquired.
      {"MP_sync", {{store(x, 1), store(y, 1, rel)}, {load(y), sync()}, {sync(), load(x)}}, "10", true, true, 2},
      {"MP_acq_sync",
       {{store(x, 1), store(y, 1, rel)}, {load(y, acq), sync()}, {sync(), load(x)}},
       "10",
       false,
       true,
       2},
      {"MP_fence_sync",
       {{store(x, 1), store(y, 1, rel)}, {load(y), light_fence(), sync()}, {sync(), load(x)}},
       "10",
       false,
       true,
       2},
      {"MP_sync_fence_of_another",
       {{store(x, 1), store(y, 1, rel)}, {load(y), sync()}, {sync(), light_fence(), load(x)}},
       "10",
       true,
       true,
       2},
      {"MP_sync_acq_of_another",
       {{store(x, 1), store(y, 1, rel)}, {load(y), sync()}, {sync(), load(z, acq), load(x)}},
       "100",
       true,
       true,
       2},
      {"MP_sync_fence",
       {{store(x, 1), store(y, 1, rel)}, {load(y), sync(), light_fence(), load(x)}, {sync()}},
       "10",
       false,
       true,
       2},
      {"sync_rel", {{load(y, acq), load(x)}, {store(x, 1), sync()}, {sync(), store(y, 1, rel)}}, "10", false, true, 2},
  };
  return tests;
}

// `newest`: see Scheduler::keep_newest().
Outcomes outcomes_in_simulator(const Litmus& test, std::uint64_t executions, bool newest = false);
Outcomes outcomes_in_relacy(const Litmus& test, std::uint64_t executions);

}  // namespace weft::sim
