// Chooses the grid of a copy or a reduce-scatter, and the size from which it flows in chunks. A pure function of its
// arguments, like plan_all_reduce().
#pragma once

#include <cstdint>

#include "protocol/channel.hpp"
#include "weft/launch.hpp"
#include "weft/types.hpp"

namespace weft::detail {

inline constexpr int kMoveThreads = 512;  // of a copy or a reduce-scatter, per block, at most

// How a copy or a reduce-scatter is made. Only values that are the same on every rank decide when it goes over to
// chunks.
struct MovePlan {
  std::uint64_t slot_packs;    // of the wire: longer messages flow in chunks
  std::uint64_t detour_packs;  // least packs that a detour must spare the busiest link (protocol/detour.hpp) …
  bool detour;                 // … and whether it does, if the host knows the rows
  int blocks;                  // the control block included
  int threads;
  int warp_groups = 1;  // parts of a block that work like blocks
};
struct MoveQuery {
  Device device;
  std::uint32_t size;  // ranks of the group
  RegionLayout layout;
  std::uint64_t own_bytes;       // of its own rows that this rank has room for: rows for one rank, or its own sums
  std::uint64_t whole_bytes;     // … of all ranks' rows: in a ragged call any rank may have them
  std::uint64_t sent_bytes = 0;  // by all ranks to one, each own_bytes or nothing; 0: counts decide
  std::uint64_t unit_bytes;      // that one thread moves at once
  std::uint64_t wire_packs;      // … and their packs on the wire
  std::uint64_t streams;         // threads that serve the same place of a message: one for all peers, or one for each
  bool symmetric = false;        // outputs lie in symmetric memory
  Launch launch = {};
  int max_blocks = kMaxBlocks;
};
MovePlan plan_move(const MoveQuery& query);

}  // namespace weft::detail
