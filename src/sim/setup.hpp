// What one experiment consists of: a protocol, its ranks, and the calls that they make.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/types.hpp"

namespace weft::sim {

struct Grid {
  unsigned blocks = 2;  // the control block included
  unsigned threads = 1;
};

struct CallSetup {
  std::uint64_t count;                 // elements
  std::vector<Grid> grids = {Grid{}};  // by rank of the group; the last one serves the rest
  bool in_place = false;
  unsigned group = 0;
  bool misaligned = false;  // user memory begins one element behind a pack boundary
};

// Which numbers: plain ones; those that tell orders of summation apart; or full of sentinels, zeros of both signs and
// NaN.
enum class Payload : std::uint8_t { plain, rounding, special };

struct Setup {
  std::string name = {};
  Algorithm algorithm = Algorithm::one_shot;
  DataType type = DataType::bf16;
  unsigned ranks = 2;
  int atomic_bytes = 16;
  bool one_thread = false;  // a rank is one thread that runs all blocks of a phase, then the next, as on CPUs
  std::uint32_t start_epoch = 0;
  std::vector<std::vector<unsigned>> groups = {};  // members by rank of the group; none: one group of all ranks
  bool side_by_side = false;                       // each group has a stream of its own on every rank
  Payload payload = Payload::plain;
  std::vector<CallSetup> calls = {};
  bool small = false;  // can be searched exhaustively, within …
  unsigned bound = 2;  // … this bound
  std::uint64_t deadline_ns = 0;
};

// The set-ups that the tests run, by name.
const std::vector<Setup>& all_setups();
const Setup& find_setup(const std::string& name);  // throws weft::Error

}  // namespace weft::sim
