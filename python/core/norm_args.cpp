// Arguments of calls with a norm.
#include "operations.hpp"

namespace weft::python {

namespace {

// The stride of a matrix of the same shape and type as another one.
std::size_t stride_like(const char* argument, const Tensor& tensor, const Tensor& other) {
  const Matrix of = matrix_of(argument, tensor), like = matrix_of(argument, other);
  if (of.tokens != like.tokens || of.hidden != like.hidden || tensor.type != other.type)
    reject(fmt::format("{}: {} {}; it must be {} {}", argument, name_of(tensor.type), tensor.shape_text(),
                       name_of(other.type), other.shape_text()));
  return of.stride;
}

// A matrix of the input's type and columns, and of any number of rows.
Matrix columns_like(const char* argument, const Tensor& tensor, const Tensor& in, std::size_t hidden) {
  const Matrix of = matrix_of(argument, tensor);
  if (of.hidden != hidden || tensor.type != in.type)
    reject(fmt::format("{}: {} {}; it must be {} [rows, {}]", argument, name_of(tensor.type), tensor.shape_text(),
                       name_of(in.type), hidden));
  return of;
}

// Null stands for a tensor that is not there. A tensor without elements may have no address: it takes another one's.
template <class Address>
void* address_or(const Tensor& tensor, Address* other) {
  return tensor.data != nullptr ? static_cast<void*>(tensor.data) : other;
}

// The arguments of a call with a norm, besides rows, and strides behind the input's.
template <class Args>
Args normed_args(const NormTensors& given, const Matrix& matrix) {
  const Tensor &in = *given.input, &gamma = *given.gamma;
  check_dense("gamma", gamma, {matrix.hidden, name_of(in.type), "f32"});
  if (gamma.count() != matrix.hidden)
    reject(fmt::format("gamma: {} elements; hidden is {}", gamma.count(), matrix.hidden));
  Args args;
  args.input = in.data;
  args.residual_output = address_or(*given.residual_output, gamma.data);
  args.gamma = gamma.data;
  args.gamma_f32 = name_of(gamma.type) == "f32";
  args.hidden = matrix.hidden;
  args.input_stride = matrix.stride;
  args.type = data_type_of("input", in);
  if (given.output != nullptr) args.output = address_or(*given.output, gamma.data);
  if (given.residual != nullptr) args.residual = address_or(*given.residual, gamma.data);
  return args;
}

void set_rows_as_e4m3(Fp8Output& fp8, std::size_t tokens, std::size_t hidden, const Fp8Tensors& given, void* other) {
  const Tensor& rows = *given.rows;
  const Matrix matrix = matrix_of("fp8.rows", rows);
  const std::string_view type = name_of(rows.type);
  if (matrix.tokens != tokens || matrix.hidden != hidden || (type != "e4m3" && type != "u8"))
    reject(fmt::format("fp8.rows: {} {}; it must be e4m3 or u8 [{}, {}]", type, rows.shape_text(), tokens, hidden));
  fp8.rows = address_or(rows, other);
  fp8.stride = matrix.stride;
  if (fp8.scaling == Fp8Scaling::fixed) {
    if (given.scale == nullptr) reject("fp8.scale: none; scaling 'fixed' needs one");
    check_dense("fp8.scale", *given.scale, {1, "f32"});
    fp8.scale = reinterpret_cast<const float*>(given.scale->data);
    return;
  }
  if (given.scales == nullptr) reject("fp8.scales: none; only scaling 'fixed' needs none");
  const std::size_t groups = fp8.scaling == Fp8Scaling::per_token ? 1 : hidden / 128;
  const std::size_t token_stride = fp8.scale_token_stride != 0 ? fp8.scale_token_stride : groups;
  const std::size_t group_stride = fp8.scale_group_stride != 0 ? fp8.scale_group_stride : 1;
  const bool none = tokens == 0 || groups == 0;
  check_dense("fp8.scales", *given.scales,
              {none ? 0 : (tokens - 1) * token_stride + (groups - 1) * group_stride + 1,
               fp8.scale_type == ScaleType::f32 ? "f32" : "u8"});
  fp8.scales = address_or(*given.scales, other);
}

}  // namespace

AllReduceRmsNormArgs norm_args(const NormTensors& given) {
  const Tensor& in = *given.input;
  const Matrix matrix = matrix_of("input", in);
  auto args = normed_args<AllReduceRmsNormArgs>(given, matrix);
  args.tokens = matrix.tokens;
  args.residual_output_stride = stride_like("residual_output", *given.residual_output, in);
  if (given.output != nullptr) args.output_stride = stride_like("output", *given.output, in);
  if (given.residual != nullptr) args.residual_stride = stride_like("residual", *given.residual, in);
  return args;
}

CrossingRmsNormArgs normed_crossing_args(const NormTensors& given) {
  const Tensor &in = *given.input, &sums = *given.residual_output;
  const Matrix matrix = matrix_of("input", in);
  auto args = normed_args<CrossingRmsNormArgs>(given, matrix);
  const Matrix shard = columns_like("residual_output", sums, in, matrix.hidden);
  args.input_rows = matrix.tokens;
  args.shard_rows = shard.tokens;
  args.residual_output_stride = shard.stride;
  if (given.residual != nullptr) args.residual_stride = stride_like("residual", *given.residual, sums);
  if (given.output != nullptr) {
    const Matrix normed = columns_like("output", *given.output, in, matrix.hidden);
    args.output_rows = normed.tokens;
    args.output_stride = normed.stride;
  }
  return args;
}

void set_fp8(AllReduceRmsNormArgs& args, const Fp8Tensors& given) {
  set_rows_as_e4m3(args.fp8, args.tokens, args.hidden, given, args.residual_output);
}

void set_fp8(CrossingRmsNormArgs& args, const Fp8Tensors& given) {
  if (args.output == nullptr) args.output_rows = matrix_of("fp8.rows", *given.rows).tokens;
  set_rows_as_e4m3(args.fp8, args.output_rows, args.hidden, given, args.residual_output);
}

}  // namespace weft::python
