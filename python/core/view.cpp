// weft.Tensor: a view that a program makes itself.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "known_types.hpp"
#include "tensor.hpp"

namespace weft::python {

namespace {

using dtype = nb::dlpack::dtype;

nb::dlpack::device device_named(const std::string& name) {
  if (name == "cpu") return {nb::device::cpu::value, 0};
  if (name == "cuda") return {nb::device::cuda::value, 0};
  int number = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + std::min<std::size_t>(5, name.size()), end, number);
  if (name.starts_with("cuda:") && parsed.ec == std::errc() && parsed.ptr == end && number >= 0)
    return {nb::device::cuda::value, number};
  reject(fmt::format("device is '{}'; it must be cpu, cuda or cuda:N", name));
}

// Arrays of these types export their own memory, always, so that a view need only hold the array. The garbage collector
// then finds the cycle of an array that has its own view.
bool has_memory_of_its_own(nb::handle given) {
  for (const auto& [module, type] : {std::pair{"numpy", "ndarray"}, {"torch", "Tensor"}, {"cupy", "ndarray"}}) {
    const nb::object found = loaded_type(module, type);
    if (!found.is_none() && PyObject_IsInstance(given.ptr(), found.ptr()) == 1) return true;
  }
  return false;
}

Tensor viewed(nb::handle given, const std::optional<std::string>& type) {
  Tensor tensor;
  try {
    tensor = tensor_of("tensor", given, Access::write);
  } catch (const Error&) {
    tensor = tensor_of("tensor", given, Access::read);
    tensor.read_only = true;
  }
  if (has_memory_of_its_own(given)) {
    tensor.owner = nb::borrow(given);
    tensor.exported = {};
  }
  if (!type) return tensor;
  const dtype wanted = type_of(*type);
  if (wanted.bits != tensor.type.bits)
    reject(fmt::format("dtype is '{}' of {} bits; the tensor's elements have {} bits", *type, wanted.bits,
                       tensor.type.bits));
  tensor.type = wanted;
  return tensor;
}

Tensor tensor_at(std::uintptr_t pointer, const std::vector<std::int64_t>& shape, const std::string& type,
                 const std::string& device) {
  Tensor tensor;
  tensor.data = reinterpret_cast<char*>(pointer);
  tensor.type = type_of(type);
  tensor.device = device_named(device);
  set_shape("shape", tensor, shape);
  set_dense_strides(tensor);
  return tensor;
}

template <class... Traits>
nb::object array_of(nb::handle self, const Tensor& tensor) {
  if (tensor.on_gpu() && tensor.device.device_id < 0)
    throw nb::buffer_error("the CUDA array interface did not say which GPU has the memory");
  std::array<std::size_t, Tensor::kMostDimensions> shape;
  std::ranges::copy(tensor.shape, shape.begin());
  const nb::ndarray<nb::array_api, Traits...> array(tensor.data, tensor.dimensions, shape.data(), self,
                                                    tensor.strides.data(), tensor.type, tensor.device.device_type,
                                                    tensor.device.device_id);
  return nb::cast(array);
}
nb::object exported(nb::handle self) {
  const Tensor& tensor = nb::cast<const Tensor&>(self);
  return tensor.read_only ? array_of<nb::ro>(self, tensor) : array_of<>(self, tensor);
}

}  // namespace

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor", nb::type_slots(collected<Tensor, &Tensor::owner>), R"doc(
A view of memory: where it lies, its shape, and the type of its elements.

Every operation takes any tensor (DLPack, the CUDA array interface, the buffer protocol). A view says it once: made
beforehand, it saves the questions in each call. It is also how a type that the framework does not name is given, and
how a raw pointer is.

Parameters
----------
tensor: the tensor, which the view keeps alive.
dtype: another name for its elements, of as many bits: "bf16" for a NumPy array of uint16.)doc")
      .def(
          "__init__",
          [](Tensor* self, nb::handle tensor, const std::optional<std::string>& type) {
            new (self) Tensor(viewed(tensor, type));
          },
          nb::arg("tensor"), nb::arg("dtype") = nb::none(),
          nb::sig("def __init__(self, tensor: object, dtype: str | None = None) -> None"))
      .def_static("at", tensor_at, nb::arg("pointer"), nb::arg("shape"), nb::arg("dtype"), nb::arg("device") = "cpu",
                  nb::sig("def at(pointer: int, shape: collections.abc.Sequence[int], dtype: str, device: str = 'cpu')"
                          " -> Tensor"),
                  R"doc(
A view of a raw address, whose elements lie side by side. The memory stays the caller's, who keeps it alive.

dtype: bf16, f16, f32, f64, i8 … i64, u8 … u64, bool, e4m3. device: cpu, cuda or cuda:N.)doc")
      .def_prop_ro(
          "data_ptr", [](const Tensor& self) { return reinterpret_cast<std::uintptr_t>(self.data); },
          "The address of the first element.")
      .def_prop_ro(
          "shape",
          [](const Tensor& self) {
            nb::list shape;
            for (int i = 0; i < self.dimensions; ++i) shape.append(self.shape[i]);
            return nb::tuple(shape);
          },
          nb::sig("def shape(self) -> tuple[int, ...]"), "Elements in each dimension.")
      .def_prop_ro(
          "dtype", [](const Tensor& self) { return std::string(name_of(self.type)); },
          "Its name: \"bf16\". \"unknown\" for a type without one.")
      .def_prop_ro("device", device_text, "\"cpu\", or \"cuda:0\".")
      .def(
          "__dlpack__",
          [](nb::handle self, const nb::kwargs& options) { return exported(self).attr("__dlpack__")(**options); },
          nb::sig("def __dlpack__(self, **options: typing.Any) -> typing.Any"))
      .def(
          "__dlpack_device__",
          [](const Tensor& self) { return nb::make_tuple(self.device.device_type, self.device.device_id); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__repr__", [](const Tensor& self) {
        return fmt::format("weft.Tensor({}, {}, {}, {:#x})", name_of(self.type), self.shape_text(), device_text(self),
                           reinterpret_cast<std::uintptr_t>(self.data));
      });
}

}  // namespace weft::python
