// Litmus tests: a few threads, a few loads and stores, and which values the loads can have together. Written once, for
// the simulator and for Relacy.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace weft::sim {

enum class Order : std::uint8_t { relaxed, acquire, release };

struct Op {
  enum class Code : std::uint8_t { load, store, fence_seq_cst } code;
  unsigned place = 0;  // 0, 1: x, y
  std::uint32_t value = 0;
  Order order = Order::relaxed;
};
constexpr Op load(unsigned place, Order order = Order::relaxed) {
  return {Op::Code::load, place, 0, order};
}
constexpr Op store(unsigned place, std::uint32_t value, Order order = Order::relaxed) {
  return {Op::Code::store, place, value, order};
}
constexpr Op fence() {
  return {Op::Code::fence_seq_cst};
}

struct Litmus {
  std::string name;
  std::vector<std::vector<Op>> threads;
  std::string weak;    // an outcome: values of all loads, thread by thread
  bool allowed;        // by the model: can `weak` be seen?
  bool relacy = true;  // does Relacy see it where it is allowed? Its stores take their places in the order they run in
};

using Outcomes = std::set<std::string>;

inline const std::vector<Litmus>& litmus_tests() {
  constexpr unsigned x = 0, y = 1;
  constexpr Order acq = Order::acquire, rel = Order::release;
  static const std::vector<Litmus> tests{
      {"MP", {{store(x, 1), store(y, 1)}, {load(y), load(x)}}, "10", true},
      {"MP_rel", {{store(x, 1), store(y, 1, rel)}, {load(y), load(x)}}, "10", true},
      {"MP_acq", {{store(x, 1), store(y, 1)}, {load(y, acq), load(x)}}, "10", true},
      {"MP_rel_acq", {{store(x, 1), store(y, 1, rel)}, {load(y, acq), load(x)}}, "10", false},
      {"MP_fences", {{store(x, 1), fence(), store(y, 1)}, {load(y), fence(), load(x)}}, "10", false},
      {"SB", {{store(x, 1), load(y)}, {store(y, 1), load(x)}}, "00", true},
      {"SB_rel_acq", {{store(x, 1, rel), load(y, acq)}, {store(y, 1, rel), load(x, acq)}}, "00", true},
      {"SB_fences", {{store(x, 1), fence(), load(y)}, {store(y, 1), fence(), load(x)}}, "00", false},
      // PTX and C++ allow it without dependencies; neither tool shows it (docs/reliability.md).
      {"LB", {{load(x), store(y, 1)}, {load(y), store(x, 1)}}, "11", false},
      {"LB_rel_acq", {{load(x, acq), store(y, 1, rel)}, {load(y, acq), store(x, 1, rel)}}, "11", false},
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
  };
  return tests;
}

Outcomes outcomes_in_simulator(const Litmus& test, std::uint64_t executions);
Outcomes outcomes_in_relacy(const Litmus& test, std::uint64_t executions);

}  // namespace weft::sim
