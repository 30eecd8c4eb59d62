// A point in time by which a whole step must be done, however many system calls it takes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>

namespace weft::detail {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // 0: never passes.
  explicit Deadline(std::chrono::nanoseconds limit) : limit_(limit), start_(Clock::now()) {}

  bool passed() const { return left() == std::chrono::nanoseconds::zero(); }

  // The time left, but at most `most`, in poll()'s form: milliseconds, rounded up, −1 for ever.
  int poll_timeout(std::chrono::milliseconds most = std::chrono::milliseconds::max()) const {
    using std::chrono::milliseconds;
    const milliseconds rest = limit_.count() > 0 ? std::chrono::ceil<milliseconds>(left()) : milliseconds::max();
    const milliseconds wait = std::min(rest, most);
    if (wait == milliseconds::max()) return -1;
    return static_cast<int>(std::min<milliseconds::rep>(wait.count(), std::numeric_limits<int>::max()));
  }

  // For messages: "within 2 s".
  std::string text() const { return fmt::format("within {:g} s", std::chrono::duration<double>(limit_).count()); }

 private:
  std::chrono::nanoseconds left() const {
    if (limit_.count() <= 0) return std::chrono::nanoseconds::max();
    return std::max(limit_ - std::chrono::nanoseconds(Clock::now() - start_), std::chrono::nanoseconds::zero());
  }

  std::chrono::nanoseconds limit_;
  Clock::time_point start_;
};

}  // namespace weft::detail
