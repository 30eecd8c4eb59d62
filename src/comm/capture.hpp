// The calls that a thread is recording.
#pragma once

#include <vector>

#include "comm/state.hpp"
#include "kernel/executor.hpp"
#include "weft/recording.hpp"

namespace weft::detail {

// A planned call with everything that the host decides; the executor decides epochs.
struct RecordedCall {
  Group group;  // keeps the communicator alive
  KernelCall planned;
};

struct RecordedCalls {
  std::vector<RecordedCall> calls;
};

// Lives while its thread captures.
class Capture {
 public:
  explicit Capture(const CommunicatorState& communicator);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // The calling thread's capture; null if it captures nothing.
  static Capture* current();

  // Keeps a call; throws if it belongs to another communicator.
  void keep(const Group& group, const KernelCall& planned);
  RecordedCalls take() { return std::move(recorded_); }

 private:
  const CommunicatorState& communicator_;
  RecordedCalls recorded_;
};

// Whether a call on `stream` is made later: this thread captures, or a graph on `stream` is captured. Such a graph then
// keeps the call's memory alive. Ask before each call.
bool is_kept(const Group& group, Stream stream);
// Runs the call, or keeps it if this thread captures. Throws the fault of a call that has failed on CPU ranks.
void run_held(const Group& group, const KernelCall& planned);

}  // namespace weft::detail
