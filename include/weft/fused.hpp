// Collectives fused with the step that a model's layer applies to their result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/collectives.hpp"
#include "weft/communicator.hpp"
#include "weft/launch.hpp"
#include "weft/types.hpp"

namespace weft {

// The columns of an e4m3 row that share a scale.
//   fixed            one scale for everything, which the caller gives
//   per_token        one for each row: made here
//   per_128_columns  one for each 128 columns of a row: made here; hidden is a multiple of 128
enum class Fp8Scaling : std::uint8_t { fixed, per_token, per_128_columns };

// The format of the scales that are made here.
//   f32     max(largest magnitude, floor) / 448
//   ue8m0   that, rounded up to a power of two: one byte, the exponent + 127
enum class ScaleType : std::uint8_t { f32, ue8m0 };

// Rows as e4m3: the row times the inverse of its scale, rounded to nearest even; ±448 if it exceeds that, 0x7f for NaN.
// The inverse is 1 / scale (fixed), 448 / max(largest magnitude, floor) (f32), or exact (ue8m0). NaN does not count
// among magnitudes. Ranks compare four choices, which must be the same on every rank: whether rows are made, their
// scaling, and the type and the floor of scales made here.
struct Fp8Output {
  void* rows = nullptr;    // [tokens, hidden], aligned to 8 bytes; null: none are made
  std::size_t stride = 0;  // bytes from row to row, a multiple of 8; 0: hidden
  Fp8Scaling scaling = Fp8Scaling::per_token;
  const float* scale = nullptr;  // fixed: one f32 > 0, aligned to 4 bytes, read when the call runs. GPU: device memory
  void* scales = nullptr;        // the others: [tokens], or [tokens, hidden / 128], of …; f32 aligned to 4 bytes
  ScaleType scale_type = ScaleType::f32;
  // Scales from one row's to the next row's, and from one group of columns' to the next group's. 0: those of rows side
  // by side. 1 and the (padded) number of tokens give the layout by columns that grouped GEMMs read.
  // Errc::invalid_argument if two scales would have one place.
  std::size_t scale_token_stride = 0, scale_group_stride = 0;
  // 1e-30 … 448: the least magnitude that a scale is made for. DeepEP has 1e-4, SGLang 1e-10, vLLM's per token 1/512.
  float floor = 1e-4f;
};

// Tensors are [tokens, hidden], aligned to 16 bytes; strides are elements from row to row, multiples of 8, and 0 stands
// for hidden.
struct AllReduceRmsNormArgs {
  const void* input = nullptr;      // this rank's part of the sum
  const void* residual = nullptr;   // the same on every rank; null: there is none, as in a model's first block
  void* residual_output = nullptr;  // also if there is no residual
  const void* gamma = nullptr;      // [hidden] of `type`, or of f32, aligned to 16 bytes
  void* output = nullptr;           // normed rows of `type`; may be null if fp8 is made
  Fp8Output fp8 = {};
  std::size_t tokens = 0;  // up to 2^31; 0: tensors of rows may be null, on every rank; the same on every rank
  std::size_t hidden = 0;  // a multiple of 8, up to 65,536; the same on every rank
  std::size_t input_stride = 0, residual_stride = 0, residual_output_stride = 0, output_stride = 0;
  DataType type = DataType::bf16;              // or f16
  float epsilon = 1e-6f;                       // 0 … 1e30; the same on every rank, as is …
  bool gamma_plus_one = false;                 // … this: the weights are 1 + γ, as Gemma's are
  bool gamma_f32 = false;                      // … and this: γ is of f32 and used as it is
  Algorithm algorithm = Algorithm::automatic;  // or one_shot, or two_shot
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  // The data blocks share the rows. A two-shot of more than 4 MB of bf16 between two GPUs is different, unless γ is of
  // f32: three of eight blocks move rows, and the others norm them. Roles take 8 blocks or more, of 256, 384 or 512
  // threads (0: 512). γ of f32 has kernels for any number of ranks alone, and blocks of 512 threads at most.
  Launch launch = {};
};

// For every row of h columns, with one rounding at each `round`, and f32 between:
//   sum             = round(Σ over ranks r = 0 … size − 1 of input_r)   all_reduce's bits
//   residual_output = round(sum + residual)                             sum, without a residual
//   factor          = 1 / sqrt(Σ residual_output² · (1 / h) + ε)        of the rounded row
//   output          = round(residual_output · factor · γ)               or (1 + γ); from left to right
//   fp8.rows        = e4m3(output · inverse)                            of the rounded output, written or not
// Every operation of the factor is rounded to f32. All squares are added in an order that depends on h alone. So every
// rank has the same bits in everything, whatever the algorithm, the grid and the device. They are the bits of
// all_reduce, an addition and a norm one after the other.
//
// One kernel serves as many rows as fit into the communicator's buffers (Config::one_shot_bytes, two_shot_bytes). More
// rows take several kernels, and so does a row that is longer than the buffers. `residual_output` may be `residual`,
// and `output` may be `input`, with the same stride; no other output may overlap anything. Gaps between rows count,
// except between columns of one matrix. Every rank writes all rows. Streams, graphs, tags, threads and errors are as in
// all_reduce. Errc::unsupported: ranks cannot reach each other's memory.
void all_reduce_rms_norm(const Group& group, const AllReduceRmsNormArgs& args);

// A crossing (weft/crossings.hpp) whose sums are normed on the way. A rank owns a *shard* of its group's rows: it alone
// has their residual, and keeps the new one. Everything but the shard's tensors is as in CrossingArgs, and all
// tensors have the alignment and the strides of AllReduceRmsNormArgs.
//
// Null says of `residual`, `output` and `fp8.rows` that no rank has the tensor; ranks compare that. A rank that has no
// rows of a tensor which others have gives any other address, such as γ's: nothing is read or written there. Its
// `input`, `residual_output` and scales may be null. (An empty torch tensor's address is null; weft.torch sees to it.)
struct CrossingRmsNormArgs {
  const void* input = nullptr;      // gather: this group's rows; scatter: all slots. Partial sums
  const void* residual = nullptr;   // this rank's shard; null: no rank has one
  void* residual_output = nullptr;  // this rank's shard; may be `residual`, with the same stride
  const void* gamma = nullptr;      // [hidden] of `type`, or of f32
  void* output = nullptr;           // gather: all slots; scatter: this group's rows. Null: all make fp8 alone
  Fp8Output fp8 = {};               // rows and scales of the same tokens as `output`
  std::size_t hidden = 0;           // a multiple of 8, up to 65,536; the same on every rank
  std::size_t input_stride = 0, residual_stride = 0, residual_output_stride = 0, output_stride = 0;
  DataType type = DataType::bf16;  // or f16
  float epsilon = 1e-6f;           // 0 … 1e30; the same on every rank, as is …
  bool gamma_plus_one = false;     // … this: the weights are 1 + γ
  bool gamma_f32 = false;          // … and this: γ is of f32
  std::size_t group_ranks = 1;     // a divisor of the group's size; the same on every rank
  Counts counts = {};              // of every rank's shard; with a `sharding` only if group_ranks is 1
  // Rows for which there is room: this rank's capacities. Outputs have fewer than 2^32 packs of 16 bytes.
  std::size_t input_rows = 0, shard_rows = 0, output_rows = 0;
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  // Few rows have as many threads as hold a row of up to 8,192 columns, whatever is said here, unless γ is of f32.
  Launch launch = {};
};

// One kernel instead of three steps, with their bits:
//   1. reduce_scatter_v inside of each group
//   2. residual and norm on the shard, as all_reduce_rms_norm makes them
//   3. all_gather_v among all ranks, of whatever the norm has made
// The shard's residual_output is round(sum + residual). Every rank finds the normed rows of rank r in r's slot, and
// zeros in the pads of all outputs, scales included. Rows behind the last slot are not touched.
//
// Rows that are cast cross the wire as e4m3, with their scales: half of the bytes. If both `output` and `fp8` are made,
// both cross. With one rank per group there is no sum: rows are normed and gathered.
//
// It is the step between attention and a feed-forward layer with data-parallel attention (SGLang's prepare_mlp,
// sgl-project/sglang#8279). SGLang adds the residual to one rank's part before the sum, which rounds twice.
//
// The output is apart from all inputs. Counts, capacities, streams, graphs, tags, thread safety and errors are as in
// gather_sums. Algorithm (docs/protocol.md): the two hops of a crossing, with the norm at a shard's owner. On GPUs few
// rows go in one hop, with the residuals, and are normed by all who take them.
void gather_sums_rms_norm(const Group& group, const CrossingRmsNormArgs& args);

// The way back: reduce_scatter_v among all ranks, residual and norm on the shard, and all_gather_v inside of each
// group. The output has this group's rows, shard behind shard, and zeros behind them, as many as its slots have pads.
// With one rank per group that is the rank's own shard alone: then nothing is shared. Everything else is as above.
void scatter_sums_rms_norm(const Group& group, const CrossingRmsNormArgs& args);

constexpr std::string_view name(Fp8Scaling scaling) {
  constexpr std::string_view names[] = {"fixed", "per token", "per 128 columns"};
  return names[static_cast<int>(scaling)];
}

}  // namespace weft
