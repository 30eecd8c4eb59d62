// Every part of the binding uses these: owners that let other threads run, streams, calls.
#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "known_types.hpp"
#include "tensor.hpp"
#include "threads.hpp"
#include "weft/weft.hpp"
#include "words.hpp"

namespace weft::python {

// An object of C++ in one of Python. The last owner of a communicator waits for its calls, which may wait for ranks of
// other threads; so these run meanwhile.
template <class T>
class Owned {
 public:
  Owned(T value) : value_(std::make_unique<T>(std::move(value))) {}
  Owned(Owned&&) noexcept = default;
  Owned& operator=(Owned&&) noexcept = default;
  ~Owned() {
    if (!value_) return;
    const OthersRun others_run;
    value_.reset();
  }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_.get(); }

 private:
  std::unique_ptr<T> value_;
};
using PyCommunicator = Owned<Communicator>;
using PyGroup = Owned<Group>;
struct GroupedExchange {
  MoeExchange exchange;
  Group group;
};
using PyExchange = Owned<GroupedExchange>;

// Numbers of handles repeat in other communicators, so a handle also says whose it is.
struct PyHandle {
  DispatchHandle handle;
  const void* of;  // the exchange; never followed

  bool operator==(const PyHandle&) const = default;
};

// A stream: None (CPU ranks, or CUDA's default stream), an address, torch's stream, what has __cuda_stream__, or
// torch_stream.
Stream stream_of(nb::handle given, const Group& group);

// weft.torch.Group gives it as a call's stream: torch's current one. Such a call throws Watched if torch must see it:
// a mode or a tracer watches calls, or a tensor that this rank uses is no plain memory without gradients.
inline PyObject* torch_stream = nullptr;  // an object of its own

// Every call takes these beside its tensors.
struct CallOptions {
  nb::handle stream;
  std::uint32_t tag = 0;
  int blocks = 0, threads = 0, cluster = 0;
};

// Makes a call of a group: `build` makes its arguments. If it rejects them, `refuse` tells the other ranks. Other
// threads of Python run meanwhile: CPU ranks wait in the call, and on GPUs a full queue or NCCL may wait for ranks of
// this process.
template <class Build, class Make, class Refuse>
auto make_call(const Group& group, const CallOptions& options, Build&& build, Make&& make, Refuse&& refuse) {
  const bool of_torch = options.stream.ptr() == torch_stream;
  if (of_torch && is_watched_by_torch()) throw Watched();
  Tensors tensors(group, of_torch);
  Stream stream = nullptr;
  auto args = [&] {
    try {
      stream = stream_of(options.stream, group);
      auto built = build(tensors);
      built.stream = stream;
      if constexpr (requires { built.tag; }) built.tag = options.tag;
      if constexpr (requires { built.launch; }) built.launch = {options.blocks, options.threads, options.cluster};
      return built;
    } catch (const Rejection& error) {
      waiting([&] { refuse(error.what(), stream); });
      throw;
    } catch (const nb::builtin_exception& error) {
      waiting([&] { refuse(error.what(), stream); });
      throw;
    } catch (const nb::python_error& error) {  // of a tensor's own export
      const std::string reason = error.what();
      waiting([&] { refuse(reason.c_str(), stream); });
      throw;
    }
  }();
  return waiting([&] { return make(args); });
}
template <class Build, class Make>
void make_call(const PyGroup& of, const CallOptions& options, Build&& build, Make&& make) {
  const Group& group = *of;
  make_call(
      group, options, build, [&](const auto& args) { make(group, args); },
      [&](const char* reason, Stream stream) { group.refuse(reason, stream); });
}
// The same without words to others: nobody waits, or waits for more than this call and ends by the deadline.
template <class Build, class Make>
void make_untold_call(const PyGroup& of, const CallOptions& options, Build&& build, Make&& make) {
  const Group& group = *of;
  make_call(
      group, options, build, [&](const auto& args) { make(group, args); }, [](const char*, Stream) {});
}

// An object of the package's module of records.
nb::object record(const char* name);
nb::object fault_of(const Fault& fault);

void bind_words(nb::module_& module);
void bind_errors(nb::module_& module);
void bind_communicator(nb::module_& module);
nb::class_<PyGroup> bind_group(nb::module_& module);
void bind_collectives(nb::class_<PyGroup>& group);
void bind_messages(nb::class_<PyGroup>& group);
void bind_ragged(nb::module_& module, nb::class_<PyGroup>& group);
void bind_fused(nb::module_& module, nb::class_<PyGroup>& group);
void bind_exchange(nb::module_& module);
void bind_dispatch(nb::class_<PyExchange>& exchange);
void bind_layer(nb::module_& module);
void bind_memory(nb::module_& module);
void bind_recording(nb::module_& module);
void bind_parallel(nb::module_& module);
void bind_torch(nb::module_& module);

}  // namespace weft::python
