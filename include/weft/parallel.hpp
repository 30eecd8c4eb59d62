// Who belongs to whom when attention is data parallel and everything else is not: a value that turns tp, dp, ep and
// moe_dense_tp into groups, slots and shards. docs/dp_attention.md has a picture.
#pragma once

#include <cstddef>
#include <vector>

#include "weft/types.hpp"

namespace weft {

// Ranks are 0 … tp − 1. Attention's data parallelism is *inside* of tensor parallelism, as in SGLang: dp groups of
// attn_tp() = tp / dp ranks each, side by side. (vLLM counts dp outside: there its world of dp · tp ranks is `tp`
// here.)
struct ParallelLayout {
  int tp = 1;            // ranks
  int dp = 1;            // attention groups; divides tp
  int ep = 1;            // expert groups; divides tp
  int moe_dense_tp = 0;  // ranks that share a dense feed-forward layer; divides tp; 0: all

  // Throws Errc::invalid_argument with the field's name.
  void check() const;

  int attn_tp() const { return tp / dp; }
  int attn_dp_rank(int rank) const { return rank / attn_tp(); }  // whose slot holds this rank's tokens
  int attn_tp_rank(int rank) const { return rank % attn_tp(); }  // which shard of them is its own
  int moe_tp() const { return tp / ep; }
  int moe_ep_rank(int rank) const { return rank / moe_tp(); }
  int moe_tp_rank(int rank) const { return rank % moe_tp(); }
  int dense_tp() const { return moe_dense_tp == 0 ? tp : moe_dense_tp; }

  // The groups that a rank is in, ascending. Ranks of one group have the same color for Communicator::split.
  std::vector<int> attn_tp_group(int rank) const { return block(rank, attn_tp()); }   // share the heads of some tokens
  std::vector<int> attn_dp_group(int rank) const { return across(rank, attn_tp()); }  // the same heads of all tokens
  std::vector<int> moe_tp_group(int rank) const { return block(rank, moe_tp()); }     // share experts
  std::vector<int> moe_ep_group(int rank) const { return across(rank, moe_tp()); }    // the same part of all experts
  std::vector<int> dense_tp_group(int rank) const { return block(rank, dense_tp()); }
  int attn_tp_color(int rank) const { return rank / attn_tp(); }
  int attn_dp_color(int rank) const { return rank % attn_tp(); }
  int moe_tp_color(int rank) const { return rank / moe_tp(); }
  int moe_ep_color(int rank) const { return rank % moe_tp(); }
  int dense_tp_color(int rank) const { return rank / dense_tp(); }

 private:
  std::vector<int> block(int rank, int size) const;     // neighbours
  std::vector<int> across(int rank, int stride) const;  // every stride-th
};

struct RowRange {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

// Part `part` of `rows` rows that `parts` ranks share. Throws Errc::invalid_argument; Split::none splits nothing.
RowRange shard_of(std::size_t rows, int parts, int part, Split split);

// Rows of a slot for `rows` rows. `slot_rows`: aligned: the multiple; fixed: the rows; max: the largest of all.
std::size_t slot_rows_of(std::size_t rows, SlotKind kind, std::size_t slot_rows);

}  // namespace weft
