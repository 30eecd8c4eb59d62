// Tokens cross between data-parallel attention and layers that all ranks share: partial sums of a group of ranks become
// rows on every rank, and partial sums of all ranks become rows of a group. docs/dp_attention.md has pictures.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/collectives.hpp"
#include "weft/communicator.hpp"
#include "weft/launch.hpp"
#include "weft/types.hpp"

namespace weft {

// The ranks of the call are groups of `group_ranks` neighbours (ParallelLayout::attn_tp()), which share their group's
// tokens. `counts` are of every *rank*: how many of its group's rows it sums, and its slot. all_gather_counts and
// shard_counts make them (`shards`, `shard_slots`). A group's rows are those of its ranks, shard behind shard.
struct CrossingArgs {
  const void* input = nullptr;                      // gather_sums: this group's rows; scatter_sums: all slots
  void* output = nullptr;                           // gather_sums: all slots; scatter_sums: this group's rows
  std::size_t width = 0;                            // elements of a row; the same on every rank
  std::size_t input_stride = 0, output_stride = 0;  // elements from row to row; 0: width
  DataType type = DataType::bf16;                   // bf16, f16, f32 or i32
  std::size_t group_ranks = 1;                      // a divisor of the group's size; the same on every rank
  Counts counts = {};                               // without a `sharding`, since groups differ in their rows
  std::size_t input_rows = 0;                       // rows that the input has room for: this rank's capacity
  std::size_t output_rows = 0;                      // rows that the output has room for: this rank's capacity
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};

// One kernel instead of reduce_scatter_v inside of each group and all_gather_v among all ranks, with the same bits. In
// rank r's slot, which begins at row O_r, every rank finds
//   output[O_r + i] = sum over the ranks q of r's group of input_q[S_r + i]   for i < n_r, and zero in the pads.
// S_r is the number of rows that r's group has before r's. Rows behind the last slot are not touched. With one group it
// is an all-reduce by counts on the device. With one rank per group it is all_gather_v, and scatter_sums is
// reduce_scatter_v: under these names, with `sharding` and in place as there.
//
// It is SGLang's dp_gather_partial (sgl-project/sglang#8279), which changes its input and rounds twice; this does
// neither.
//
// Sums, and their order, are those of all_reduce. Inputs are not changed, and no output shares a byte with the input.
// Counts, capacities and their errors are as in all_gather_v; the rows of one group must fit into its ranks'
// `input_rows`. Rows, strides, streams, graphs, tags, thread safety and other errors are as in the ragged forms
// (weft/collectives.hpp). Errc::unsupported (rejected): ranks that cannot reach each other's memory, as NCCL knows no
// such call.
//
// Algorithm (docs/protocol.md): two hops by push. A rank sums its shard and sends the sums on. Small shards carry their
// own arrival, as in two-shot all-reduces; large ones flow in chunks with credits.
void gather_sums(const Group& group, const CrossingArgs& args);

// The way back, in one kernel: reduce_scatter_v among all ranks and all_gather_v inside of each group, with the same
// bits. Every rank of a group finds, for the ranks r of its group,
//   output[S_r + i] = sum over all ranks q of input_q[O_r + i]   for i < n_r,
// and zeros behind its group's last row, as many rows as the group's slots have pads. `output_rows` must have room for
// them. It is SGLang's dp_reduce_scatter_tensor. Everything else is as in gather_sums. For a rank's own shard alone,
// reduce_scatter_v over all ranks is that call.
void scatter_sums(const Group& group, const CrossingArgs& args);

}  // namespace weft
