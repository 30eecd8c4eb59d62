#include "threads.hpp"

#include <cxxabi.h>
#include <unistd.h>

namespace weft::python {

namespace {

template <class Take>
void take_or_stay(Take take) {
  try {
    take();
  } catch (abi::__forced_unwind&) {  // pthread_exit()
    for (;;) pause();
  }
}

}  // namespace

OthersRun::~OthersRun() {
  take_or_stay([this] { PyEval_RestoreThread(state_); });
}

Locked::Locked() {
  take_or_stay([this] { state_ = PyGILState_Ensure(); });
}

}  // namespace weft::python
