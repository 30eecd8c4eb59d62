// The part of torch's stable C interface that operators need (torch/csrc/stable/c/shim.h, aoti_torch/c/shim.h, from
// torch 2.10 on). It is found at run time, in the torch that the process has: the package is built without torch, and
// one build serves every later one.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

namespace weft::python::torch {

struct TensorObject;
struct LibraryObject;
struct ListObject;
using TensorHandle = TensorObject*;
using LibraryHandle = LibraryObject*;
using ListHandle = ListObject*;
using Value = std::uint64_t;     // StableIValue: an integer, a float, a handle, or a pointer to an optional one
using ErrorCode = std::int32_t;  // 0: success
using Kernel = void (*)(Value* stack, std::uint64_t inputs, std::uint64_t outputs);

struct Functions {
  ErrorCode (*aoti_torch_library_init_def)(const char* name, const char* file, std::uint32_t line, LibraryHandle* made);
  ErrorCode (*aoti_torch_library_init_impl)(const char* name, const char* key, const char* file, std::uint32_t line,
                                            LibraryHandle* made);
  ErrorCode (*aoti_torch_library_def)(LibraryHandle library, const char* schema);
  ErrorCode (*torch_library_impl)(LibraryHandle library, const char* name, Kernel kernel, std::uint64_t abi);
  ErrorCode (*aoti_torch_get_data_ptr)(TensorHandle tensor, void** data);
  ErrorCode (*aoti_torch_get_dim)(TensorHandle tensor, std::int64_t* dimensions);
  ErrorCode (*aoti_torch_get_sizes)(TensorHandle tensor, std::int64_t** sizes);
  ErrorCode (*aoti_torch_get_strides)(TensorHandle tensor, std::int64_t** strides);
  ErrorCode (*aoti_torch_get_dtype)(TensorHandle tensor, std::int32_t* type);
  ErrorCode (*aoti_torch_get_device_type)(TensorHandle tensor, std::int32_t* type);
  ErrorCode (*aoti_torch_get_device_index)(TensorHandle tensor, std::int32_t* index);
  ErrorCode (*aoti_torch_new_tensor_handle)(TensorHandle tensor, TensorHandle* made);
  ErrorCode (*aoti_torch_delete_tensor_object)(TensorHandle tensor);
  ErrorCode (*aoti_torch_empty_strided)(std::int64_t dimensions, const std::int64_t* sizes, const std::int64_t* strides,
                                        std::int32_t type, std::int32_t device_type, std::int32_t device,
                                        TensorHandle* made);
  bool (*aoti_torch_grad_mode_is_enabled)();
  ErrorCode (*torch_set_requires_grad)(TensorHandle tensor, bool requires_grad);
  ErrorCode (*torch_list_size)(ListHandle list, std::size_t* size);
  ErrorCode (*torch_list_get_item)(ListHandle list, std::size_t index, Value* item);
  ErrorCode (*torch_delete_list)(ListHandle list);
  ErrorCode (*aoti_torch_get_current_cuda_stream)(std::int32_t device, void** stream);  // null: torch without CUDA
  std::int32_t cpu, cuda;                                                               // types of devices
  bool (*requires_grad)(const void* impl);                                              // null: see knows_gradients()
};

// An element type, as torch and as Weft names it.
struct NamedType {
  const char *torch, *weft;
};
inline constexpr NamedType kTypes[] = {
    {"bfloat16", "bf16"}, {"float16", "f16"}, {"float32", "f32"}, {"float64", "f64"},       {"int8", "i8"},
    {"int16", "i16"},     {"int32", "i32"},   {"int64", "i64"},   {"uint8", "u8"},          {"uint16", "u16"},
    {"uint32", "u32"},    {"uint64", "u64"},  {"bool", "bool"},   {"float8_e4m3fn", "e4m3"}};

// The functions of the process's torch. Throws Errc::unsupported if it is not loaded, or older than 2.10.
const Functions& functions();
// Whether operators see that a tensor requires a gradient. The stable interface does not say it, so c10's own function
// is asked. It must be there, and answer rightly for a tensor of which the answer is known.
inline bool knows_gradients() {
  return functions().requires_grad != nullptr;
}
bool requires_grad(TensorHandle tensor);  // false, if nobody knows
// The type of torch's number of an element type; without bits for one that Weft has no name for.
nanobind::dlpack::dtype type_numbered(std::int32_t number);

// Throws std::runtime_error, which torch passes on, if a function has failed.
void check(ErrorCode code, const char* what);

}  // namespace weft::python::torch
