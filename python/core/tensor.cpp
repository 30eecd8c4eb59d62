#include "tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace weft::python {

namespace {

using dtype = nb::dlpack::dtype;
using code = nb::dlpack::dtype_code;

constexpr dtype type_with(code of, std::uint8_t bits) {
  return {static_cast<std::uint8_t>(of), bits, 1};
}
struct NamedType {
  std::string_view name;
  dtype type;
};
constexpr NamedType kTypes[] = {
    {"bf16", type_with(code::Bfloat, 16)}, {"f16", type_with(code::Float, 16)},
    {"f32", type_with(code::Float, 32)},   {"f64", type_with(code::Float, 64)},
    {"i8", type_with(code::Int, 8)},       {"i16", type_with(code::Int, 16)},
    {"i32", type_with(code::Int, 32)},     {"i64", type_with(code::Int, 64)},
    {"u8", type_with(code::UInt, 8)},      {"u16", type_with(code::UInt, 16)},
    {"u32", type_with(code::UInt, 32)},    {"u64", type_with(code::UInt, 64)},
    {"bool", type_with(code::Bool, 8)},    {"e4m3", type_with(code::Float8_E4M3FN, 8)},
};
constexpr std::pair<dtype, DataType> kReducedTypes[] = {
    {type_with(code::Bfloat, 16), DataType::bf16}, {type_with(code::Float, 16), DataType::f16},
    {type_with(code::Float, 32), DataType::f32},   {type_with(code::Int, 32), DataType::i32},
    {type_with(code::Int, 64), DataType::i64},     {type_with(code::UInt, 8), DataType::u8},
};

}  // namespace

std::string type_names() {
  std::string names;
  for (const NamedType& of : kTypes) names += fmt::format("{}{}", names.empty() ? "" : ", ", of.name);
  return names;
}

void set_dense_strides(Tensor& tensor) {
  std::int64_t stride = 1;
  for (int i = tensor.dimensions - 1; i >= 0; --i) {
    tensor.strides[i] = stride;
    stride *= std::max<std::int64_t>(tensor.shape[i], 1);
  }
}

void set_shape(const char* argument, Tensor& tensor, std::span<const std::int64_t> shape) {
  if (shape.size() > Tensor::kMostDimensions)
    reject(fmt::format("{}: {} dimensions; at most {}", argument, shape.size(), Tensor::kMostDimensions));
  tensor.dimensions = static_cast<int>(shape.size());
  std::ranges::copy(shape, tensor.shape.begin());
  if (std::ranges::any_of(shape, [](std::int64_t length) { return length < 0; }))
    reject(fmt::format("{}: shape {}; every length must be 0 or more", argument, tensor.shape_text()));
  std::size_t bytes = tensor.item();
  for (const std::int64_t length : shape) {
    if (length != 0 && bytes > kMostTensorBytes / static_cast<std::size_t>(length))
      reject(fmt::format("{}: shape {}; a tensor has up to 2^46 bytes", argument, tensor.shape_text()));
    bytes *= static_cast<std::size_t>(length);
  }
}

std::string device_text(const Tensor& tensor) {
  if (!tensor.on_gpu()) return "cpu";
  return tensor.device.device_id < 0 ? "cuda" : fmt::format("cuda:{}", tensor.device.device_id);
}

void reject(const std::string& message) {
  throw Rejection(Errc::invalid_argument, message);
}

void reject_type(const std::string& message) {
  throw nb::type_error(message.c_str());
}

std::size_t Tensor::count() const {
  std::size_t count = 1;
  for (int i = 0; i < dimensions; ++i) count *= static_cast<std::size_t>(shape[i]);
  return count;
}

bool Tensor::dense_from(int dimension) const {
  if (count() == 0) return true;  // whatever strides it has
  std::int64_t stride = 1;
  for (int i = dimensions - 1; i >= dimension; --i) {
    if (shape[i] != 1 && strides[i] != stride) return false;
    stride *= shape[i];
  }
  return true;
}

bool Tensor::on_gpu() const {
  return device.device_type == nb::device::cuda::value || device.device_type == nb::device::cuda_managed::value;
}

std::string Tensor::shape_text() const {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.begin() + dimensions, ", "));
}

std::string_view name_of(dtype type) {
  for (const NamedType& of : kTypes)
    if (of.type == type) return of.name;
  return "unknown";
}

dtype type_of(std::string_view name) {
  for (const NamedType& of : kTypes)
    if (of.name == name) return of.type;
  reject(fmt::format("dtype is '{}'; it must be one of {}", name, type_names()));
}

DataType data_type_of(const char* argument, const Tensor& of) {
  for (const auto& [type, reduced] : kReducedTypes)
    if (of.type == type) return reduced;
  reject(fmt::format("{}: elements are {}; sums are of bf16, f16, f32, i32, i64 and u8", argument, name_of(of.type)));
}

