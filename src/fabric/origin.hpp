// Which process something was made in.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace weft::detail {

// The process that made this object, told from the children that it has by fork(). They have copies of its memory, but
// neither its threads nor its GPU, and what its peers send is for the parent.
class Origin {
 public:
  Origin();

  // Whether this is still that process. No system call: forks count themselves, in the child.
  bool is_here() const { return forks_.load(std::memory_order_relaxed) == fork_; }
  // Throws Errc::unsupported where it is not.
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
