#include "threads.hpp"

#include <cxxabi.h>
#include <unistd.h>

namespace weft::python {

OthersRun::~OthersRun() {
  try {
    PyEval_RestoreThread(state_);
  } catch (abi::__forced_unwind&) {  // pthread_exit()
    for (;;) pause();
  }
}

}  // namespace weft::python
