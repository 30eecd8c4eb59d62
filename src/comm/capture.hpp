// The calls that a thread is recording.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "comm/state.hpp"
#include "kernel/executor.hpp"
#include "weft/recording.hpp"

namespace weft::detail {

// A function of the host between planned calls.
using HostStep = std::function<void()>;
// A planned call with everything that the host decides (the executor decides epochs), or a function of the host.
struct RecordedStep {
  Group group;  // keeps the communicator alive
  std::variant<KernelCall, HostStep> what;
};

struct RecordedCalls {
  std::vector<RecordedStep> steps;
  std::vector<std::shared_ptr<const void>> held;  // what functions of the host use
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

  // Keeps a step; throws if it belongs to another communicator.
  void keep(const Group& group, std::variant<KernelCall, HostStep> what);
  void hold(std::shared_ptr<const void> what) { recorded_.held.push_back(std::move(what)); }
  RecordedCalls take() { return std::move(recorded_); }

 private:
  const CommunicatorState& communicator_;
  RecordedCalls recorded_;
};

// Whether a call on `stream` is made later: this thread captures, or a graph on `stream` is captured. Such a graph then
// keeps the call's memory alive. Ask before each call.
bool is_kept(const Group& group, Stream stream);
// Runs the call or the function, or keeps it if this thread captures. Throws the fault of a call that has failed on CPU
// ranks.
void run_held(const Group& group, const KernelCall& planned);
void run_held(const Group& group, const HostStep& step);

}  // namespace weft::detail
