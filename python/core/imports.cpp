// Exports of Python's objects: DLPack, the CUDA array interface, the buffer protocol.
#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "known_types.hpp"
#include "tensor.hpp"

namespace weft::python {

namespace {

using dtype = nb::dlpack::dtype;

// The CUDA array interface has NumPy's type strings: byte order, kind, bytes.
dtype type_of_string(const char* argument, std::string_view text) {
  const auto of = [&](std::string_view name) { return type_of(name); };
  if (text == "<V2") return of("bf16");
  const std::string_view kinds = text.size() >= 3 ? text.substr(1) : "";
  for (const auto& [string, name] : {std::pair{"f2", "f16"},
                                     {"f4", "f32"},
                                     {"f8", "f64"},
                                     {"i1", "i8"},
                                     {"i2", "i16"},
                                     {"i4", "i32"},
                                     {"i8", "i64"},
                                     {"u1", "u8"},
                                     {"u2", "u16"},
                                     {"u4", "u32"},
                                     {"u8", "u64"},
                                     {"b1", "bool"}})
    if (kinds == string && text.front() != '>') return of(name);
  reject(fmt::format("{}: element type '{}' of the CUDA array interface; known are {}", argument, text, type_names()));
}

template <class Array>
Tensor tensor_of_array(const char* argument, const Array& array) {
  Tensor tensor;
  tensor.exported = nb::ndarray<nb::ro>(array.handle());
  tensor.data = static_cast<char*>(const_cast<void*>(static_cast<const void*>(array.data())));
  tensor.type = array.dtype();
  tensor.device = {array.device_type(), array.device_id()};
  std::vector<std::int64_t> shape(array.ndim());
  for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = static_cast<std::int64_t>(array.shape(i));
  set_shape(argument, tensor, shape);
  for (std::size_t i = 0; i < shape.size(); ++i) tensor.strides[i] = array.stride(i);
  return tensor;
}

Tensor tensor_of_cuda_array(const char* argument, nb::handle given, Access access) try {
  const auto interface = nb::cast<nb::dict>(given.attr("__cuda_array_interface__"));
  const auto data = nb::cast<nb::tuple>(interface["data"]);
  if (access == Access::write && nb::cast<bool>(data[1])) reject(fmt::format("{}: read-only memory", argument));
  Tensor tensor;
  tensor.data = reinterpret_cast<char*>(nb::cast<std::uintptr_t>(data[0]));
  tensor.type = type_of_string(argument, nb::cast<std::string>(interface["typestr"]));
  tensor.device = {nb::device::cuda::value, -1};  // the interface does not say which
  tensor.owner = nb::borrow(given);
  set_shape(argument, tensor, nb::cast<std::vector<std::int64_t>>(nb::list(interface["shape"])));
  set_dense_strides(tensor);
  if (!interface.contains("strides") || interface["strides"].is_none()) return tensor;
  const auto strides = nb::cast<std::vector<std::int64_t>>(nb::list(interface["strides"]));
  if (strides.size() != static_cast<std::size_t>(tensor.dimensions))
    reject(fmt::format("{}: {} strides for {} dimensions", argument, strides.size(), tensor.dimensions));
  for (int i = 0; i < tensor.dimensions; ++i) tensor.strides[i] = strides[i] / static_cast<std::int64_t>(tensor.item());
  return tensor;
} catch (const std::bad_cast&) {
  reject(fmt::format("{}: its __cuda_array_interface__ has other types than the protocol says", argument));
} catch (nb::python_error& error) {
  reject(fmt::format("{}: its __cuda_array_interface__ lacks something: {}", argument, error.what()));
}

// DLPack's stream -1 asks the producer to wait for nothing: calls are ordered by the caller's stream.
nb::object capsule_of(nb::handle given) {
  const auto device = nb::cast<nb::tuple>(given.attr("__dlpack_device__")());
  const int type = nb::cast<int>(device[0]);
  if (type != nb::device::cuda::value && type != nb::device::cuda_managed::value) return nb::borrow(given);
  try {
    return given.attr("__dlpack__")(nb::arg("stream") = -1, nb::arg("max_version") = nb::make_tuple(1, 1));
  } catch (const nb::python_error& error) {  // from before DLPack 1.0
    if (!error.matches(PyExc_TypeError)) throw;
    return given.attr("__dlpack__")(nb::arg("stream") = -1);
  }
}

Tensor imported(const char* argument, nb::handle given, Access access) {
  const bool numpy = is_numpy_array(given);
  const bool dlpack = !numpy && nb::hasattr(given, "__dlpack_device__");
  if (!dlpack && !numpy && nb::hasattr(given, "__cuda_array_interface__"))
    return tensor_of_cuda_array(argument, given, access);
  const nb::object source = dlpack ? capsule_of(given) : nb::borrow(given);
  if (access == Access::write) {
    if (nb::ndarray<> array; nb::try_cast(source, array, false)) return tensor_of_array(argument, array);
  }
  if (nb::ndarray<nb::ro> array; nb::try_cast(source, array, false)) {
    if (access == Access::write) reject(fmt::format("{}: read-only memory", argument));
    return tensor_of_array(argument, array);
  }
  std::string what = nb::type_name(given.type()).c_str();
  if ((dlpack || numpy) && nb::hasattr(given, "dtype"))  // it is a tensor, of elements that DLPack does not know
    what += fmt::format(" of {}", nb::repr(given.attr("dtype")).c_str());
  reject_type(
      fmt::format("{} is a {}; it must be a tensor: a weft.Tensor, or an object with __dlpack__, "
                  "__cuda_array_interface__ or the buffer protocol. NumPy's bf16 is given as "
                  "weft.Tensor(x.view(np.uint16), \"bf16\")",
                  argument, what));
}

Tensor checked(const char* argument, Tensor tensor) {
  const int device = tensor.device.device_type;
  if (!tensor.on_gpu() && device != nb::device::cpu::value && device != nb::device::cuda_host::value &&
      device != nb::device::rocm_host::value)
    reject(fmt::format("{}: on a device of DLPack's type {}; it must be the CPU's memory or a CUDA GPU's", argument,
                       device));
  if (tensor.type.lanes != 1 || tensor.type.bits % 8 != 0)
    reject(fmt::format("{}: elements of {} bits and {} lanes; whole bytes and one lane are known", argument,
                       tensor.type.bits, tensor.type.lanes));
  return tensor;
}

// A recording outlives the call: DLPack's protocol then holds the memory itself.
Tensor imported_from_torch(const char* argument, nb::handle given, Access access) {
  if (recorded == nullptr) {
    if (std::optional<Tensor> known = tensor_of_torch(argument, given)) return checked(argument, *std::move(known));
  }
  return checked(argument, imported(argument, given, access));
}

}  // namespace

Tensor tensor_of(const char* argument, nb::handle given, Access access) {
  if (nb::isinstance<Tensor>(given)) {
    Tensor tensor = nb::cast<const Tensor&>(given);
    if (access == Access::write && tensor.read_only) reject(fmt::format("{}: read-only memory", argument));
    return tensor;
  }
  // NumPy's arrays are told first, as a program that has no torch would look for it in every call.
  if (is_numpy_array(given) || !is_torch_tensor(given)) return checked(argument, imported(argument, given, access));
  if (is_negated(given)) reject(fmt::format("{}: negated lazily; resolve_neg() gives a tensor that is not", argument));
  return imported_from_torch(argument, given, access);
}

Tensor tensor_of_plain_torch(const char* argument, nb::handle given, Access access) {
  if (!is_plain_torch_tensor(given)) throw Watched();
  return imported_from_torch(argument, given, access);
}

}  // namespace weft::python
