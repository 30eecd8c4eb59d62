#include "torch_abi.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "weft/error.hpp"

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

struct Loaded {
  Functions functions = {};
  std::map<std::int32_t, std::string> types;

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
    find(f.torch_list_size, "torch_list_size", torch);
    find(f.torch_list_get_item, "torch_list_get_item", torch);
    find(f.torch_delete_list, "torch_delete_list", torch);
    f.cpu = number("aoti_torch_device_type_cpu", torch);
    f.cuda = number("aoti_torch_device_type_cuda", torch);
    if (void* const cuda = library("libtorch_cuda.so"))
      find(f.aoti_torch_get_current_cuda_stream, "aoti_torch_get_current_cuda_stream", cuda);
    for (const NamedType& of : kTypes)
      types[number(fmt::format("aoti_torch_dtype_{}", of.torch).c_str(), torch)] = of.weft;
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

std::string_view type_named(std::int32_t number) {
  const auto found = loaded().types.find(number);
  return found == loaded().types.end() ? std::string_view() : found->second;
}

void check(ErrorCode code, const char* what) {
  if (code != 0) throw std::runtime_error(fmt::format("weft: torch's {} failed", what));
}

}  // namespace weft::python::torch
