#include "exchange_args.hpp"

#include <fmt/format.h>
#include <nanobind/stl/vector.h>

namespace weft::python {

namespace {

template <class T>
T* data_of(const Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.data);
}

template <class T>
T* checked(std::string_view argument, const Tensor& tensor, const Expected& expected) {
  check_dense(argument.data(), tensor, expected);
  return data_of<T>(tensor);
}

void* checked_bytes(std::string_view argument, const Tensor& tensor, std::size_t bytes) {
  return checked<void>(argument, tensor, {(bytes + tensor.item() - 1) / tensor.item(), name_of(tensor.type)});
}

}  // namespace

Expected ExchangeShapes::exchanged(std::size_t rows_of_all, bool cast) const {
  const std::size_t count = rows_of_all * args.hidden;
  if (cast || args.type == RowType::fp8) return {count, "e4m3", "u8", args.hidden};
  return {count, args.type == RowType::bf16 ? "bf16" : "f16", {}, args.hidden};
}

Expected ExchangeShapes::combined(std::size_t rows_of_all) const {
  return {rows_of_all * args.hidden, name(args.combine_type), {}, args.hidden};
}

std::size_t cast_scale_bytes(std::size_t rows, std::size_t columns, RowCast cast, ScaleOrder order) {
  const std::size_t scales = columns / kScaleColumns;
  if (cast != RowCast::fp8_ue8m0) return rows * scales * 4;
  return order == ScaleOrder::columns ? rows * ((scales + 3) / 4) * 4 : rows * scales;
}

std::size_t ExchangeShapes::scale_bytes() const {
  if (args.cast == RowCast::none) return rows * args.scale_bytes;
  return cast_scale_bytes(rows, args.hidden, args.cast, args.scale_order);
}

GivenRounds given_rounds(nb::handle given) {
  std::uint32_t count = 0;
  if (nb::try_cast(given, count)) return GivenRounds({count});
  std::vector<std::uint32_t> experts;
  if (!nb::try_cast(given, experts))
    reject_type("rounds: must be their number, or a sequence of the experts of each of them");
  return GivenRounds(std::move(experts));
}

