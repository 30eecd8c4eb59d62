// Lets the ranks of a world wait for each other on the host. No rank waits for one that has ended.
#pragma once

#include <atomic>
#include <barrier>

namespace weft::test {

class Meeting {
 public:
  explicit Meeting(int ranks) : barrier_(ranks, Completion{this}) {}

  // False if a rank has ended. All ranks that meet here get the same answer.
  bool wait() {
    barrier_.arrive_and_wait();
    return complete_;
  }
  // Leaves for good, however this rank ends.
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
