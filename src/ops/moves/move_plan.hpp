// On which grid a copy or a reduce-scatter is made, and from which size on it flows in chunks. A pure function of its
// arguments, as plan_all_reduce() is.
#pragma once

#include <cstdint>

#include "protocol/channel.hpp"
#include "weft/collectives.hpp"
#include "weft/types.hpp"

namespace weft::detail {

inline constexpr int kMoveThreads = 512;  // of a copy or a reduce-scatter, per block, at most

// How a copy or a reduce-scatter is made. Where it goes over to chunks follows from what is the same on every rank.
struct MovePlan {
  std::uint64_t slot_packs;    // of the wire: longer messages flow in chunks
  std::uint64_t detour_packs;  // that a detour must spare the busiest link (protocol/detour.hpp) …
  bool detour;                 // … and whether one does, where the host knows whose rows there are
  int blocks;                  // the control block included
  int threads;
  int crews = 1;  // parts of a block that work like blocks
};
struct MoveQuery {
  Device device;
  std::uint32_t size;  // ranks of the group
  RegionLayout layout;
  std::uint64_t own_bytes;    // that this rank has room for, of what is its own: what it sends to one, or its own sums
  std::uint64_t whole_bytes;  // … and of what is all ranks': in a ragged call whoever has them
  std::uint64_t sent_bytes = 0;  // by all ranks to one, each own_bytes or nothing; 0: counts will say
  std::uint64_t unit_bytes;      // that one thread moves at once
  std::uint64_t wire_packs;      // … and what they take on the wire
  std::uint64_t streams;         // threads that serve the same place of a message: one for all peers, or one for each
  bool symmetric = false;        // outputs lie in symmetric memory
  Launch launch = {};
  int max_blocks = kMaxBlocks;
};
MovePlan plan_move(const MoveQuery& query);

}  // namespace weft::detail
