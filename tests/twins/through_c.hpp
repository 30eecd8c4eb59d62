// Puts the C interface between the tests and the library: the linker sends each call of the C++ interface to the
// function of its name here (--wrap), which makes it through C. So the tests of every operation try the C interface,
// and structs are translated field by field once more, by hand.
#pragma once

#include <cstring>
#include <memory>
#include <stdexcept>

#include "c/handles.hpp"
#include "weft/c.h"
#include "weft/weft.hpp"

namespace weft::test {

// The calls that C makes of C++ end up here, too: they go on to the library.
inline thread_local bool in_c = false;

class InC {
 public:
  InC() { in_c = true; }
  ~InC() { in_c = before_; }

 private:
  bool before_ = in_c;
};

[[noreturn]] inline void throw_last(weft_code code) {
  const weft_fault* const fault = weft_last_fault();
  if (fault->size != sizeof *fault || fault->code != code) throw std::logic_error("the last fault has another code");
  throw Error(Fault{.code = static_cast<Errc>(fault->code),
                    .rank = fault->rank,
                    .peer = fault->peer,
                    .reporter = fault->reporter,
                    .reported = static_cast<Errc>(fault->reported),
                    .epoch_wanted = fault->epoch_wanted,
                    .epoch_seen = fault->epoch_seen,
                    .operation = fault->operation,
                    .theirs = fault->theirs,
                    .reason = fault->reason},
              weft_last_message());
}

// Calls a function of the C interface. Its error is thrown again.
template <class... Parameter, class... Argument>
void call_c(weft_code (*function)(Parameter...), Argument... arguments) {
  weft_code code = WEFT_OK;
  {
    const InC inside;
    code = function(arguments...);
  }
  if (code != WEFT_OK) throw_last(code);
}

// A handle of an object that the test has: a handle begins with its object.
template <class Handle, class Object>
Handle* handle_of(Object& object) {
  return reinterpret_cast<Handle*>(&object);
}
inline const weft_group* handle(const Group& group) {
  return handle_of<const weft_group>(group);
}

// The defaults, in memory that held something else.
template <class Args>
Args init(weft_code (*function)(Args*, std::size_t)) {
  Args args;
  std::memset(&args, 0x5a, sizeof args);
  call_c(function, &args, sizeof args);
  return args;
}

template <class Enum>
std::int32_t number(Enum enumerator) {
  return static_cast<std::int32_t>(enumerator);
}

// Messages have their tags themselves.
template <class C, class Cpp>
void fill_launch(C& c, const Cpp& args) {
  c.stream = args.stream;
  if constexpr (requires { args.tag; }) c.tag = args.tag;
  c.blocks = args.launch.blocks;
  c.threads = args.launch.threads;
  c.cluster = args.launch.cluster;
}

template <class C, class Cpp>
void fill_rows(C& c, const Cpp& args) {
  c.input = args.input;
  c.output = args.output;
  c.input_stride = args.input_stride;
  c.output_stride = args.output_stride;
}

inline weft_counts c_counts(const Counts& counts) {
  weft_counts c = init(weft_counts_init);
  c.rows = counts.rows;
  c.sharding = number(counts.sharding);
  c.padding = number(counts.padding);
  c.slot_rows = counts.slot_rows;
  c.slots = counts.slots;
  c.on_host = counts.on_host;
  return c;
}

// Takes the object out of a handle, which is destroyed.
template <class Handle, class Object>
Object taken(Handle* handle, Object Handle::*object) {
  return std::move(std::unique_ptr<Handle>(handle).get()->*object);
}

}  // namespace weft::test
