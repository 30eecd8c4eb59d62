// Tensors of Python programs: where they lie, what they hold, and how calls see them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <forward_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/weft.hpp"

namespace nb = nanobind;

namespace weft::python {

// A rejection by the binding itself, of which the group's other ranks have to be told.
struct Rejection : Error {
  using Error::Error;
};
inline constexpr std::size_t kMostTensorBytes = std::size_t{1} << 46;
// A call of weft.torch that torch must see. Nothing has happened.
struct Watched : std::exception {};
[[noreturn]] void reject(const std::string& message);       // Errc::invalid_argument
[[noreturn]] void reject_type(const std::string& message);  // TypeError

// A view of memory, which stays as long as the view: it holds what its owner has exported.
struct Tensor {
  static constexpr int kMostDimensions = 8;

  char* data = nullptr;
  nb::dlpack::dtype type = {};
  nb::dlpack::device device = {};
  int dimensions = 0;
  std::array<std::int64_t, kMostDimensions> shape = {}, strides = {};  // in elements
  bool read_only = false;
  nb::ndarray<nb::ro> exported;
  std::shared_ptr<void> keeper;  // instead: of one of torch's operators
  nb::object owner;              // instead: of memory that does not move, where the garbage collector sees it

  std::size_t item() const { return type.bits / 8u; }
  std::size_t count() const;
  std::size_t bytes() const { return count() * item(); }
  bool dense() const { return dense_from(0); }
  bool dense_from(int dimension) const;  // whether elements of equal places in the dimensions before lie together
  bool on_gpu() const;
  std::string shape_text() const;
};

std::string_view name_of(nb::dlpack::dtype type);               // "f32"; "unknown" for a type without a name
nb::dlpack::dtype type_of(std::string_view name);               // rejects a name of no type
DataType data_type_of(const char* argument, const Tensor& of);  // rejects what Weft does not add up

std::string type_names();                       // all of them, for messages
std::string device_text(const Tensor& tensor);  // "cpu", "cuda:0"; "cuda", if nobody has said which
// Sets the shape, and rejects one that cannot be.
void set_shape(const char* argument, Tensor& tensor, std::span<const std::int64_t> shape);
void set_dense_strides(Tensor& tensor);

enum class Access { read, write };

// `given` as a tensor: a Tensor, or whatever has DLPack, the CUDA array interface or the buffer protocol. Throws
// TypeError for other objects; rejects strange types, and memory that cannot be written.
Tensor tensor_of(const char* argument, nb::handle given, Access access);
// The same of one of torch's tensors; throws Watched if torch's dispatcher must see the calls that are made with it.
Tensor tensor_of_plain_torch(const char* argument, nb::handle given, Access access);
// The tensors of one call of a group. They stay until it has been made; those of a recorded call stay with the
// recording.
class Tensors {
 public:
  // `of_torch`: every tensor is read by tensor_of_plain_torch().
  Tensors(const Group& of, bool of_torch) : group(of), of_torch_(of_torch) {}

  // Rejects memory that the group's ranks do not work on. The tensor lives as long as this object.
  const Tensor& input(const char* argument, nb::handle given) { return taken(argument, given, Access::read); }
  const Tensor& output(const char* argument, nb::handle given) { return taken(argument, given, Access::write); }
  const Tensor& taken(const char* argument, nb::handle given, Access access);
  // None: empty.
  std::optional<Tensor> optional(const char* argument, nb::handle given, Access access) {
    if (given.is_none()) return std::nullopt;
    return taken(argument, given, access);
  }
  // Memory of the host, or where the ranks work: counts, and outputs that the host reads.
  const Tensor& of_host(const char* argument, nb::handle given, Access access);

  const Group& group;

 private:
  Tensor read(const char* argument, nb::handle given, Access access);
  const Tensor& kept(Tensor tensor);

  bool of_torch_;
  std::forward_list<Tensor> kept_;  // copies would cost a tenth of a call
};
// Null without a tensor.
inline const Tensor* address(const std::optional<Tensor>& tensor) {
  return tensor ? &*tensor : nullptr;
}
// A recording needs it as long as it lives.
struct Recorded {
  std::deque<Tensor> tensors;       // of its calls; they stay where they are, as functions of layers know them
  std::vector<nb::object> objects;  // what functions of layers use, and recordings that were replayed in the capture
};
// While it is not null, this thread records: its calls add to it.
inline thread_local Recorded* recorded = nullptr;

// `count` elements or more, of one or two types, that lie side by side. `width`: of the last dimension, if the tensor
// has several; 0: any.
struct Expected {
  std::size_t count;
  std::string_view type, or_type = {};
  std::size_t width = 0;
};
void check_dense(const char* argument, const Tensor& tensor, const Expected& expected);
void check_side_by_side(const char* argument, const Tensor& tensor);  // elements, of any type and number

// A tensor as rows of bytes.
struct Rows {
  std::size_t rows, row_bytes, stride;
};
// One row for each place in the first dimension. A tensor of one dimension is `parts` rows.
Rows rows_of(const char* argument, const Tensor& tensor, std::size_t parts = 1);
// Rows of the given length: any dense tensor, or one with such rows.
Rows rows_of_length(const char* argument, const Tensor& tensor, std::size_t row_bytes);
// One row for each place in the first dimension, also if there is no other dimension.
Rows ragged_rows_of(const char* argument, const Tensor& tensor);

// Shows the garbage collector the objects that an object of C++ holds.
template <class T, nb::object T::*... Members>
inline PyType_Slot collected[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(+[](PyObject* self, visitproc visit, void* arg) {
       Py_VISIT(Py_TYPE(self));
       if (!nb::inst_ready(self)) return 0;
       for (const nb::object T::*member : {Members...}) Py_VISIT((nb::inst_ptr<T>(self)->*member).ptr());
       return 0;
     })},
    {Py_tp_clear, reinterpret_cast<void*>(+[](PyObject* self) {
       if (nb::inst_ready(self))
         for (nb::object T::*member : {Members...}) (nb::inst_ptr<T>(self)->*member).reset();
       return 0;
     })},
    {0, nullptr}};

void bind_tensor(nb::module_& module);

}  // namespace weft::python
