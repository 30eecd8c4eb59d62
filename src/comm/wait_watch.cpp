#include "comm/wait_watch.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "fabric/origin.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

// Signals of the program go to the program's own threads. A new thread has the mask of the one that starts it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

// It is never destroyed: a static communicator may outlive every other static object.
class ProcessWatch {
 public:
  // A child of fork() has a copy without the thread, and with locks as they were. It makes its own.
  static ProcessWatch& current() {
    static std::atomic<ProcessWatch*> newest = nullptr;
    ProcessWatch* known = newest.load(std::memory_order_acquire);
    while (known == nullptr || !known->is_here()) {
      auto made = std::make_unique<ProcessWatch>();
      if (newest.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) known = made.release();
    }
    return *known;
  }

  bool is_here() const { return origin_.is_here(); }

  void add(WaitWatch& one) {
    const std::scoped_lock lock(mutex_);
    watched_.reserve(watched_.size() + 1);
    if (!thread_.joinable() && !exits_) {
      const SignalsBlocked blocked;
      thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
      ::pthread_setname_np(thread_.native_handle(), "weft-watch");
    }
    watched_.push_back(&one);
  }

  // Its last slow wait is logged if it is new.
  void remove(WaitWatch& one) {
    std::jthread last;  // joined when the lock is free
    const std::scoped_lock lock(mutex_);
    if (!exits_) one.look();
    std::erase(watched_, &one);
    if (watched_.empty()) last = std::move(thread_);
  }

  void stop() {
    std::jthread last;  // likewise
    const std::scoped_lock lock(mutex_);
    exits_ = true;  // the log may go from now on
    last = std::move(thread_);
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, stop, std::chrono::seconds(1), [&] { return stop.stop_requested(); })) {
      for (WaitWatch* const one : watched_) one->look();
    }
  }

  Origin origin_;
  std::mutex mutex_;  // guards the fields below
  std::condition_variable_any changed_;
  std::vector<WaitWatch*> watched_;
  bool exits_ = false;
  std::jthread thread_;
};

namespace {

// The log goes at exit, and CUDA's memory in a function that CUDA registers at its first use. Functions that are
// registered later run earlier.
void end_at_exit(Device device) {
  static_cast<void>(logger());
  const auto registered = [] {
    if (std::atexit([] { ProcessWatch::current().stop(); }) != 0) throw Error(Errc::system, "atexit: out of memory");
    return true;
  };
  [[maybe_unused]] static const bool after_log = registered();
  if (device == Device::cuda) [[maybe_unused]]
    static const bool after_cuda = registered();
}

}  // namespace

WaitWatch::WaitWatch(const Args& args) : args_(args), process_(ProcessWatch::current()) {
  end_at_exit(args.device);
  process_.add(*this);
}

WaitWatch::~WaitWatch() {
  if (process_.is_here()) process_.remove(*this);
}

void WaitWatch::look() noexcept {
  const std::optional<SlowWait> wait = read_slow_wait(args_.record);
  if (!wait || std::ranges::find(logged_, *wait) != logged_.end()) return;
  try {
    logger().warn("rank {}: call {} has waited for rank {} for more than {}", args_.rank, wait->epoch, wait->peer,
                  slow_wait_text(args_.deadline));
  } catch (const std::exception&) {
    return;  // no memory for words: the next look may have some
  }
  logged_[next_++ % logged_.size()] = *wait;
}

}  // namespace weft::detail
