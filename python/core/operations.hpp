// Arguments of operations, made from tensors and checked. Both doors use them: weft.Group's methods, and torch's
// operators (which have no lock of the interpreter, so nothing here touches an object of Python).
#pragma once

#include <fmt/format.h>

#include "tensor.hpp"
#include "weft/weft.hpp"

namespace weft::python {

// A matrix [tokens, hidden], or one of other names; strides in elements.
struct Matrix {
  std::size_t tokens, hidden, stride;
};
Matrix matrix_of(const char* argument, const Tensor& tensor, const char* shape = "[tokens, hidden]");

AllReduceArgs all_reduce_args(const Tensor& out, const Tensor& in);
// A tensor that the root alone has: null elsewhere. Rejects a root without it.
const Tensor* of_root(const char* argument, bool at_root, const std::optional<Tensor>& given);
ReduceArgs reduce_args(const Tensor* out, const Tensor& in);
AllGatherArgs all_gather_args(const Tensor& out, const Tensor& in, std::size_t ranks);
AllToAllArgs all_to_all_args(const Tensor& out, const Tensor& in, std::size_t ranks);
BroadcastArgs broadcast_args(const Tensor& out, const Tensor& in);
ReduceScatterArgs reduce_scatter_args(const Tensor& out, const Tensor& in, std::size_t ranks);
// An output of f32 has wider elements than an input of bf16 or f16.
AllGatherColumnsArgs all_gather_columns_args(const Tensor& out, const Tensor& in);
AllToAllColumnsArgs all_to_all_columns_args(const Tensor& out, const Tensor& in);
// The number of groups of so many neighbours; rejects what is no divisor.
std::size_t groups_of(const Group& group, std::size_t group_ranks);
// `values`: null if nobody asks for them.
TopKColumnsArgs top_k_columns_args(const Tensor* values, const Tensor& indices, const Tensor& in);

GatherArgs gather_args(const Tensor* out, const Tensor& in, std::size_t ranks);
ScatterArgs scatter_args(const Tensor& out, const Tensor* in, std::size_t ranks);
// A Send or a Receive.
template <class Message>
Message message_of(const char* argument, const Tensor& tensor, int peer, std::uint32_t tag) {
  check_dense(argument, tensor, {0, name_of(tensor.type)});
  return {.peer = peer, .data = tensor.data, .bytes = tensor.bytes(), .tag = tag};
}

// Tensors of counts: [numbers] of i32, and null or [of_slots].
struct CountTensors {
  const Tensor *rows, *slots;
  std::size_t numbers, of_slots;
};
// Sets rows and slots. GPU ranks read those that lie in the CPU's memory on the host.
void set_counts(Counts& counts, const Group& group, const CountTensors& given);
struct GatheredPair {
  GatheredTensor tensor;
  std::size_t input_rows, output_rows;
};
GatheredPair gathered_pair(const Tensor& out, const Tensor& in);
ReduceScatterVArgs reduce_scatter_v_args(const Tensor& out, const Tensor& in);
CrossingArgs crossing_args(const Tensor& out, const Tensor& in);
TakeRowsArgs take_rows_args(const Tensor& out, const Tensor& in);
GatheredCounts gathered_counts(std::size_t ranks, std::size_t columns, std::size_t group_ranks);
AllGatherCountsArgs all_gather_counts_args(const Tensor& out, const Tensor& in, const GatheredCounts& places);

// Null: the call has none.
struct NormTensors {
  const Tensor *output, *residual_output, *input, *gamma, *residual;
};
AllReduceRmsNormArgs norm_args(const NormTensors& given);
// The tensors' rows are the capacities.
CrossingRmsNormArgs normed_crossing_args(const NormTensors& given);
struct Fp8Tensors {
  const Tensor *rows, *scales, *scale;
};
// Sets `args.fp8`, whose scaling, type of scales and strides are set already.
void set_fp8(AllReduceRmsNormArgs& args, const Fp8Tensors& given);
// Without another output, e4m3 rows say for how many rows there is room.
void set_fp8(CrossingRmsNormArgs& args, const Fp8Tensors& given);

}  // namespace weft::python
