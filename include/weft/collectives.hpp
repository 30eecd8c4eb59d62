// Collective operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/communicator.hpp"
#include "weft/types.hpp"

namespace weft {

// How a kernel is launched. It is each rank's own affair: it never changes what crosses the wire. `blocks` is also
// the most SMs that a call takes from kernels that run beside it.
struct Launch {
  // 2 to one more than the GPU's SMs (CPU ranks: 2): one for control and the others for data, of which bulk uses a
  // power of two, but on GPUs with up to 64 blocks every one; 0: chosen by size.
  int blocks = 0;
  // Per block, a multiple of 32 up to 512; up to 1024 where registers allow it (all_reduce of whole packs: bf16 among
  // two to four ranks, f16 and f32 among two or four; all_reduce_rms_norm: bf16 among two or four); 0: chosen by size.
  int threads = 0;
};

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

// output[i] = reduction over ranks r = 0 … size−1 of input_r[i], the same bits on every rank, in every run, by every
// algorithm of Weft's own, on CPU and GPU (fp32 accumulation in rank order, one rounding). NCCL's algorithms and those
// by NVLink's switches (multimem) sum in an order of theirs.
//
// Nothing is registered: pointers may be new in every call. GPU: enqueues kernels on `stream` and returns; capturable
// in CUDA graphs, and replays mix freely with eager calls of the same group as long as streams or events order them.
// Messages larger than the communicator's limits become several kernels. CPU: runs in the calling thread.
//
// Throws Errc::invalid_argument or, for an algorithm that cannot be had here, Errc::unsupported (rejected, nothing
// sent), Errc::released, or the fault of an earlier call. On CPU ranks a failure of this call is thrown here; on GPUs
// it is found by status() and check().
//
// Algorithms: one-shot and two-shot push with arrival in the data (flag-in-data goes back to NCCL's LL protocol; the
// sentinel form to TensorRT-LLM's "Lamport" kernels), see docs/protocol.md.
void all_reduce(const Group& group, const AllReduceArgs& args);

// ----------------------------------------------------------------------------------------------- gathers and scatters
//
// What holds for all of them:
// - Ranks move *rows*: `row_bytes` (or `width` elements) side by side, `stride` apart. Copies know no element type and
//   move bits. Strides and addresses are each rank's own affair (but of outputs in symmetric memory, see below) and may
//   have any value; rows and strides that are multiples of 16 bytes at addresses that are, are fastest. Numbers of
//   rows, widths and strides may be up to 2^40, and a tensor up to 2^46 bytes from its first to its last.
// - Nothing is registered, and everything is written where it finally belongs. Inputs are not changed. An input may be
//   the rank's own place in the output (or, in a scatter, the output its own place in the input), with the same stride;
//   otherwise an output shares no byte with any tensor of the call, nor with its counts, gaps between rows included.
//   Columns of one matrix, with the same stride or of a single row, may lie side by side.
// - When a call has run on its stream, inputs and outputs are the caller's again: no other rank reads them.
//   A rank without rows makes the call like the others; where nobody has any, pads are cleared and nothing else is
//   written.
// - Every call is one kernel, whatever its size. Stream, graphs, tags, thread safety and errors are all_reduce's, and
//   so is `launch`.
// - Where ranks cannot reach each other's memory, NCCL does it, of rows side by side: sums are then its own, and with a
//   stride that leaves gaps the call is rejected with Errc::unsupported, as ragged forms are, whose counts NCCL would
//   need on the host.
// - Outputs of gathers, all_to_all and broadcast in symmetric memory (weft/symmetric.hpp), all of a call in one, at the
//   same place with the same stride on every rank, aligned to 16 bytes as their rows and strides are: large messages
//   then go straight to where they belong, and from about 4 MB on faster, with the same bits. Where ranks differ in it,
//   calls of any size end with Errc::mismatch. Nobody writes by counts that the receiver has not found: where ranks
//   find different ones, the call ends as said at Counts. The deadline must leave time for one rank's whole message, as
//   a wait may last as long. The outputs are the call's from its begin on this rank's stream to its end; after a fault,
//   until the calls of all ranks have ended.
// - Algorithms: push with arrival in the data for small messages (lines as in NCCL's LL protocol; for sums the sentinel
//   of all_reduce), chunks with signals and credits for large ones; where one rank has most rows, a broadcast included,
//   two hops over all ranks' links (van de Geijn's scatter and gather), with the same bits. See docs/protocol.md.

struct AllGatherArgs {
  const void* input = nullptr;                      // `rows` rows
  void* output = nullptr;                           // size · `rows` rows: those of rank 0, then those of rank 1, …
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
  const void* input = nullptr;                      // on the root; not looked at elsewhere
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
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// output_q[i] = sum over ranks r = 0 … size−1 of input_r[q · rows + i], summed as all_reduce sums: the same bits.
void reduce_scatter_tensor(const Group& group, const ReduceScatterArgs& args);

struct BarrierArgs {
  Stream stream = nullptr;
  std::uint32_t tag = 0;
};
// No rank's barrier ends before every rank's has begun, which is after everything before it on that rank's stream.
void barrier(const Group& group, const BarrierArgs& args);

// ------------------------------------------------------------------------------------------------------- ragged forms

// How many rows each rank has, in memory that kernels read: one captured graph serves every batch. The numbers must be
// the same on all ranks when the call runs, and stay until it has run; where they come from a rank each,
// all_gather_counts (weft/counts.hpp) exchanges them. weft/parallel.hpp has the same on the host. Where they
// are not the same the call ends with Errc::mismatch or Errc::peer_failed on every rank (Errc::capacity where they do
// not fit), and what it has written is undefined; ranks compare a hash of 16 bits.
struct Counts {
  const std::int32_t* rows = nullptr;  // [size]; with a `split` [1]. Aligned to 4 bytes. GPU: device memory
  Split split = Split::none;           // how ranks share rows[0]; each rank's share then has a slot as any count has
  SlotKind slot = SlotKind::dense;
  std::size_t slot_rows = 0;  // aligned: the multiple; fixed: rows of each slot; up to 2^31 − 1. Else not looked at
  const std::int32_t* slots = nullptr;  // given: [size] rows of each rank's slot, in memory as of `rows`; else null
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
  std::size_t input_rows = 0;   // what each input has room for: this rank's capacity
  std::size_t output_rows = 0;  // what each output has room for: this rank's capacity for all slots
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// With n_r rows in rank r, and its slot beginning at row O_r: output[O_r + i] = input_r[i] for i < n_r, and zero in the
// slot's pads. Rows behind the last slot are not touched.
//
// In place, the slot of a rank is where counts say; what the host cannot know is not checked: that they say so.
//
// Capacities are each rank's own: ranks may have captured graphs for different ones. Counts and lengths of slots that
// are negative, counts that exceed a fixed or given slot, or what exceeds a capacity on any rank end the call with
// Errc::capacity on that rank and with Errc::capacity or Errc::peer_failed on the others; nothing is read or written
// out of bounds.
void all_gather_v(const Group& group, const AllGatherVArgs& args);

struct ReduceScatterVArgs {
  const void* input = nullptr;                      // all ranks' slots, of which pads are not read
  void* output = nullptr;                           // this rank's slot
  std::size_t width = 0;                            // elements of a row; the same on every rank
  std::size_t input_stride = 0, output_stride = 0;  // elements from row to row; 0: width
  DataType type = DataType::bf16;
  Counts counts = {};
  std::size_t input_rows = 0;   // what the input has room for: this rank's capacity for all slots
  std::size_t output_rows = 0;  // what the output has room for: this rank's capacity for its slot
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// output_q[i] = sum over ranks r of input_r[O_q + i] for i < n_q, and zero in the slot's pads. Counts and errors as in
// all_gather_v, sums as in all_reduce.
void reduce_scatter_v(const Group& group, const ReduceScatterVArgs& args);

}  // namespace weft
