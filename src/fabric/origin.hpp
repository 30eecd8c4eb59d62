// The process in which an object was made.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace weft::detail {

// Tells the process that made this object from its fork()ed children. They have copies of its memory, but neither its
// threads nor its GPU, and its peers' messages are for the parent.
class Origin {
 public:
  Origin();

  // Whether this is still that process. No system call: the child counts forks.
  bool is_here() const { return forks_.load(std::memory_order_relaxed) == fork_; }
  // Throws Errc::unsupported if it is not.
  void check() const {
    if (!is_here()) reject();
  }

 private:
  [[noreturn]] void reject() const;

  inline static std::atomic<std::uint32_t> forks_ = 0;  // between the first process of the program and this one
  std::uint32_t fork_;
  pid_t pid_;
};

}  // namespace weft::detail
