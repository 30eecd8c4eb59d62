#if WEFT_WITH_CUDA

#include "fabric/call_watch.hpp"

#include <algorithm>
#include <utility>

#include "kernel/cuda_error.hpp"
#include "protocol/channel.hpp"

namespace weft::detail {
namespace {

using namespace std::chrono_literals;

// Often enough to miss a deadline only by little; seldom enough to cost nothing.
std::chrono::nanoseconds period(std::chrono::nanoseconds deadline) {
  return deadline.count() == 0 ? 50ms : std::clamp<std::chrono::nanoseconds>(deadline / 20, 1ms, 50ms);
}

// An event whose query fails belongs to a GPU that is lost, which other checks report.
bool passed(cudaEvent_t event) {
  const cudaError_t result = cudaEventQuery(event);
  if (result != cudaSuccess) static_cast<void>(cudaGetLastError());
  return result != cudaErrorNotReady;
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  static_cast<void>(cudaGetLastError());  // the legacy stream, beside a capture
  return true;
}

}  // namespace

CallWatch::CallWatch(Args args) : args_(std::move(args)), thread_([this] { run(); }) {}

CallWatch::~CallWatch() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const auto& [group, calls] : pending_) arrived_.insert(arrived_.end(), calls.begin(), calls.end());
  for (const Pending& pending : arrived_) free_.insert(free_.end(), {pending.mark.begin, pending.mark.end});
  for (const cudaEvent_t event : free_) static_cast<void>(cudaEventDestroy(event));
}

CallWatch::Mark CallWatch::begin(cudaStream_t stream) {
  if (is_captured(stream)) return {};
  const Mark mark{.begin = take_event(), .end = take_event()};
  check_cuda(cudaEventRecord(mark.begin, stream), "cudaEventRecord");
  return mark;
}

void CallWatch::end(Mark mark, cudaStream_t stream, WatchedCall call) {
  if (mark.begin == nullptr) return;
  check_cuda(cudaEventRecord(mark.end, stream), "cudaEventRecord");
  const std::scoped_lock lock(mutex_);
  arrived_.push_back({.call = std::move(call), .mark = mark});
  ++open_;
}

void CallWatch::wake() {
  {
    const std::scoped_lock lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

bool CallWatch::idle() {
  wake();
  const std::scoped_lock lock(mutex_);
  return open_ == 0;
}

void CallWatch::run() {
  static_cast<void>(cudaSetDevice(args_.device));
  // Questions about events are no part of any capture, and must not end one.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
  std::unique_lock lock(mutex_);
  while (!stop_) {
    changed_.wait_for(lock, period(args_.deadline), [&] { return stop_ || woken_; });
    woken_ = false;
    for (Pending& call : arrived_) pending_[call.call.group].push_back(std::move(call));
    arrived_.clear();
    lock.unlock();
    const Findings findings = look_at_calls();
    for (const WatchedCall& call : findings.slow) args_.slow(call);
    for (const WatchedCall& call : findings.late) args_.late(call);
    args_.look();
    lock.lock();
  }
}

void CallWatch::retire() {
  for (auto& [group, calls] : pending_) {
    while (!calls.empty() && passed(calls.front().mark.end)) {
      const Mark mark = calls.front().mark;
      calls.pop_front();
      const std::scoped_lock lock(mutex_);
      free_.insert(free_.end(), {mark.begin, mark.end});
      --open_;
    }
  }
}

CallWatch::Findings CallWatch::look_at_calls() {
  retire();
  Findings findings;
  for (auto& [group, calls] : pending_) {
    if (calls.empty()) continue;
    Pending& first = calls.front();
    if (first.began == Clock::time_point{}) {
      if (passed(first.mark.begin)) first.began = Clock::now();
      continue;
    }
    const auto ran = Clock::now() - first.began;
    const std::chrono::nanoseconds slow(slow_wait_ns(static_cast<std::uint64_t>(args_.deadline.count())));
    if (ran > slow && !std::exchange(first.slow, true)) findings.slow.push_back(first.call);
    if (args_.deadline.count() == 0) continue;
    if (ran > args_.deadline && !std::exchange(first.late, true)) findings.late.push_back(first.call);
  }
  return findings;
}

cudaEvent_t CallWatch::take_event() {
  {
    const std::scoped_lock lock(mutex_);
    if (!free_.empty()) {
      const cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}

}  // namespace weft::detail

#endif
