#include "known_types.hpp"

#include <array>
#include <utility>
#include <vector>

#include "torch_abi.hpp"

namespace weft::python {

namespace {

// A class of a module that may not be loaded, or not yet. Names of types are no help: they cost more than the calls.
class KnownType {
 public:
  constexpr KnownType(const char* module, const char* name) : module_(module), name_(name) {}

  // Whether `given` is of this very type.
  bool is_of(nb::handle given) {
    if (type_ == nullptr && !find()) return false;
    return given.type().ptr() == type_;
  }

 private:
  bool find() {
    nb::object found = loaded_type(module_, name_);
    if (!found.is_none()) type_ = found.release().ptr();  // it lives as long as the process
    return type_ != nullptr;
  }

  const char *module_, *name_;
  PyObject* type_ = nullptr;
};

// torch's objects for element types.
class TorchTypes {
 public:
  TorchTypes() {
    const nb::module_ module = nb::module_::import_("torch");
    for (const torch::NamedType& of : torch::kTypes) {
      nb::object found = nb::getattr(module, of.torch, nb::none());
      if (!found.is_none()) known_.emplace_back(found.release().ptr(), type_of(of.weft));
    }
  }
  const nb::dlpack::dtype* find(nb::handle type) const {
    for (const auto& [object, dtype] : known_)
      if (object == type.ptr()) return &dtype;
    return nullptr;
  }

 private:
  std::vector<std::pair<PyObject*, nb::dlpack::dtype>> known_;
};

// Names that Python keeps, so that a look-up need not make them.
struct Names {
  nb::str data_ptr = nb::str("data_ptr"), shape = nb::str("shape"), stride = nb::str("stride"),
          dtype = nb::str("dtype"), is_cpu = nb::str("is_cpu"), is_cuda = nb::str("is_cuda"),
          get_device = nb::str("get_device"), is_neg = nb::str("is_neg"), requires_grad = nb::str("requires_grad");
};

// torch's own answers on who watches its calls.
struct Watchers {
  nb::object torch = nb::module_::import_("torch").attr("_C");
  nb::object dispatch_modes = torch.attr("_len_torch_dispatch_stack"),
             function_modes = torch.attr("_len_torch_function_stack"), traced = torch.attr("_get_tracing_state");
};

bool is_true(nb::handle answer) {
  return answer.ptr() == Py_True;
}

std::int64_t integer(nb::handle number) {
  const std::int64_t value = PyLong_AsLongLong(number.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
}

// False: more dimensions than a tensor may have.
bool take_shape(nb::handle lengths, nb::handle steps, Tensor& tensor) {
  const auto dimensions = static_cast<int>(PyTuple_Size(lengths.ptr()));
  if (dimensions > Tensor::kMostDimensions) return false;
  std::array<std::int64_t, Tensor::kMostDimensions> shape;
  for (int i = 0; i < dimensions; ++i) {
    shape[i] = integer(PyTuple_GetItem(lengths.ptr(), i));
    tensor.strides[i] = integer(PyTuple_GetItem(steps.ptr(), i));
  }
  set_shape("tensor", tensor, {shape.data(), static_cast<std::size_t>(dimensions)});
  return true;
}

// Not a static object: its guard would be held while Python runs, and may let another thread run.
template <class T>
const T& once() {
  static const T* made = nullptr;
  if (made == nullptr) {
    auto* const fresh = new T;  // Python may end before static objects do
    if (made == nullptr) made = fresh;
  }
  return *made;
}

constinit KnownType torch_tensor("torch", "Tensor");

}  // namespace

nb::object loaded_type(const char* module, const char* name) {
  const nb::object modules = nb::module_::import_("sys").attr("modules");
  const nb::object loaded = nb::cast<nb::dict>(modules).get(module, nb::none());
  return loaded.is_none() ? loaded : nb::getattr(loaded, name, nb::none());
}

bool is_numpy_array(nb::handle given) {
  static constinit KnownType type("numpy", "ndarray");
  return type.is_of(given);
}

bool is_plain_and_unwatched(nb::handle x, nb::handle y) {
  const Names& names = once<Names>();
  for (const nb::handle given : {x, y}) {
    if (given.is_none()) continue;
    if (!torch_tensor.is_of(given) || is_true(given.attr(names.requires_grad)) || is_true(given.attr(names.is_neg)())) {
      return false;
    }
  }
  const Watchers& watchers = once<Watchers>();
  return integer(watchers.dispatch_modes()) == 0 && integer(watchers.function_modes()) == 0 &&
         watchers.traced().is_none();
}

std::optional<Tensor> tensor_of_torch(nb::handle given) try {
  if (!torch_tensor.is_of(given)) return std::nullopt;
  const Names& names = once<Names>();
  const TorchTypes& types = once<TorchTypes>();
  const bool on_gpu = is_true(given.attr(names.is_cuda));
  if (!on_gpu && !is_true(given.attr(names.is_cpu))) return std::nullopt;
  const nb::dlpack::dtype* const element = types.find(given.attr(names.dtype));
  if (element == nullptr || is_true(given.attr(names.is_neg)())) return std::nullopt;
  Tensor tensor;
  tensor.type = *element;
  const nb::object shape = given.attr(names.shape), strides = given.attr(names.stride)();
  if (!take_shape(shape, strides, tensor)) return std::nullopt;
  tensor.data = reinterpret_cast<char*>(integer(given.attr(names.data_ptr)()));
  tensor.device = {on_gpu ? nb::device::cuda::value : nb::device::cpu::value,
                   on_gpu ? static_cast<std::int32_t>(integer(given.attr(names.get_device)())) : 0};
  tensor.owner = nb::borrow(given);
  return tensor;
} catch (const nb::python_error&) {
  return std::nullopt;  // a tensor without memory, such as a sparse one: the protocol says why
}

}  // namespace weft::python
