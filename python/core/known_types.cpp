#include "known_types.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

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

// The table of C functions that a type of tensors has by DLPack 1.3 (dlpack.h, DLPackExchangeAPI); torch's from 2.10
// on. It fills in a tensor without an object of Python, several of which would cost more than the rest of a call.
struct DlpackTable {
  std::uint32_t major, minor;
  const DlpackTable* older;
  void* managed[3];                                              // functions for tensors that are kept
  int (*tensor_of)(void* object, nb::dlpack::dltensor* filled);  // −1: an exception is set
  void* current_work_stream;
};

// The questions to torch's tensors. The names are made once, not in each look-up.
struct TorchTensors {
  nb::str requires_grad = nb::str("requires_grad"), is_neg = nb::str("is_neg"), is_conj = nb::str("is_conj");
  const DlpackTable* table = nullptr;  // null: an older torch

  TorchTensors() {
    const nb::object type = nb::module_::import_("torch").attr("Tensor");
    const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
    if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return;
    table = static_cast<const DlpackTable*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (table->major != 1 || table->tensor_of == nullptr) table = nullptr;
  }
};

// torch's own answers on who watches its calls.
struct Watchers {
  nb::object torch = nb::module_::import_("torch").attr("_C");
  nb::object dispatch_modes = torch.attr("_len_torch_dispatch_stack"),
             function_mode = torch.attr("_is_torch_function_mode_enabled"), traces = torch.attr("_is_tracing");
};

bool is_true(nb::handle answer) {
  return answer.ptr() == Py_True;
}

std::int64_t integer(nb::handle number) {
  const std::int64_t value = PyLong_AsLongLong(number.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return value;
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

const TorchTensors& torch_tensors() {
  return once<TorchTensors>();
}

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

bool is_watched_by_torch() {
  const Watchers& watchers = once<Watchers>();
  return integer(watchers.dispatch_modes()) != 0 || is_true(watchers.function_mode()) || is_true(watchers.traces());
}

bool is_torch_tensor(nb::handle given) {
  static constinit KnownType type("torch", "Tensor");
  return type.is_of(given);
}

bool is_negated(nb::handle tensor) {
  return is_true(tensor.attr(torch_tensors().is_neg)());
}

bool is_plain_torch_tensor(nb::handle given) {
  return is_torch_tensor(given) && !is_true(given.attr(torch_tensors().requires_grad)) && !is_negated(given);
}

std::optional<Tensor> tensor_of_torch(const char* argument, nb::handle given) {
  const TorchTensors& torch = torch_tensors();
  nb::dlpack::dltensor found = {};
  if (torch.table == nullptr) return std::nullopt;
  if (torch.table->tensor_of(given.ptr(), &found) != 0) {
    PyErr_Clear();  // the protocol says it once more
    return std::nullopt;
  }
  const bool complex = found.dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Complex);
  if (complex && is_true(given.attr(torch.is_conj)())) return std::nullopt;
  Tensor tensor;
  tensor.data = static_cast<char*>(found.data) + found.byte_offset;
  tensor.type = found.dtype;
  tensor.device = found.device;
  const auto dimensions = static_cast<std::size_t>(found.ndim);
  set_shape(argument, tensor, {found.shape, dimensions});
  if (found.strides != nullptr) {
    std::copy_n(found.strides, dimensions, tensor.strides.begin());
  } else {
    set_dense_strides(tensor);
  }
  tensor.owner = nb::borrow(given);
  return tensor;
}

}  // namespace weft::python
