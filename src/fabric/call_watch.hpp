// Watches over calls that NCCL's kernels serve: they know no deadline of Weft's.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/call_words.hpp"

namespace weft::detail {

struct WatchedCall {
  int group = 0;
  std::uint64_t number = 0;  // among the group's calls, from 1
  CallWords words;
};

// A thread that looks, every so often, which calls have begun on the GPU and which have ended. Events mark both, so
// that time spent behind other work of the stream does not count. Calls of one group are ordered on the GPU.
class CallWatch {
 public:
  struct Args {
    int device;
    std::chrono::nanoseconds deadline;             // 0: none
    std::function<void()> look;                    // with each look around
    std::function<void(const WatchedCall&)> slow;  // a call has run for slow_wait_ns(); once for each
    std::function<void(const WatchedCall&)> late;  // … for all of it; once for each
  };
  explicit CallWatch(Args args);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  // The work between begin() and end() on the stream is a call. Nothing is watched while the stream is captured: the
  // host does not see a graph's replays.
  struct Mark {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
  };
  Mark begin(cudaStream_t stream);
  void end(Mark mark, cudaStream_t stream, WatchedCall call);

  // Neither ever waits for the GPU.
  void wake();  // look now
  bool idle();  // every watched call is known to have ended; looks now

 private:
  using Clock = std::chrono::steady_clock;
  struct Pending {
    WatchedCall call;
    Mark mark;
    Clock::time_point began = {};
    bool slow = false;
    bool late = false;
  };
  struct Findings {
    std::vector<WatchedCall> slow, late;
  };
  void run();
  cudaEvent_t take_event();
  // By the thread alone. A question about an event may take as long as the driver is busy, so no other thread waits for
  // it.
  void retire();  // forgets calls that have ended
  Findings look_at_calls();

  Args args_;
  std::map<int, std::deque<Pending>> pending_;  // by group; the thread's
  std::mutex mutex_;                            // guards the fields below
  std::condition_variable changed_;
  bool stop_ = false, woken_ = false;
  std::vector<Pending> arrived_;  // not yet seen by the thread
  std::size_t open_ = 0;          // calls not known to have ended
  std::vector<cudaEvent_t> free_;
  std::thread thread_;
};

}  // namespace weft::detail
