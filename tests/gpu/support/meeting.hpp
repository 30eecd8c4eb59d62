// Where the ranks of a world wait for each other on the host. A rank that has ended is waited for no longer.
#pragma once

#include <atomic>
#include <barrier>

namespace weft::test {

class Meeting {
 public:
  explicit Meeting(int ranks) : barrier_(ranks, Completion{this}) {}

  // False where a rank has ended: the same on every rank that meets here.
  bool wait() {
    barrier_.arrive_and_wait();
    return complete_;
  }
  // For good, however this rank ends.
  void leave() {
    somebody_left_ = true;
    barrier_.arrive_and_drop();
  }

 private:
  struct Completion {
    Meeting* meeting;
    void operator()() const noexcept { meeting->complete_ = !meeting->somebody_left_; }
  };

  std::atomic<bool> somebody_left_ = false;
  bool complete_ = true;  // written while every rank waits
  std::barrier<Completion> barrier_;
};

}  // namespace weft::test
