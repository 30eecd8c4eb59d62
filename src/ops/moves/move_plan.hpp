// Chooses the grid of a copy, a reduce-scatter or a crossing, and the size from which it flows in chunks. A pure
// function of its arguments, like plan_all_reduce().
#pragma once

#include <cstdint>
#include <vector>

#include "protocol/channel.hpp"
#include "tuning/tuning.hpp"
#include "weft/launch.hpp"
#include "weft/types.hpp"

namespace weft::detail {

inline constexpr int kMoveThreads = 512;  // of a copy or a reduce-scatter, per block, at most

// The way of a copy or a reduce-scatter. Only values that are the same on every rank decide when it goes over to
// chunks: those of the call, and the group's table.
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
  bool symmetric = false;        // outputs lie in symmetric memory, for which there are no tables
  Launch launch = {};
  int max_blocks = kMaxBlocks;
  const TuningTable* table = nullptr;  // null: by constants
  std::uint64_t group_ranks = 1;       // of a crossing; its table goes by the rows of so many ranks …
  std::uint64_t table_bytes = 0;       // … whose bytes are these. Others: 0, the larger of the rank's two directions
};
MovePlan plan_move(const MoveQuery& query);

// Most packs on the wire of a crossing that goes in one hop: the rows of a group's ranks.
std::uint64_t one_hop_packs(const MoveQuery& query);

// The way of so many bytes as a table's steps have them, if no detour is worth while; and the table's steps, or the
// constants as steps. `one_hop`: whether the operation has it.
MoveWay move_way(const MoveQuery& query, std::uint64_t bytes, bool one_hop);
std::vector<TuningStep> move_steps(const MoveQuery& query, bool one_hop);

}  // namespace weft::detail
