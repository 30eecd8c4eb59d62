// Every part of the binding uses these: owners that let other threads run, words for enumerations, streams.
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
  int blocks = 0, threads = 0;
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
      if constexpr (requires { built.launch; }) built.launch = {options.blocks, options.threads};
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

// Words for the values of an enumeration, which begin at 0: its enumerators in C++.
template <class E>
inline constexpr int kWords = 0;
template <>
inline constexpr auto kWords<Device> = std::to_array<std::string_view>({"automatic", "cpu", "cuda"});
template <>
inline constexpr auto kWords<ReduceOp> = std::to_array<std::string_view>({"sum", "max", "min", "avg"});
template <>
inline constexpr auto kWords<Algorithm> = std::to_array<std::string_view>({"automatic", "one_shot", "two_shot",
                                                                           "pipelined", "nccl", "multimem_one_shot",
                                                                           "multimem_two_shot"});
template <>
inline constexpr auto kWords<Padding> = std::to_array<std::string_view>({"none", "aligned", "max", "fixed",
                                                                         "per_rank"});
template <>
inline constexpr auto kWords<Sharding> = std::to_array<std::string_view>({"none", "balanced", "ceil"});
template <>
inline constexpr auto kWords<Fp8Scaling> = std::to_array<std::string_view>({"fixed", "per_token", "per_128_columns"});
template <>
inline constexpr auto kWords<ScaleType> = std::to_array<std::string_view>({"f32", "ue8m0"});
template <>
inline constexpr auto kWords<RowType> = std::to_array<std::string_view>({"bf16", "f16", "fp8"});
template <>
inline constexpr auto kWords<RowCast> = std::to_array<std::string_view>({"none", "fp8", "fp8_ue8m0", "fp8_pow2"});
template <>
inline constexpr auto kWords<RowLayout> = std::to_array<std::string_view>({"expert_masked", "expert_contiguous",
                                                                           "rank_major", "rank_compact"});
template <>
inline constexpr auto kWords<ScaleOrder> = std::to_array<std::string_view>({"rows", "columns"});
template <>
inline constexpr auto kWords<RowPath> = std::to_array<std::string_view>({"automatic", "slots", "ring"});
template <>
inline constexpr auto kWords<LayerSchedule> = std::to_array<std::string_view>({"plain", "rounds", "combine_rounds",
                                                                               "automatic"});
template <>
inline constexpr auto kWords<Overflow> = std::to_array<std::string_view>({"error", "drop"});
template <>
inline constexpr auto kWords<DataType> = std::to_array<std::string_view>({"bf16", "f16", "f32", "i32", "i64", "u8"});

template <class E>
E value_of(const char* argument, std::string_view word) {
  int value = 0;
  for (const std::string_view one : kWords<E>) {
    if (one == word) return static_cast<E>(value);
    ++value;
  }
  reject(fmt::format("{} is '{}'; it must be one of {}", argument, word, fmt::join(kWords<E>, ", ")));
}

template <class E>
std::string word_of(E value) {
  return std::string(kWords<E>[static_cast<std::size_t>(value)]);
}

// An object of the package's module of records.
nb::object record(const char* name);
nb::object fault_of(const Fault& fault);

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