namespace {

// The tokens of a routing: ids, or a mask.
std::size_t tokens_of(const char* name, const Tensor& routing, std::size_t width, std::size_t most) {
  if (routing.dimensions != 2 || static_cast<std::size_t>(routing.shape[1]) != width)
    reject(fmt::format("{}: shape {}; it must be [tokens, {}]", name, routing.shape_text(), width));
  const auto tokens = static_cast<std::size_t>(routing.shape[0]);
  if (tokens > most) reject(fmt::format("{}: {} tokens; the exchange is for {} at most", name, tokens, most));
  return tokens;
}

// A tensor of one dimension has an element for each row, or is no longer than all rows.
void check_row_bytes(const std::string& argument, const Tensor& tensor, std::size_t rows, std::size_t bytes) {
  std::size_t given = tensor.item();
  for (int i = 1; i < tensor.dimensions; ++i)
    given *= static_cast<std::size_t>(tensor.shape[static_cast<std::size_t>(i)]);
  if (given == bytes || (tensor.dimensions <= 1 && tensor.bytes() == rows * bytes)) return;
  reject(fmt::format("{}: rows of {} bytes; the exchange's payload has {}", argument, given, bytes));
}

template <class Data>
void set_payloads(std::array<Data*, kMostPayloads>& to, const char* name, const ExchangeShapes& shapes,
                  std::size_t rows, const PayloadTensors& given) {
  const std::vector<std::uint32_t>& bytes = shapes.args.payload_bytes;
  if (given.empty()) return;
  if (given.size() != bytes.size())
    reject(fmt::format("{}: {} tensors; the exchange has {} payloads", name, given.size(), bytes.size()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::string argument = fmt::format("{}[{}]", name, i);
    to[i] = checked_bytes(argument, *given[i], rows * bytes[i]);
    check_row_bytes(argument, *given[i], rows, bytes[i]);
  }
}

}  // namespace

void set_inputs(DispatchArgs& args, const ExchangeShapes& shapes, const DispatchInputs& given) {
  const Tensor *const ids = given.topk_ids, *const mask = given.rank_mask;
  const bool again = args.again != DispatchHandle{};
  if (again && (ids != nullptr || mask != nullptr || given.topk_weights != nullptr))
    reject("again: with it there are neither topk_ids nor topk_weights nor rank_mask");
  if (!again && (ids == nullptr) == (mask == nullptr)) reject("topk_ids: give either them or rank_mask");
  const std::size_t tokens = again            ? args.again.tokens
                             : ids != nullptr ? tokens_of("topk_ids", *ids, shapes.args.top_k, shapes.args.tokens)
                                              : tokens_of("rank_mask", *mask, shapes.ranks, shapes.args.tokens);
  const std::size_t entries = tokens * shapes.args.top_k;
  args.tokens = static_cast<std::uint32_t>(tokens);
  if (again) {
    if (args.most_tokens == 0) args.most_tokens = args.again.most_tokens;
  } else if (ids != nullptr) {
    args.topk_ids = checked<void>("topk_ids", *ids, {entries, "i32", "i64"});
    args.topk_ids_are_i64 = name_of(ids->type) == "i64";
  } else {
    args.rank_mask = checked<std::uint8_t>("rank_mask", *mask, {tokens * shapes.ranks, "bool", "u8"});
  }
  if (given.mask_ids != nullptr)
    args.mask_ids = checked<std::int32_t>("mask_ids", *given.mask_ids, {tokens * shapes.ranks, "i32"});
  args.input = checked<void>("input", *given.input, shapes.exchanged(tokens, false));
  if (given.topk_weights != nullptr)
    args.topk_weights = checked<float>("topk_weights", *given.topk_weights, {entries, "f32", {}, shapes.args.top_k});
  if (given.scales != nullptr) args.scales = checked_bytes("scales", *given.scales, tokens * shapes.args.scale_bytes);
  set_payloads(args.payloads, "payloads", shapes, tokens, given.payloads);
}

void set_output(DispatchArgs& args, const ExchangeShapes& shapes, const Tensor& output) {
  args.output = checked<void>("output", output, shapes.exchanged(shapes.rows, shapes.args.cast != RowCast::none));
}

void set_output(DispatchArgs& args, const ExchangeShapes& shapes, std::string_view name, const Tensor& given) {
  const std::size_t entries = shapes.rows * shapes.args.top_k;
  if (name == "output_scales") {
    args.output_scales = checked_bytes(name, given, shapes.scale_bytes());
  } else if (name == "counts") {
    args.counts = checked<std::int32_t>(name, given, {shapes.local_experts, "i32"});
  } else if (name == "offsets") {
    args.offsets = checked<std::int32_t>(name, given, {shapes.local_experts + 1, "i32"});
  } else if (name == "output_sources") {
    args.output_sources = checked<std::int32_t>(name, given, {shapes.rows, "i32"});
  } else if (name == "source_tokens") {
    args.source_tokens = checked<std::int32_t>(name, given, {shapes.ranks, "i32"});
  } else if (name == "source_wait_ns") {
    args.source_wait_ns = checked<std::uint64_t>(name, given, {shapes.ranks, "u64", "i64"});
  } else if (name == kHostCounts) {
    const std::size_t of_ranks = shapes.args.layout == RowLayout::rank_compact ? 2 * shapes.ranks : shapes.ranks;
    args.host_counts = checked<std::uint64_t>(name, given, {shapes.local_experts + of_ranks, "u64", "i64"});
  } else if (name == "output_ids") {
    args.output_ids = checked<std::int32_t>(name, given, {entries, "i32"});
  } else if (name == "rank_prefix") {
    args.rank_prefix = checked<std::int32_t>(name, given, {shapes.ranks * shapes.ranks, "i32"});
  } else {
    args.output_weights = checked<float>(name, given, {entries, "f32"});
  }
}

void set_output_payloads(DispatchArgs& args, const ExchangeShapes& shapes, const PayloadTensors& given) {
  set_payloads(args.output_payloads, "output_payloads", shapes, shapes.rows, given);
}

CombineArgs combine_args(const ExchangeShapes& shapes, const DispatchHandle& handle, const CombineTensors& given) {
  CombineArgs args{.handle = handle};
  const Expected tokens = shapes.combined(handle.tokens);
  if (given.input != nullptr) args.input = checked<void>("input", *given.input, shapes.combined(shapes.rows));
  if (given.topk_weights != nullptr) {
    const std::size_t entries = std::size_t{handle.tokens} * shapes.args.top_k;
    args.topk_weights = checked<float>("topk_weights", *given.topk_weights, {entries, "f32", {}, shapes.args.top_k});
  }
  if (given.output != nullptr) args.output = checked<void>("output", *given.output, tokens);
  if (given.residual != nullptr) args.residual = checked<void>("residual", *given.residual, tokens);
  if (given.source_wait_ns != nullptr)
    args.source_wait_ns = checked<std::uint64_t>("source_wait_ns", *given.source_wait_ns, {shapes.ranks, "u64", "i64"});
  return args;
}

}  // namespace weft::python
