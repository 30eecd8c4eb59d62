// Collective operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/communicator.hpp"
#include "weft/launch.hpp"
#include "weft/types.hpp"

namespace weft {

struct AllReduceArgs {
  const void* input = nullptr;  // `count` elements; any alignment that the element type allows
  void* output = nullptr;       // `count` elements; may be equal to `input`, must not overlap it otherwise
  std::size_t count = 0;        // elements, 0 included; the same on every rank
  DataType type = DataType::bf16;
  ReduceOp op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  Stream stream = nullptr;  // GPU: where the work is enqueued, in order; CPU: must be null
  std::uint32_t tag = 0;    // compared between ranks: a layer number, say, to find calls that went out of step
  Launch launch = {};
};

// output[i] = reduction over ranks r = 0 … size−1 of input_r[i]. Results have the same bits on every rank, in every
// run, with every algorithm of Weft's own, on CPU and GPU. They are accumulated in fp32 in rank order and rounded once.
// NCCL and NVLink's switches (multimem) sum in their own order.
//
// Nothing is registered: pointers may be new in every call. GPU: the call enqueues kernels on `stream` and returns.
// CUDA graphs can capture it. Replays mix freely with eager calls of the same group as long as streams or events order
// them. Messages larger than the communicator's limits become several kernels. CPU: the call runs in the calling
// thread.
//
// Throws Errc::invalid_argument, or Errc::unsupported for an algorithm that is not available here (rejected, nothing
// sent). Throws Errc::released, or the fault of an earlier call. On CPU ranks a failure of this call is thrown here; on
// GPUs status() and check() report it.
//
// Algorithms: one-shot and two-shot push, and the data itself shows that it has arrived (docs/protocol.md).
// Flag-in-data goes back to NCCL's LL protocol; the sentinel form goes back to TensorRT-LLM's "Lamport" kernels.
void all_reduce(const Group& group, const AllReduceArgs& args);

struct ReduceArgs {
  const void* input = nullptr;  // `count` elements, aligned to the element type
  void* output = nullptr;       // on the root: `count` elements; may be `input`. Ignored elsewhere
  std::size_t count = 0;        // elements, 0 included, up to 2^40; the same on every rank
  DataType type = DataType::bf16;
  ReduceOp op = ReduceOp::sum;
  int root = 0;  // rank of the group
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// The root's output[i] = reduction over ranks of input_r[i], with the bits of all_reduce. Rules and errors are those of
// reduce_scatter_tensor.
void reduce(const Group& group, const ReduceArgs& args);

// ----------------------------------------------------------------------------------------------- gathers and scatters
//
// Rules of all of them:
// - Ranks move *rows*: `row_bytes` (or `width` elements) side by side, `stride` apart. Copies know no element type and
//   move bits. Each rank chooses its own strides and addresses, and they may have any value (outputs in symmetric
//   memory are the exception, see below). Rows and strides that are multiples of 16 bytes, at addresses that are, are
//   fastest. Numbers of rows, widths and strides may be up to 2^40. A tensor may span up to 2^46 bytes from its first
//   byte to its last.
// - Nothing is registered, and every byte is written at its final place. Inputs are not changed. An input may be the
//   rank's own place in the output, with the same stride. In a scatter the output may be the rank's own place in the
//   input, with the same stride. Otherwise an output shares no byte with any tensor of the call or with its counts,
//   gaps between rows included. Columns of one matrix may lie side by side if they have the same stride or a single
//   row.
// - When a call has run on its stream, inputs and outputs are the caller's again: no other rank reads them. A rank
//   without rows makes the call like the others. If no rank has rows, pads are cleared and nothing else is written.
// - Every call is one kernel, whatever its size. Stream, graphs, tags, thread safety, errors and `launch` are as in
//   all_reduce.
// - If ranks cannot reach each other's memory, NCCL moves the rows, which must lie side by side, and sums in its own
//   order. Errc::unsupported (rejected): a stride that leaves gaps, and ragged forms, because NCCL would need their
//   counts on the host.
// - Outputs of gathers, all_to_all and broadcast may lie in symmetric memory (weft/symmetric.hpp). Put all outputs of a
//   call into one symmetric memory, at the same place with the same stride on every rank. Align them, their rows and
//   their strides to 16 bytes. Large messages then go straight to their final place, which is faster from about 4 MB
//  on, with the same bits. If ranks differ in the place or the stride, calls of any size end with Errc::mismatch. No
// rank writes by counts
//   that the receiver has not found: if ranks find different counts, the call ends as Counts says. The deadline must
//   leave time for one rank's whole message, as a wait may last as long. The call owns the outputs from its begin on
//   this rank's stream to its end; after a fault, until the calls of all ranks have ended.
// - Algorithms (docs/protocol.md): small messages are pushed, and the data itself shows that it has arrived: lines as
//   in NCCL's LL protocol, and all_reduce's sentinel for sums. Large messages go in chunks with signals and credits. If
//   one rank has most rows (as in a broadcast), they take two hops over all ranks' links: van de Geijn's scatter and
//   gather. The bits are the same.

struct AllGatherArgs {
  const void* input = nullptr;                      // `rows` rows
  void* output = nullptr;                           // size · `rows` rows: rank 0's, then rank 1's, …
  std::size_t rows = 1;                             // the same on every rank
  std::size_t row_bytes = 0;                        // the same on every rank
  std::size_t input_stride = 0, output_stride = 0;  // bytes from row to row; 0: row_bytes
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// output[r · rows + i] = input_r[i]
void all_gather_into_tensor(const Group& group, const AllGatherArgs& args);

struct AllToAllArgs {
  const void* input = nullptr;  // size · `rows` rows: those for rank 0, then those for rank 1, …
  void* output = nullptr;       // size · `rows` rows: those from rank 0, then those from rank 1, …; never `input`
  std::size_t rows = 1;         // that one rank sends to another; the same on every rank
  std::size_t row_bytes = 0;    // the same on every rank
  std::size_t input_stride = 0, output_stride = 0;  // bytes from row to row; 0: row_bytes
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// output_q[r · rows + i] = input_r[q · rows + i]
void all_to_all(const Group& group, const AllToAllArgs& args);

struct BroadcastArgs {
  const void* input = nullptr;                      // on the root; ignored elsewhere
  void* output = nullptr;                           // on every rank; on the root it may be `input`
  std::size_t rows = 1;                             // the same on every rank
  std::size_t row_bytes = 0;                        // the same on every rank
  std::size_t input_stride = 0, output_stride = 0;  // bytes from row to row; 0: row_bytes
  int root = 0;                                     // rank of the group
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// output[i] = input_root[i]
void broadcast(const Group& group, const BroadcastArgs& args);

struct ReduceScatterArgs {
  const void* input = nullptr;  // size · `rows` rows: those of rank 0's result, then those of rank 1's, …
  void* output = nullptr;       // `rows` rows
  std::size_t rows = 1;         // of one rank's result; the same on every rank
  std::size_t width = 0;        // elements of a row; the same on every rank
  std::size_t input_stride = 0, output_stride = 0;  // elements from row to row; 0: width
  DataType type = DataType::bf16;                   // pointers must be aligned to it
  ReduceOp op = ReduceOp::sum;
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// output_q[i] = reduction over ranks r = 0 … size−1 of input_r[q · rows + i], as all_reduce makes it: the same bits.
void reduce_scatter_tensor(const Group& group, const ReduceScatterArgs& args);

struct BarrierArgs {
  Stream stream = nullptr;
  std::uint32_t tag = 0;
};
// No rank's barrier ends before every rank's barrier has begun. A barrier begins after everything before it on that
// rank's stream.
void barrier(const Group& group, const BarrierArgs& args);

// ------------------------------------------------------------------------------------------------------- ragged forms

// The number of rows of each rank, in memory that kernels read: one captured graph serves every batch. The numbers must
// be the same on all ranks when the call runs, and must stay until it has run. If each rank knows only its own number,
// all_gather_counts (weft/counts.hpp) exchanges them. weft/parallel.hpp computes the same on the host. If the numbers
// differ, the call ends with Errc::mismatch or Errc::peer_failed on every rank (Errc::capacity if they do not fit). Its
// outputs are then undefined. Ranks compare a hash of 16 bits.
struct Counts {
  const std::int32_t* rows = nullptr;  // [size]; with a `sharding` [1]. Aligned to 4 bytes. GPU: device memory
  Sharding sharding = Sharding::none;  // how ranks share rows[0]; each rank's share then has a slot like any count
  Padding padding = Padding::none;
  std::size_t slot_rows = 0;  // aligned: the multiple; fixed: rows of each slot; up to 2^31 − 1. Else not read
  const std::int32_t* slots = nullptr;  // per_rank: [size] rows of each rank's slot, in memory like `rows`; else null
  // `rows` and `slots` are in the host's memory, and are read before the call returns. A captured graph and a Recording
  // keep these numbers. GPU: one more small kernel, which takes them to the device. Other ranks may have theirs on the
  // device. A negative number is Errc::invalid_argument at once. Not for take_rows.
  bool on_host = false;
};

struct GatheredTensor {
  const void* input = nullptr;                      // this rank's rows
  void* output = nullptr;                           // all ranks' slots
  std::size_t row_bytes = 0;                        // the same on every rank
  std::size_t input_stride = 0, output_stride = 0;  // bytes from row to row; 0: row_bytes
};
inline constexpr std::size_t kMaxGatheredTensors = 8;

struct AllGatherVArgs {
  std::span<const GatheredTensor> tensors;  // 1 … 8: a token's hidden state, scales, ids, weights, …
  Counts counts = {};
  std::size_t input_rows = 0;   // rows that each input has room for: this rank's capacity
  std::size_t output_rows = 0;  // rows that each output has room for: this rank's capacity for all slots
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
  // Neighbours that have the same rows, as ranks of an attention group do (ParallelLayout::attn_tp()); a divisor of the
  // group's size, the same on every rank. If it is not 1, an input has the rows of all of them, shard behind shard, and
  // a rank sends its own shard: SGLang's dp_gather_replicate, without its sum and with inputs unchanged. Counts are of
  // shards then, without a `sharding`, `input_rows` must have room for a group's rows, and nothing is in place.
  std::size_t group_ranks = 1;
};
// With n_r rows in rank r, and its slot beginning at row O_r: output[O_r + i] = input_r[i] for i < n_r, and zero in the
// slot's pads. Rows behind the last slot are not touched.
//
// In place, a rank's input must lie in its slot as the counts place it. The host does not know the counts and does not
// check this.
//
// Capacities are each rank's own: ranks may have captured graphs for different capacities. Errc::capacity: a count or a
// slot's length is negative, a count exceeds its fixed or per_rank slot, or the rows exceed a rank's capacity. That
// rank ends with Errc::capacity, the others with Errc::capacity or Errc::peer_failed. No byte is read or written out of
// bounds.
void all_gather_v(const Group& group, const AllGatherVArgs& args);

struct ReduceScatterVArgs {
  const void* input = nullptr;                      // all ranks' slots, of which pads are not read
  void* output = nullptr;                           // this rank's slot
  std::size_t width = 0;                            // elements of a row; the same on every rank
  std::size_t input_stride = 0, output_stride = 0;  // elements from row to row; 0: width
  DataType type = DataType::bf16;
  ReduceOp op = ReduceOp::sum;
  Counts counts = {};
  std::size_t input_rows = 0;   // rows that the input has room for: this rank's capacity for all slots
  std::size_t output_rows = 0;  // rows that the output has room for: this rank's capacity for its slot
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// output_q[i] = reduction over ranks r of input_r[O_q + i] for i < n_q, and zero in the slot's pads. Counts and errors
// are as in all_gather_v, reductions as in all_reduce.
void reduce_scatter_v(const Group& group, const ReduceScatterVArgs& args);

}  // namespace weft
