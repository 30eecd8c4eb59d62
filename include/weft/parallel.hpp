// Groups of ranks when attention is data parallel and everything else is not. A value turns tp, dp, ep and moe_dense_tp
// into groups, slots and shards. docs/dp_attention.md has a picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/types.hpp"

namespace weft {

// Ranks are 0 … tp − 1. Attention's data parallelism is *inside* of tensor parallelism, as in SGLang: dp groups of
// attn_tp() = tp / dp ranks each, side by side. (vLLM counts dp outside: there its world of dp · tp ranks is `tp`
// here.)
//
// Every function throws the errors of check(), and Errc::invalid_argument for a rank outside 0 … tp − 1.
struct ParallelLayout {
  int tp = 1;            // ranks
  int dp = 1;            // attention groups; divides tp
  int ep = 1;            // expert groups; divides tp
  int moe_dense_tp = 0;  // ranks that share a dense feed-forward layer; divides tp; 0: all

  // Throws Errc::invalid_argument with the field's name.
  void check() const;

  int attn_tp() const { return checked().tp / dp; }
  int attn_dp_rank(int rank) const { return block_of(rank, attn_tp()); }  // the slot that holds its tokens
  int attn_tp_rank(int rank) const { return place_in(rank, attn_tp()); }  // its own shard of the slot
  int moe_tp() const { return checked().tp / ep; }
  int moe_ep_rank(int rank) const { return block_of(rank, moe_tp()); }
  int moe_tp_rank(int rank) const { return place_in(rank, moe_tp()); }
  int dense_tp() const { return checked().moe_dense_tp == 0 ? tp : moe_dense_tp; }

  // The groups that a rank is in, ascending. Ranks of one group have the same color for Communicator::split.
  std::vector<int> attn_tp_group(int rank) const { return block(rank, attn_tp()); }   // share the heads of some tokens
  std::vector<int> attn_dp_group(int rank) const { return across(rank, attn_tp()); }  // the same heads of all tokens
  std::vector<int> moe_tp_group(int rank) const { return block(rank, moe_tp()); }     // share experts
  std::vector<int> moe_ep_group(int rank) const { return across(rank, moe_tp()); }    // the same part of all experts
  std::vector<int> dense_tp_group(int rank) const { return block(rank, dense_tp()); }
  int attn_tp_color(int rank) const { return block_of(rank, attn_tp()); }
  int attn_dp_color(int rank) const { return place_in(rank, attn_tp()); }
  int moe_tp_color(int rank) const { return block_of(rank, moe_tp()); }
  int moe_ep_color(int rank) const { return place_in(rank, moe_tp()); }
  int dense_tp_color(int rank) const { return block_of(rank, dense_tp()); }

 private:
  const ParallelLayout& checked() const;
  // Ranks in blocks of `size` neighbours: the block's number, the place in it, its members, the same places of all
  // blocks.
  int block_of(int rank, int size) const;
  int place_in(int rank, int size) const;
  std::vector<int> block(int rank, int size) const;
  std::vector<int> across(int rank, int size) const;
};

struct RowRange {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

// These functions compute on the host what kernels make of Counts: how large a tensor has to be, where a slot begins,
// what to put into Counts::rows. Each throws Errc::invalid_argument for an argument outside its range, or for rows that
// do not fit their slot.

// Part `part` of `rows` rows that `parts` ranks share; Sharding::none splits nothing.
RowRange shard_of(std::size_t rows, int parts, int part, Sharding sharding);

// Rows of a slot for `rows` rows. `slot_rows`: aligned: the multiple; fixed, per_rank: the rows; max: the largest of
// all.
std::size_t slot_rows_of(std::size_t rows, Padding kind, std::size_t slot_rows);

// Every rank's slot in a tensor that holds them all; the tensor must reach to the end of the last one. `slot_rows`:
// aligned: the multiple; fixed: the rows.
std::vector<RowRange> slots_of(std::span<const std::int32_t> rows, Padding kind, std::size_t slot_rows = 0);
// The same for `per_rank` slots.
std::vector<RowRange> slots_of(std::span<const std::int32_t> rows, std::span<const std::int32_t> slot_rows);

// Rows of every rank's shard, from the rows of every attention group. Pass them as Counts::rows of a call over all
// ranks; from rank d · attn_tp() on, of a call inside of attention group d.
//
// `slot_rows`: 0, or the rows of a group's slot. The slot is then split instead of its tokens; the tokens are its first
// rows, so later shards have fewer or none. If attn_tp() divides it, shards in `fixed` slots of slot_rows / attn_tp()
// make up groups in `fixed` slots of slot_rows.
std::vector<std::int32_t> shard_counts(const ParallelLayout& layout, std::span<const std::int32_t> group_rows,
                                       Sharding sharding, std::size_t slot_rows = 0);
// The same with a slot of its own length for every attention group. The slots of shards are the shards of slots:
// shard_counts(layout, slot_rows, sharding).
std::vector<std::int32_t> shard_counts(const ParallelLayout& layout, std::span<const std::int32_t> group_rows,
                                       Sharding sharding, std::span<const std::int32_t> slot_rows);

}  // namespace weft
