// The largest numbers of rows whose columns lie on several ranks: candidates for the next token, without the logits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/communicator.hpp"
#include "weft/launch.hpp"
#include "weft/types.hpp"

namespace weft {

inline constexpr std::size_t kMaxCandidates = 64;

struct TopKColumnsArgs {
  const void* input = nullptr;      // [rows, shard_columns] of `type`: this rank's columns
  void* values = nullptr;           // [rows, k] of `type`, descending; or null
  std::int32_t* indices = nullptr;  // [rows, k]: the column of each value among all ranks' columns
  std::size_t rows = 0;             // 0 included; the same on every rank
  // 1 … 64, no more than there are columns, and no more than Config::two_shot_bytes has packs of 16 bytes for each
  // rank; the same on every rank.
  std::size_t k = 1;
  std::size_t shard_columns = 0;  // of every rank's input, pads included, 2^31 − 1 at most; the same on every rank
  // As in AllGatherColumnsArgs: columns of all ranks, 1 … size · shard_columns, 2^31 − 1 at most; 0: all. Columns
  // behind them are pads of the last shards, and no candidates.
  std::size_t columns = 0;
  bool even_shards = false;        // as in AllGatherColumnsArgs
  std::size_t input_stride = 0;    // elements from row to row; 0: shard_columns
  DataType type = DataType::bf16;  // bf16, f16 or f32
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// For each row the k largest of all ranks' columns, on every rank: topk(all_gather_columns(input), k). Indices are
// columns of that output. Among equal numbers the one with the smaller index comes first, so all ranks
// have the same result, whatever the grids. NaN is larger than every number, as in torch. −0 and +0 are equal.
//
// A rank sends its own k candidates of a row, 8 bytes of payload each, and no logits. If rows are few, it divides them
// into up to 8 parts, and sends k candidates of each. Values are the input's bits, except that −0
// comes as +0, and NaN as 0x7fff (f32: 0x7fffffff). Soft caps and positive scales do not change the order: apply them
// to the values.
//
// Pointers are aligned to their elements. Rows at addresses and strides of whole 16 bytes are read fastest. Outputs are
// dense and overlap neither the input nor each other. Rules, errors, streams and graphs are those of all_reduce. Many
// rows make several launches, each of as many rows as buffers have room for.
//
// Errc::unsupported (rejected): ranks cannot reach each other's memory.
//
// The algorithm: a bound from the largest numbers of each thread leaves few candidates (as in radix-free selections,
// e.g. Shanbhag et al., "Efficient Top-K Query Processing on Massively Parallel Hardware", SIGMOD 2018). Warps keep the
// largest in order and merge their lists.
void top_k_columns(const Group& group, const TopKColumnsArgs& args);

}  // namespace weft
