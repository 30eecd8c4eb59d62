// The calls that a thread is recording.
#pragma once

#include <vector>

#include "comm/state.hpp"
#include "kernel/executor.hpp"
#include "weft/recording.hpp"

namespace weft::detail {

// A planned call with everything that is decided on the host; epochs are the executor's affair.
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

  // Of the calling thread; null where it captures nothing.
  static Capture* current();

  // Keeps a call; throws where it is another communicator's.
  void keep(const Group& group, const KernelCall& planned);
  RecordedCalls take() { return std::move(recorded_); }

 private:
  const CommunicatorState& communicator_;
  RecordedCalls recorded_;
};

// Whether a call on `stream` is made later, as this thread captures, or a graph on `stream` is captured, which then
// keeps alive what the call needs. To be asked before each call.
bool is_kept(const Group& group, Stream stream);
// Runs the call, or keeps it where this thread captures. Throws the fault of a call that CPU ranks have made in vain.
void run_held(const Group& group, const KernelCall& planned);

}  // namespace weft::detail
