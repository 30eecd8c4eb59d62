// Warns of waits that take long, while they go on.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

#include "fabric/fault_record.hpp"
#include "weft/types.hpp"

namespace weft::detail {

class ProcessWatch;

// The waits of one communicator, for as long as it lives. A rank that waits in its call cannot warn, so a thread of the
// process looks at the records of all communicators. It lives as long as one of them does, and ends before exit().
class WaitWatch {
 public:
  struct Args {
    int rank;
    Device device;                      // of the record
    std::chrono::nanoseconds deadline;  // of a wait; 0: none
    FaultRecord& record;                // kEnding
  };
  explicit WaitWatch(const Args& args);
  ~WaitWatch();
  WaitWatch(const WaitWatch&) = delete;
  WaitWatch& operator=(const WaitWatch&) = delete;

  // Logs the newest slow wait once. It takes no lock that a call holds. By one thread at a time.
  void look() noexcept;

 private:
  Args args_;
  ProcessWatch& process_;
  std::array<SlowWait, 16> logged_{};  // several groups' calls may wait at once, and take turns on the record
  std::size_t next_ = 0;
};

}  // namespace weft::detail
