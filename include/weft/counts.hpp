// Counts that ranks exchange on the device, and the words that ragged calls take from them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/communicator.hpp"
#include "weft/types.hpp"

namespace weft {

inline constexpr std::size_t kMaxCountColumns = 64;

// The output of all_gather_counts: std::int32_t words, one part behind the other. The functions give each part's begin.
// Ranks come in groups of `group_ranks` neighbours that have the same rows; if it is 1, a group is a rank.
struct GatheredCounts {
  std::size_t ranks = 1;
  std::size_t columns = 1;
  std::size_t group_ranks = 1;

  constexpr std::size_t groups() const { return ranks / group_ranks; }
  constexpr std::size_t rows() const { return 0; }                         // [groups] of each group: column 0
  constexpr std::size_t slots() const { return rows() + groups(); }        // [groups] rows of its slot
  constexpr std::size_t offsets() const { return slots() + groups(); }     // [groups + 1] its begin; last: all rows
  constexpr std::size_t most() const { return offsets() + groups() + 1; }  // [1] the largest of `rows`
  constexpr std::size_t total() const { return most() + 1; }               // [1] their sum
  constexpr std::size_t shards() const { return total() + 1; }             // [ranks] of `rows`, each rank's own part
  constexpr std::size_t shard_slots() const { return shards() + ranks; }   // [ranks] with pads, for split_slots
  constexpr std::size_t any() const { return shard_slots() + ranks; }      // [columns] bits set by any rank
  constexpr std::size_t every() const { return any() + columns; }          // [columns] bits set by every rank
  constexpr std::size_t all() const { return every() + columns; }          // [ranks][columns] the inputs
  constexpr std::size_t words() const { return all() + ranks * columns; }
};

struct AllGatherCountsArgs {
  const std::int32_t* input = nullptr;     // [columns]: rows of this rank's group, then any other words (flags, say)
  std::int32_t* output = nullptr;          // [GatheredCounts::words()]
  std::int32_t* host_output = nullptr;     // a second copy, which the host can read; null: none
  std::size_t columns = 1;                 // 1 … kMaxCountColumns; this and all below: the same on every rank
  std::size_t group_ranks = 1;             // a divisor of the group's size: ParallelLayout::attn_tp()
  Sharding sharding = Sharding::balanced;  // how the ranks of a group share its rows; none: each rank has its own rows
  bool split_slots = false;                // share the slot instead, of which the group's rows are the first
  Padding padding = Padding::none;         // not `per_rank`
  std::size_t slot_rows = 0;  // aligned: the multiple; fixed: rows of each slot; up to 2^31 − 1. Else not read
  Stream stream = nullptr;
  std::uint32_t tag = 0;
};
// all[r][c] = input_r[c] and the words that follow from it, on every rank, in one kernel. Pass `shards` (or `rows` if
// group_ranks is 1) as Counts::rows of the next ragged call; with `split_slots`, pass `shard_slots` as its
// Counts::slots, padded `per_rank`. `weft/parallel.hpp` computes the same on the host.
//
// Memory is the device's, aligned to 4 bytes. `host_output` may be any memory that the device can write, pinned host
// memory for instance; it is complete when the stream is. Outputs are each rank's own choice; outputs and input must
// not overlap. Stream, graphs, tags, thread safety, deadline and errors are as in all_reduce (weft/collectives.hpp).
// Config::one_shot_bytes below 512 lowers the most columns; for a group of split(), Config::group_one_shot_bytes does.
//
// Errors: rows that are negative, differ between ranks of a group, exceed a fixed slot, or make offsets of more than
// 2^31 − 1. The call then ends with Errc::capacity or Errc::peer_failed on every rank; outputs are undefined.
//
// After SGLang's MLPSyncBatchInfo.all_gather, which gathers such a row of numbers per rank over NCCL or Gloo and adds
// them up on the host. Padding follows the modes of sgl-project/sglang#8279: for groups of one rank SUM_LEN is none and
// MAX_LEN is max (docs/dp_attention.md has the modes for several).
void all_gather_counts(const Group& group, const AllGatherCountsArgs& args);

}  // namespace weft
