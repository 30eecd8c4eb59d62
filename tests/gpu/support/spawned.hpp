// Runs one test of this executable, by the name of a DISABLED_ one, in a process of its own: forked and executed, as
// CUDA does not survive a fork.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/unique_fd.hpp"
#include "support/processes.hpp"

namespace weft::test {

// Called first in a process that is spawned: should it not end in time, it says in which function its main thread is.
void answer_where();

class Spawned {
 public:
  Spawned(const std::string& test, const std::vector<std::pair<std::string, std::string>>& variables);
  Spawned(Spawned&&) noexcept = default;
  Spawned& operator=(Spawned&&) = delete;
  ~Spawned();

  void signal(int number) const;
  // False when it ended, or the time ran out, before it said `text`.
  bool wait_until_said(const std::string& text, std::chrono::seconds limit);
  // What it says is all that it wrote to stdout and stderr. Killed when it outlasts the limit.
  Outcome wait(std::chrono::seconds limit);

 private:
  bool listen(std::chrono::steady_clock::time_point end);

  pid_t pid_ = -1;
  detail::UniqueFd pipe_;
  std::string output_;
};

}  // namespace weft::test
