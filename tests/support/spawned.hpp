// Runs one test of this executable, a DISABLED_ one, in its own process: forked and executed, since CUDA does not
// survive a fork.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/unique_fd.hpp"
#include "support/processes.hpp"

namespace weft::test {

// A spawned process calls it first. If it does not end in time, it prints the function that its main thread is in.
void answer_where();

using Variables = std::vector<std::pair<std::string, std::string>>;

class Spawned {
 public:
  Spawned(const std::string& test, const Variables& variables);
  Spawned(Spawned&&) noexcept = default;
  Spawned& operator=(Spawned&&) = delete;
  ~Spawned();

  void signal(int number) const;
  // False if the process ended, or the time ran out, before it said `text`.
  bool wait_until_said(const std::string& text, std::chrono::seconds limit);
  // Returns everything that it wrote to stdout and stderr. Kills it if it exceeds the limit.
  Outcome wait(std::chrono::seconds limit);

 private:
  bool listen(std::chrono::steady_clock::time_point end);

  pid_t pid_ = -1;
  detail::UniqueFd pipe_;
  std::string output_;
};

// Starts a process for each rank, like torchrun. If NCCL_HOSTID is given, its end names the half of the ranks to which
// the process belongs. If CUDA_VISIBLE_DEVICES is given, it is the process's own GPU.
std::vector<Spawned> start_ranks(const std::string& test, int size, const Variables& more);
// Reads a variable of such a process.
int variable(const char* name);

// NCCL believes that each half of the ranks is on a machine of its own.
inline const Variables two_hosts{{"NCCL_HOSTID", "host"}};

}  // namespace weft::test
