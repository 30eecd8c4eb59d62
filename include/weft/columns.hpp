// Columns of all ranks side by side: a vocabulary's logits from the ranks that share it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/collectives.hpp"
#include "weft/communicator.hpp"
#include "weft/launch.hpp"
#include "weft/types.hpp"

namespace weft {

struct AllGatherColumnsArgs {
  const void* input = nullptr;    // [rows, shard_columns]: this rank's columns
  void* output = nullptr;         // [rows, columns]
  std::size_t rows = 0;           // 0 included; the same on every rank
  std::size_t shard_columns = 0;  // of every rank's input, pads included; the same on every rank
  // Columns of an output row, 1 … size · shard_columns; 0: all. Columns behind them are pads of the last shards, as a
  // padded vocabulary has them. They are sent and not written. The same on every rank.
  std::size_t columns = 0;
  // The columns are divided as torch.tensor_split does: the first columns mod size ranks have one more than the others,
  // and what a shard has behind its own are pads. The same on every rank.
  bool even_shards = false;
  std::size_t input_stride = 0;   // elements from row to row; 0: shard_columns
  std::size_t output_stride = 0;  // elements of the output from row to row; 0: columns
  DataType type = DataType::bf16;
  // These three change elements on their way, for bf16, f16 and f32. They are the same on every rank.
  bool output_f32 = false;  // the output is f32; else of `type`
  float scale = 1.0f;       // finite; scale / soft_cap is a number of f32, too
  float soft_cap = 0.0f;    // finite, above 0; 0: none
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// output[i, c_r + j] = f(input_r[i, j]) for all columns j that rank r has, of which c_r is the first: r ·
// shard_columns, or with even shards the columns of all lower ranks. It is torch's all-gather along the last dimension.
// Nothing is transposed or copied again, and nothing behind a row's columns is written.
//
// Without the last three choices f keeps all bits, of any type. Else f(x) = soft_cap · tanh(x · (scale / soft_cap)), or
// scale · x without a soft cap. It is worked out in f32 and rounded once to the output's type, so all ranks, CPUs and
// GPUs have the same bits. NaN becomes 0x7fff in bf16 and f16, and 0x7fffffff in f32. tanh is within 2.5 units in the
// last place of f32.
//
// Pointers are aligned to their elements. Rows of shards and strides of whole 16 bytes, at such addresses, are fastest;
// `columns` need not be such a number if output_stride is; even shards are as fast if all have whole 16 bytes. Rules,
// errors and algorithms are those of gathers (weft/collectives.hpp), symmetric outputs included. Peers write there if
// rows of shards and of the output, and its stride, have whole 16 bytes, and elements are not widened: widened rows
// cross as they are and grow on arrival. The input may be the rank's own columns in the output, with the same stride,
// if f keeps all bits and shards are not even. Errc::unsupported (rejected): ranks cannot reach each other's memory.
void all_gather_columns(const Group& group, const AllGatherColumnsArgs& args);

struct AllToAllColumnsArgs {
  const void* input = nullptr;    // [input_rows, shard_columns]: this rank's columns of all groups' slots
  void* output = nullptr;         // [output_rows, columns]: all columns of this rank's group's rows
  std::size_t shard_columns = 0;  // as in AllGatherColumnsArgs, like all that is not explained here
  std::size_t columns = 0;
  bool even_shards = false;
  std::size_t input_stride = 0;   // elements from row to row; 0: shard_columns
  std::size_t output_stride = 0;  // elements of the output from row to row; 0: columns
  DataType type = DataType::bf16;
  bool output_f32 = false;
  float scale = 1.0f;
  float soft_cap = 0.0f;
  // Neighbours that get the same rows, as ranks of an attention group do (ParallelLayout::attn_tp()). A divisor of the
  // group's size; the same on every rank.
  std::size_t group_ranks = 1;
  Counts counts = {};           // of groups: `rows` and `slots` have size / group_ranks numbers
  std::size_t input_rows = 0;   // rows that the input has room for: this rank's capacity for all slots
  std::size_t output_rows = 0;  // rows that the output has room for: this rank's capacity for its group's rows
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// The rows of each group, complete, on the ranks of that group alone. With n_g rows in group g, and its slot beginning
// at row O_g, every rank of g finds
//   output[i, c_r + j] = f(input_r[O_g + i, j])   for i < n_g, and c_r and j as in all_gather_columns.
// Nothing else is written: no rows behind the group's, and nothing behind a
// row's columns. Pads of slots are neither read nor sent. f, the columns and their rounding are all_gather_columns';
// with one group it is all_gather_columns by counts on the device. A rank sends each row to one group, where
// all_gather_columns sends it to all ranks.
//
// It serves engines whose vocabulary is split over all ranks while attention is data parallel: SGLang gathers all
// logits on every rank and takes its own (sgl-project/sglang#8279). `counts` come from all_gather_counts (`rows`,
// `slots`). A group's rows lie together: pads between its ranks' shards, as all_gather_v leaves them in padded slots,
// would count as rows.
//
// Counts, capacities and their errors are as in all_gather_v (weft/collectives.hpp), whose algorithm this is. Pointers,
// strides, streams, graphs, tags and thread safety are as in all_gather_columns. No output shares a byte with an input.
// An output in symmetric memory is no faster. Errc::unsupported (rejected): ranks cannot reach each other's memory.
void all_to_all_columns(const Group& group, const AllToAllColumnsArgs& args);

}  // namespace weft