Tensor Tensors::read(const char* argument, nb::handle given, Access access) {
  return of_torch_ ? tensor_of_plain_torch(argument, given, access) : tensor_of(argument, given, access);
}

const Tensor& Tensors::kept(Tensor tensor) {
  if (recorded != nullptr) recorded->tensors.push_back(tensor);
  return kept_.emplace_front(std::move(tensor));
}

const Tensor& Tensors::taken(const char* argument, nb::handle given, Access access) {
  Tensor tensor = read(argument, given, access);
  const bool wanted = group.device() == Device::cuda;
  if (tensor.on_gpu() != wanted && tensor.count() != 0)
    reject(fmt::format("{}: on {}, but the group's ranks work on {}", argument, device_text(tensor),
                       name(group.device())));
  return kept(std::move(tensor));
}

const Tensor& Tensors::of_host(const char* argument, nb::handle given, Access access) {
  Tensor tensor = read(argument, given, access);
  if (tensor.on_gpu() && group.device() == Device::cpu)
    reject(fmt::format("{}: on {}, but the group's ranks work on cpu", argument, device_text(tensor)));
  return kept(std::move(tensor));
}

void check_dense(const char* argument, const Tensor& tensor, const Expected& expected) {
  const std::string_view type = name_of(tensor.type);
  if (type != expected.type && type != expected.or_type)
    reject(fmt::format("{}: elements are {}; they must be {}{}{}", argument, type, expected.type,
                       expected.or_type.empty() ? "" : " or ", expected.or_type));
  if (expected.width != 0 && tensor.dimensions > 1 &&
      static_cast<std::size_t>(tensor.shape[tensor.dimensions - 1]) != expected.width)
    reject(fmt::format("{}: shape {}; its last dimension must be {}", argument, tensor.shape_text(), expected.width));
  check_side_by_side(argument, tensor);
  if (tensor.count() < expected.count)
    reject(fmt::format("{}: shape {} has {} elements; {} are needed", argument, tensor.shape_text(), tensor.count(),
                       expected.count));
}

void check_side_by_side(const char* argument, const Tensor& tensor) {
  if (!tensor.dense())
    reject(fmt::format("{}: elements of shape {} do not lie side by side", argument, tensor.shape_text()));
}

Rows rows_of(const char* argument, const Tensor& tensor, std::size_t parts) {
  if (tensor.dimensions >= 2) return ragged_rows_of(argument, tensor);
  if (!tensor.dense())
    reject(fmt::format("{}: the elements of a tensor of one dimension must lie side by side", argument));
  if (tensor.count() % parts != 0)
    reject(fmt::format("{}: {} elements are no multiple of {}", argument, tensor.count(), parts));
  const std::size_t row_bytes = tensor.bytes() / parts;
  return {parts, row_bytes, row_bytes};
}

Rows rows_of_length(const char* argument, const Tensor& tensor, std::size_t row_bytes) {
  if (tensor.dense()) {
    if (row_bytes == 0) return {0, 0, 0};
    if (tensor.bytes() % row_bytes != 0)
      reject(
          fmt::format("{}: shape {} is no whole number of rows of {} bytes", argument, tensor.shape_text(), row_bytes));
    return {tensor.bytes() / row_bytes, row_bytes, row_bytes};
  }
  const Rows rows = rows_of(argument, tensor);
  if (rows.row_bytes != row_bytes)
    reject(fmt::format("{}: rows have {} bytes; they must have {}", argument, rows.row_bytes, row_bytes));
  return rows;
}

Rows ragged_rows_of(const char* argument, const Tensor& tensor) {
  if (tensor.dimensions == 0) reject(fmt::format("{}: a number; it must have rows", argument));
  if (!tensor.dense_from(1))
    reject(fmt::format("{}: the elements of a row must lie side by side; shape {}", argument, tensor.shape_text()));
  std::size_t row_bytes = tensor.item();
  for (int i = 1; i < tensor.dimensions; ++i) row_bytes *= static_cast<std::size_t>(tensor.shape[i]);
  if (tensor.shape[0] <= 1) return {static_cast<std::size_t>(tensor.shape[0]), row_bytes, row_bytes};
  if (tensor.strides[0] < 0) reject(fmt::format("{}: rows in reverse order", argument));
  if (static_cast<std::size_t>(tensor.strides[0]) * tensor.item() < row_bytes && tensor.count() != 0)
    reject(fmt::format("{}: rows of {} bytes begin {} bytes apart, so they overlap", argument, row_bytes,
                       tensor.strides[0] * static_cast<std::int64_t>(tensor.item())));
  return {static_cast<std::size_t>(tensor.shape[0]), row_bytes,
          static_cast<std::size_t>(tensor.strides[0]) * tensor.item()};
}

}  // namespace weft::python
