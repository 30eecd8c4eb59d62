#include "operations.hpp"

namespace weft::python {

namespace {

void check_rows(const char* argument, const Rows& given, std::size_t rows) {
  if (given.rows != rows)
    reject(fmt::format("{}: {} rows of {} bytes; it must have {}", argument, given.rows, given.row_bytes, rows));
}

void check_type(const Tensor& out, const Tensor& in) {
  if (in.type != out.type)
    reject(fmt::format("output: elements are {}; the input's are {}", name_of(out.type), name_of(in.type)));
}

// Elements side by side: as many as the input has.
void check_like_input(const Tensor& out, const Tensor& in) {
  check_type(out, in);
  if (out.count() != in.count()) reject(fmt::format("output: {} elements; the input has {}", out.count(), in.count()));
  check_side_by_side("output", out);
}

// Elements side by side: of each rank as many as `part` has.
void check_parts(const char* argument, const Tensor& parts, const Tensor& part, std::size_t ranks) {
  if (parts.count() != ranks * part.count())
    reject(fmt::format("{}: {} elements; it must have {}, {} of each rank", argument, parts.count(),
                       ranks * part.count(), part.count()));
  check_dense(argument, parts, {0, name_of(parts.type)});
}

// The parts that gathers and copies have in common.
template <class Args>
Args moved(const Tensor& out, const Tensor& in, const Rows& to, const Rows& from) {
  check_type(out, in);
  return {.input = in.data,
          .output = out.data,
          .rows = from.rows,
          .row_bytes = from.row_bytes,
          .input_stride = from.stride,
          .output_stride = to.stride};
}

void check_same_rows(const Tensor& out, const Tensor& in, const Rows& to, const Rows& from) {
  if (in.type != out.type || to.row_bytes != from.row_bytes)
    reject(fmt::format("output: rows of {} bytes of {}; the input's have {} bytes of {}", to.row_bytes,
                       name_of(out.type), from.row_bytes, name_of(in.type)));
}

}  // namespace

Matrix matrix_of(const char* argument, const Tensor& tensor, const char* shape) {
  if (tensor.dimensions != 2) reject(fmt::format("{}: shape {}; it must be {}", argument, tensor.shape_text(), shape));
  const Rows rows = ragged_rows_of(argument, tensor);
  return {rows.rows, rows.row_bytes / tensor.item(), rows.stride / tensor.item()};
}

AllReduceArgs all_reduce_args(const Tensor& out, const Tensor& in) {
  check_like_input(out, in);
  check_side_by_side("input", in);
  return {.input = in.data, .output = out.data, .count = in.count(), .type = data_type_of("output", in)};
}

const Tensor* of_root(const char* argument, bool at_root, const std::optional<Tensor>& given) {
  if (!at_root) return nullptr;
  if (!given) reject(fmt::format("{}: none; the root must have one", argument));
  return &*given;
}

ReduceArgs reduce_args(const Tensor* out, const Tensor& in) {
  check_side_by_side("input", in);
  if (out != nullptr) check_like_input(*out, in);
  return {.input = in.data,
          .output = out == nullptr ? nullptr : out->data,
          .count = in.count(),
          .type = data_type_of("input", in)};
}

AllGatherArgs all_gather_args(const Tensor& out, const Tensor& in, std::size_t ranks) {
  const Rows from = rows_of("input", in), to = rows_of_length("output", out, from.row_bytes);
  if (from.row_bytes != 0) check_rows("output", to, from.rows * ranks);
  return moved<AllGatherArgs>(out, in, to, from);
}

AllToAllArgs all_to_all_args(const Tensor& out, const Tensor& in, std::size_t ranks) {
  const Rows from = rows_of("input", in, ranks), to = rows_of_length("output", out, from.row_bytes);
  if (from.rows % ranks != 0) reject(fmt::format("input: {} rows are no multiple of {} ranks", from.rows, ranks));
  if (from.row_bytes != 0) check_rows("output", to, from.rows);
  auto args = moved<AllToAllArgs>(out, in, to, from);
  args.rows = from.rows / ranks;
  return args;
}

BroadcastArgs broadcast_args(const Tensor& out, const Tensor& in) {
  const Rows to = rows_of("output", out), from = rows_of_length("input", in, to.row_bytes);
  if (to.row_bytes != 0) check_rows("input", from, to.rows);
  auto args = moved<BroadcastArgs>(out, in, to, from);
  args.rows = to.rows;
  return args;
}

ReduceScatterArgs reduce_scatter_args(const Tensor& out, const Tensor& in, std::size_t ranks) {
  const Rows to = rows_of("output", out), from = rows_of_length("input", in, to.row_bytes);
  check_type(out, in);
  if (to.row_bytes != 0) check_rows("input", from, to.rows * ranks);
  const std::size_t item = in.item();
  return {.input = in.data,
          .output = out.data,
          .rows = to.rows,
          .width = to.row_bytes / item,
          .input_stride = from.stride / item,
          .output_stride = to.stride / item,
          .type = data_type_of("input", in)};
}

namespace {

// The arguments of a call that puts columns together, besides the rows.
template <class Args>
Args column_args(const Tensor& out, const Tensor& in, const Matrix& to, const Matrix& from) {
  const DataType type = data_type_of("input", in);
  const bool output_f32 = out.type != in.type && data_type_of("output", out) == DataType::f32;
  if (!output_f32) check_type(out, in);
  if (to.hidden == 0) reject(fmt::format("output: shape {}; it must have columns", out.shape_text()));
  Args args;
  args.input = in.data;
  args.output = out.data;
  args.shard_columns = from.hidden;
  args.columns = to.hidden;
  args.input_stride = from.stride;
  args.output_stride = to.stride;
  args.type = type;
  args.output_f32 = output_f32;
  return args;
}

}  // namespace

AllGatherColumnsArgs all_gather_columns_args(const Tensor& out, const Tensor& in) {
  const Matrix from = matrix_of("input", in, "[rows, columns]"), to = matrix_of("output", out, "[rows, columns]");
  if (to.tokens != from.tokens) reject(fmt::format("output: {} rows; the input has {}", to.tokens, from.tokens));
  auto args = column_args<AllGatherColumnsArgs>(out, in, to, from);
  args.rows = from.tokens;
  return args;
}

AllToAllColumnsArgs all_to_all_columns_args(const Tensor& out, const Tensor& in) {
  const Matrix from = matrix_of("input", in, "[rows, columns]"), to = matrix_of("output", out, "[rows, columns]");
  auto args = column_args<AllToAllColumnsArgs>(out, in, to, from);
  args.input_rows = from.tokens;
  args.output_rows = to.tokens;
  return args;
}

std::size_t groups_of(const Group& group, std::size_t group_ranks) {
  const auto size = static_cast<std::size_t>(group.size());
  if (group_ranks == 0 || size % group_ranks != 0)
    reject(fmt::format("group_ranks: {} is no divisor of the group's {}", group_ranks, size));
  return size / group_ranks;
}

TopKColumnsArgs top_k_columns_args(const Tensor* values, const Tensor& indices, const Tensor& in) {
  const Matrix from = matrix_of("input", in, "[rows, columns]"), to = matrix_of("indices", indices, "[rows, k]");
  if (to.tokens != from.tokens) reject(fmt::format("indices: {} rows; the input has {}", to.tokens, from.tokens));
  const std::size_t found = to.tokens * to.hidden;
  check_dense("indices", indices, {found, "i32"});
  if (values != nullptr) {
    const Matrix of = matrix_of("values", *values, "[rows, k]");
    if (of.tokens != to.tokens || of.hidden != to.hidden)
      reject(fmt::format("values: shape {}; the indices' is {}", values->shape_text(), indices.shape_text()));
    check_dense("values", *values, {found, name_of(in.type)});
  }
  return {.input = in.data,
          .values = values != nullptr ? values->data : nullptr,
          .indices = reinterpret_cast<std::int32_t*>(indices.data),
          .rows = from.tokens,
          .k = to.hidden,
          .shard_columns = from.hidden,
          .input_stride = from.stride,
          .type = data_type_of("input", in)};
}

GatherArgs gather_args(const Tensor* out, const Tensor& in, std::size_t ranks) {
  check_side_by_side("input", in);
  GatherArgs args{.input = in.data, .bytes = in.bytes()};
  if (out == nullptr) return args;
  check_type(*out, in);
  check_parts("output", *out, in, ranks);
  args.output = out->data;
  return args;
}

ScatterArgs scatter_args(const Tensor& out, const Tensor* in, std::size_t ranks) {
  check_side_by_side("output", out);
  ScatterArgs args{.output = out.data, .bytes = out.bytes()};
  if (in == nullptr) return args;
  check_type(out, *in);
  check_parts("input", *in, out, ranks);
  args.input = in->data;
  return args;
}

void set_counts(Counts& counts, const Group& group, const CountTensors& given) {
  const auto numbers_in = [](const char* argument, const Tensor& tensor, std::size_t count) {
    check_dense(argument, tensor, {count, "i32"});
    return reinterpret_cast<const std::int32_t*>(tensor.data);
  };
  counts.rows = numbers_in("counts.rows", *given.rows, given.numbers);
  if (!given.rows->on_gpu() && group.device() == Device::cuda) counts.on_host = true;
  if (given.slots == nullptr) return;
  if (given.slots->on_gpu() != given.rows->on_gpu())
    reject(
        fmt::format("counts.slots: on {}, and counts.rows on {}", device_text(*given.slots), device_text(*given.rows)));
  counts.slots = numbers_in("counts.slots", *given.slots, given.of_slots);
}

GatheredPair gathered_pair(const Tensor& out, const Tensor& in) {
  const Rows to = ragged_rows_of("output", out), from = ragged_rows_of("input", in);
  check_same_rows(out, in, to, from);
  return {{in.data, out.data, from.row_bytes, from.stride, to.stride}, from.rows, to.rows};
}

namespace {

// The arguments of a call that sums rows.
template <class Args>
Args ragged_sums_args(const Tensor& out, const Tensor& in) {
  const Rows to = ragged_rows_of("output", out), from = ragged_rows_of("input", in);
  check_same_rows(out, in, to, from);
  const std::size_t item = in.item();
  Args args;
  args.input = in.data;
  args.output = out.data;
  args.width = from.row_bytes / item;
  args.input_stride = from.stride / item;
  args.output_stride = to.stride / item;
  args.type = data_type_of("input", in);
  args.input_rows = from.rows;
  args.output_rows = to.rows;
  return args;
}

}  // namespace

ReduceScatterVArgs reduce_scatter_v_args(const Tensor& out, const Tensor& in) {
  return ragged_sums_args<ReduceScatterVArgs>(out, in);
}

CrossingArgs crossing_args(const Tensor& out, const Tensor& in) {
  return ragged_sums_args<CrossingArgs>(out, in);
}

TakeRowsArgs take_rows_args(const Tensor& out, const Tensor& in) {
  const Rows to = ragged_rows_of("output", out), from = ragged_rows_of("input", in);
  check_same_rows(out, in, to, from);
  return {.input = in.data,
          .output = out.data,
          .row_bytes = from.row_bytes,
          .input_stride = from.stride,
          .output_stride = to.stride,
          .input_rows = from.rows,
          .output_rows = to.rows};
}

GatheredCounts gathered_counts(std::size_t ranks, std::size_t columns, std::size_t group_ranks) {
  if (ranks == 0) reject("ranks is 0; it must be 1 or more");
  if (columns == 0 || columns > kMaxCountColumns)
    reject(fmt::format("columns is {}; it must be 1 … {}", columns, kMaxCountColumns));
  if (group_ranks == 0 || ranks % group_ranks != 0)
    reject(fmt::format("group_ranks is {}; it must divide {} ranks", group_ranks, ranks));
  return {ranks, columns, group_ranks};
}

AllGatherCountsArgs all_gather_counts_args(const Tensor& out, const Tensor& in, const GatheredCounts& places) {
  check_dense("input", in, {places.columns, "i32"});
  check_dense("output", out, {places.words(), "i32"});
  return {.input = reinterpret_cast<const std::int32_t*>(in.data),
          .output = reinterpret_cast<std::int32_t*>(out.data),
          .columns = places.columns,
          .group_ranks = places.group_ranks};
}

}  // namespace weft::python
