#include "weft/recording.hpp"

#include <utility>

#include "base/nvtx.hpp"
#include "comm/call.hpp"
#include "comm/capture.hpp"

namespace weft {
namespace detail {
namespace {

thread_local Capture* current_capture = nullptr;

}  // namespace

Capture::Capture(const CommunicatorState& communicator) : communicator_(communicator) {
  if (current_capture != nullptr) {
    throw Error(Errc::invalid_argument, "Recording::capture: this thread is capturing already");
  }
  current_capture = this;
}

Capture::~Capture() {
  current_capture = nullptr;
}

Capture* Capture::current() {
  return current_capture;
}

void Capture::keep(const Group& group, std::variant<KernelCall, HostStep> what) {
  if (&group.state().communicator() != &communicator_) {
    throw Error(Errc::invalid_argument, "group: not of the communicator whose calls this thread is capturing");
  }
  recorded_.steps.push_back({group, std::move(what)});
}

bool is_kept(const Group& group, Stream stream) {
  if (Capture::current() != nullptr) return true;
  const std::shared_ptr<Fabric>& fabric = group.state().communicator().shared_fabric();
  bool kept = false;
  with_history(group.state(), [&] { kept = fabric->keep_alive(stream, fabric); });
  return kept;
}

void run_held(const Group& group, const KernelCall& planned) {
  if (Capture* const capture = Capture::current()) return capture->keep(group, planned);
  const GroupState& state = group.state();
  bool good = true;
  Fabric& fabric = state.communicator().fabric();
  with_history(state, [&] { good = fabric.run(planned); });
  if (!good) state.communicator().throw_failed(state, planned.call);
}
void run_held(const Group& group, const HostStep& step) {
  Capture* const capture = Capture::current();
  return capture != nullptr ? capture->keep(group, step) : step();
}

}  // namespace detail

Recording Recording::capture(const Communicator& communicator, const std::function<void()>& calls) {
  if (communicator.device() != Device::cpu) {
    throw Error(Errc::unsupported, "Recording::capture: the communicator is on GPUs; capture a CUDA graph instead");
  }
  detail::Capture capture(communicator.world().state().communicator());
  calls();
  return Recording(std::make_shared<const detail::RecordedCalls>(capture.take()));
}

void Recording::replay() const {
  const detail::NvtxRange range("weft::Recording::replay");
  const auto kept = calls_;  // keeps the calls' groups, as detail::held() does
  if (detail::Capture* const capture = detail::Capture::current()) capture->hold(kept);
  for (const detail::RecordedStep& step : kept->steps) {
    detail::check_not_ended(step.group);  // after a fault, in any group, nothing more is sent
    std::visit([&](const auto& what) { detail::run_held(step.group, what); }, step.what);
  }
}

std::size_t Recording::size() const {
  return calls_->steps.size();
}

}  // namespace weft
