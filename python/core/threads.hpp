// Other threads of Python run while this one waits.
#pragma once

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace weft::python {

// Gives up the interpreter's lock for its lifetime, as nb::gil_scoped_release does. But a daemon thread may still wait
// when the interpreter ends. CPython before 3.14 then ends the thread when it asks for the lock, in the middle of C++,
// which would end the process. Such a thread stays where it is until the process has gone.
class OthersRun {
 public:
  OthersRun() : state_(PyEval_SaveThread()) {}
  ~OthersRun();
  OthersRun(const OthersRun&) = delete;
  OthersRun& operator=(const OthersRun&) = delete;

 private:
  PyThreadState* state_;
};

// The interpreter's lock for a function that C++ calls back, where OthersRun has given it up. Such a thread, too, stays
// where it is when the interpreter ends.
class Locked {
 public:
  Locked();
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

// Runs what may wait: for other ranks, a server, the GPU's queue.
template <class Call>
decltype(auto) waiting(Call&& call) {
  const OthersRun others_run;
  return call();
}

}  // namespace weft::python
