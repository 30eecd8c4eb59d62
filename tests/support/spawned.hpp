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

using Variables = std::vector<std::pair<std::string, std::string>>;

class Spawned {
 public:
  Spawned(const std::string& test, const Variables& variables);
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

// A process for each rank, as torchrun would start them. NCCL_HOSTID, where given, ends in the half of the ranks that a
// process belongs to, and CUDA_VISIBLE_DEVICES is its own GPU's number.
std::vector<Spawned> start_ranks(const std::string& test, int size, const Variables& more);
// What such a process reads.
int variable(const char* name);

// NCCL takes each half of the ranks to be on a machine of its own.
inline const Variables two_hosts{{"NCCL_HOSTID", "host"}};

}  // namespace weft::test
