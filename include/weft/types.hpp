// The small vocabulary of the public interface: element types, reductions, algorithms, streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// A CUDA stream, without CUDA's headers: `cudaStream_t` and `CUstream` are this type.
struct CUstream_st;
// An NCCL communicator, without NCCL's header: `ncclComm_t` is a pointer to this type.
struct ncclComm;

namespace weft {

// A CUDA stream. On CPU ranks it must be null: operations run in the calling thread and are complete on return.
using Stream = CUstream_st*;

// Element types. Sums of floating types are made in f32, in rank order, and rounded once (to nearest even). i64 and u8
// are for all_reduce, reduce and the reduce-scatters; copies know no element type.
enum class DataType : std::uint8_t { bf16, f16, f32, i32, i64, u8 };

// sum: f32 accumulation for floating types (a NaN result is the canonical quiet NaN: 0x7fff, 0x7fff, 0x7fffffff),
//      modulo 2^32 for i32, 2^64 for i64, 2^8 for u8.
// max: NaN wins over every number; +0 is larger than −0.
// min: NaN wins over every number; −0 is smaller than +0.
// avg: the sum, divided by the number of ranks. Floating types: the f32 sum is divided in f32, then rounded like a sum.
//      Integers: the sum of i32 and i64 as above, the exact sum of u8; the quotient is rounded toward zero.
// NCCL, if it makes a reduction, adds in its own order. It divides floating numbers before it adds them, and averages
// of u8 are Errc::unsupported.
enum class ReduceOp : std::uint8_t { sum, max, min, avg };

// The algorithm of an all-reduce. `automatic` chooses by device, world size and message size among Weft's own, whose
// results are bit-identical.
//   one_shot  one hop, every rank sends its whole message to every other: the fastest for small messages
//   two_shot  two hops, reduce-scatter and all-gather: the fastest for larger ones on GPUs
//   pipelined two hops in chunks, a message of any size in one kernel: the fastest on CPU ranks above 2 KB, and on GPUs
//             from 64 MB on
//   nccl      only used when asked for, or if GPUs do not share an NVLink domain
//   multimem_one_shot, multimem_two_shot
//             NVLink's switches add up and send to all: only used when asked for, in communicators that have
//             Config::multicast, by all ranks of one. Sums of bf16, f16 and f32 alone. Order and rounding are the
//             switch's, so the bits differ from the others'. Two-shot gives all ranks the same bits. Never yet
//             run on GPUs; on CPU ranks each rank does the switch's work, in rank order.
enum class Algorithm : std::uint8_t {
  automatic,
  one_shot,
  two_shot,
  pipelined,
  nccl,
  multimem_one_shot,
  multimem_two_shot
};

// The begin of one rank's rows in a tensor that holds all ranks' rows: behind the slots of the ranks before it. The
// slot of a rank with n rows:
//   none      n rows;
//   aligned   n rows, rounded up to a multiple;
//   max       the largest n of all ranks;
//   fixed     a given number of rows;
//   per_rank  a number of rows of its own, which kernels read like n: at least n.
// Rows of a slot behind the n-th are its pads.
enum class Padding : std::uint8_t { none, aligned, max, fixed, per_rank };

// The division of m rows among A ranks, in rank order.
//   none      counts are given rank by rank;
//   balanced  m div A, and one more in the first m mod A ranks (torch.tensor_split, SGLang);
//   ceil      ⌈m / A⌉, and less or nothing in the last ones (vLLM's sequence-parallel chunks).
enum class Sharding : std::uint8_t { none, balanced, ceil };

// Columns of a row of e4m3 that share one scale.
inline constexpr std::uint32_t kScaleColumns = 128;

// The place of a communicator's ranks.
enum class Device : std::uint8_t { automatic, cpu, cuda };

constexpr std::size_t size_of(DataType type) {
  constexpr std::size_t sizes[] = {2, 2, 4, 4, 8, 1};
  return sizes[static_cast<int>(type)];
}

constexpr bool is_floating(DataType type) {
  return type == DataType::bf16 || type == DataType::f16 || type == DataType::f32;
}

constexpr std::string_view name(DataType type) {
  constexpr std::string_view names[] = {"bf16", "f16", "f32", "i32", "i64", "u8"};
  return names[static_cast<int>(type)];
}

constexpr std::string_view name(ReduceOp op) {
  constexpr std::string_view names[] = {"sum", "max", "min", "avg"};
  return names[static_cast<int>(op)];
}

constexpr std::string_view name(Algorithm algorithm) {
  constexpr std::string_view names[] = {"automatic", "one-shot",          "two-shot",         "pipelined",
                                        "nccl",      "multimem-one-shot", "multimem-two-shot"};
  return names[static_cast<int>(algorithm)];
}

constexpr std::string_view name(Padding padding) {
  constexpr std::string_view names[] = {"none", "aligned", "max", "fixed", "per-rank"};
  return names[static_cast<int>(padding)];
}

constexpr std::string_view name(Sharding sharding) {
  constexpr std::string_view names[] = {"none", "balanced", "ceil"};
  return names[static_cast<int>(sharding)];
}

constexpr std::string_view name(Device device) {
  constexpr std::string_view names[] = {"automatic", "cpu", "cuda"};
  return names[static_cast<int>(device)];
}

}  // namespace weft
