// Counts that ranks tell each other on the device, and what ragged calls take from them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/communicator.hpp"
#include "weft/types.hpp"

namespace weft {

inline constexpr std::size_t kMaxCountColumns = 64;

// What all_gather_counts leaves behind: std::int32_t words, one part behind the other, and where each part begins.
// Ranks come in groups of `group_ranks` neighbours that have the same rows; where that is 1, a group is a rank.
struct GatheredCounts {
  std::size_t ranks = 1;
  std::size_t columns = 1;
  std::size_t group_ranks = 1;

  constexpr std::size_t groups() const { return ranks / group_ranks; }
  constexpr std::size_t rows() const { return 0; }                      // [groups] of each group: column 0
  constexpr std::size_t slots() const { return rows() + groups(); }     // [groups] rows of its slot
  constexpr std::size_t offsets() const { return slots() + groups(); }  // [groups + 1] where it begins; last: all rows
  constexpr std::size_t most() const { return offsets() + groups() + 1; }  // [1] the largest of `rows`
  constexpr std::size_t total() const { return most() + 1; }               // [1] their sum
  constexpr std::size_t shards() const { return total() + 1; }             // [ranks] of `rows`, each rank's own part
  constexpr std::size_t shard_slots() const { return shards() + ranks; }   // [ranks] … and of pads, with split_slots
  constexpr std::size_t any() const { return shard_slots() + ranks; }      // [columns] bits set by any rank
  constexpr std::size_t every() const { return any() + columns; }          // [columns] bits set by every rank
  constexpr std::size_t all() const { return every() + columns; }          // [ranks][columns] as they were given
  constexpr std::size_t words() const { return all() + ranks * columns; }
};

struct AllGatherCountsArgs {
  const std::int32_t* input =
      nullptr;                     // [columns]: how many rows this rank's group has, and whatever else (flags, say)
  std::int32_t* output = nullptr;  // [GatheredCounts::words()]
  std::int32_t* host_output = nullptr;  // the same once more, where the host reads it; null: nowhere
  std::size_t columns = 1;              // 1 … kMaxCountColumns; the same on every rank, as all that follows
  std::size_t group_ranks = 1;          // a divisor of the group's size: ParallelLayout::attn_tp()
  Split split = Split::balanced;        // how the ranks of a group share its rows; none: they are by themselves
  bool split_slots = false;             // or rather its slot, of which its rows are the first
  SlotKind slot = SlotKind::dense;      // not `given`
  std::size_t slot_rows = 0;  // aligned: the multiple; fixed: rows of each slot; up to 2^31 − 1. Else not looked at
  Stream stream = nullptr;
  std::uint32_t tag = 0;
};
// all[r][c] = input_r[c], and what follows from it, on every rank, in one kernel. `shards` or, of ranks by themselves,
// `rows` is what Counts::rows of a ragged call behind this one reads; with `split_slots`, `shard_slots` is its
// Counts::slots, of kind `given`. `weft/parallel.hpp` has the same on the host.
//
// Memory is the device's, aligned to 4 bytes; `host_output` may be any that the device can write, pinned memory of the
// host say, and is complete when the stream is. Outputs are each rank's own affair; they and the input must not
// overlap. Stream, graphs, tags, thread safety, deadline and errors are all_reduce's (weft/collectives.hpp).
// Config::one_shot_bytes below 512 makes the most columns fewer, of a group of split() Config::group_one_shot_bytes.
//
// Errors: rows that are negative, differ between ranks of a group, exceed a fixed slot, or make offsets of more than
// 2^31 − 1 end the call with Errc::capacity or Errc::peer_failed on every rank; outputs are then undefined.
//
// After SGLang's MLPSyncBatchInfo.all_gather, which gathers such a row of numbers per rank over NCCL or Gloo and adds
// them up on the host, and the padding modes of sgl-project/sglang#8279 (of groups of one rank SUM_LEN is dense and
// MAX_LEN max; docs/dp_attention.md has those of several).
void all_gather_counts(const Group& group, const AllGatherCountsArgs& args);

}  // namespace weft
