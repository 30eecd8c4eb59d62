#include "torch_abi.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "tensor.hpp"

namespace weft::python::torch {

namespace {

// torch's libraries are loaded with RTLD_LOCAL, so they are opened again by name; that loads nothing.
void* library(const char* name) {
  return dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
}

template <class F>
void find(F& function, const char* name, void* from) {
  function = reinterpret_cast<F>(dlsym(from, name));
  if (function == nullptr)
    throw Error(Errc::unsupported, fmt::format("torch has no {}; weft.torch needs torch 2.10 or later", name));
}

std::int32_t number(const char* name, void* from) {
  std::int32_t (*function)() = nullptr;
  find(function, name, from);
  return function();
}

// A handle points to an at::Tensor, which is a pointer to an object of c10.
const void* impl_of(TensorHandle tensor) {
  return *reinterpret_cast<void* const*>(tensor);
}

// Whether c10's function tells a tensor that requires a gradient from one that does not.
bool tells_gradients(const Functions& f, std::int32_t type) {
  constexpr std::int64_t kOne = 1;
  TensorHandle tensor = nullptr, same = nullptr;
  check(f.aoti_torch_empty_strided(1, &kOne, &kOne, type, f.cpu, 0, &tensor), "empty_strided");
  check(f.aoti_torch_new_tensor_handle(tensor, &same), "new_tensor_handle");
  bool tells = impl_of(tensor) == impl_of(same) && !f.requires_grad(impl_of(tensor));
  if (tells) {
    check(f.torch_set_requires_grad(same, true), "set_requires_grad");
    tells = f.requires_grad(impl_of(tensor));
  }
  for (const TensorHandle handle : {tensor, same})
    check(f.aoti_torch_delete_tensor_object(handle), "delete_tensor_object");
  return tells;
}

struct Loaded {
  Functions functions = {};
  std::map<std::int32_t, nb::dlpack::dtype> types;

  Loaded() {
    void* const torch = library("libtorch_cpu.so");
    if (torch == nullptr) throw Error(Errc::unsupported, "torch is not loaded: import torch first");
    Functions& f = functions;
    find(f.aoti_torch_library_init_def, "aoti_torch_library_init_def", torch);
    find(f.aoti_torch_library_init_impl, "aoti_torch_library_init_impl", torch);
    find(f.aoti_torch_library_def, "aoti_torch_library_def", torch);
    find(f.torch_library_impl, "torch_library_impl", torch);
    find(f.aoti_torch_get_data_ptr, "aoti_torch_get_data_ptr", torch);
    find(f.aoti_torch_get_dim, "aoti_torch_get_dim", torch);
    find(f.aoti_torch_get_sizes, "aoti_torch_get_sizes", torch);
    find(f.aoti_torch_get_strides, "aoti_torch_get_strides", torch);
    find(f.aoti_torch_get_dtype, "aoti_torch_get_dtype", torch);
    find(f.aoti_torch_get_device_type, "aoti_torch_get_device_type", torch);
    find(f.aoti_torch_get_device_index, "aoti_torch_get_device_index", torch);
    find(f.aoti_torch_new_tensor_handle, "aoti_torch_new_tensor_handle", torch);
    find(f.aoti_torch_delete_tensor_object, "aoti_torch_delete_tensor_object", torch);
    find(f.aoti_torch_empty_strided, "aoti_torch_empty_strided", torch);
    find(f.aoti_torch_grad_mode_is_enabled, "aoti_torch_grad_mode_is_enabled", torch);
    find(f.torch_set_requires_grad, "torch_set_requires_grad", torch);
    find(f.torch_list_size, "torch_list_size", torch);
    find(f.torch_list_get_item, "torch_list_get_item", torch);
    find(f.torch_delete_list, "torch_delete_list", torch);
    f.cpu = number("aoti_torch_device_type_cpu", torch);
    f.cuda = number("aoti_torch_device_type_cuda", torch);
    if (void* const cuda = library("libtorch_cuda.so"))
      find(f.aoti_torch_get_current_cuda_stream, "aoti_torch_get_current_cuda_stream", cuda);
    for (const NamedType& of : kTypes)
      types[number(fmt::format("aoti_torch_dtype_{}", of.torch).c_str(), torch)] = type_of(of.weft);
    if (void* const c10 = library("libc10.so"))
      f.requires_grad = reinterpret_cast<bool (*)(const void*)>(dlsym(c10, "_ZNK3c1010TensorImpl13requires_gradEv"));
    if (f.requires_grad != nullptr && !tells_gradients(f, number("aoti_torch_dtype_float32", torch)))
      f.requires_grad = nullptr;
  }
};

const Loaded& loaded() {
  static const Loaded all;
  return all;
}

}  // namespace

const Functions& functions() {
  return loaded().functions;
}

bool requires_grad(TensorHandle tensor) {
  const Functions& f = functions();
  return f.requires_grad != nullptr && f.requires_grad(impl_of(tensor));
}

nb::dlpack::dtype type_numbered(std::int32_t number) {
  const auto found = loaded().types.find(number);
  return found == loaded().types.end() ? nb::dlpack::dtype{} : found->second;
}

void check(ErrorCode code, const char* what) {
  if (code != 0) throw std::runtime_error(fmt::format("weft: torch's {} failed", what));
}

}  // namespace weft::python::torch
