// The number of cores that this process may use, and whether each measured thread has one.
#pragma once

#include <filesystem>
#include <string>

#include "workloads/measure.hpp"

namespace weft::cli {

// The CPU time that control groups grant this process, in cores: the least limit of its group and its ancestors. Reads
// cpu.max (version 2), and cpu.cfs_quota_us over cpu.cfs_period_us (version 1). Infinite without a limit. `root`: the
// folder of /proc and /sys.
double granted_cores(const std::filesystem::path& root = "/");
// Cores that the calling thread may run on (sched_getaffinity). In a launched job, all cores of the machine: its ranks
// may be bound one by one.
int allowed_cores();
// The smaller of the two numbers above.
double usable_cores();

// Threads that want a core at the same time, and the number of cores. Ranks on GPUs want none.
struct Crowd {
  int ranks = 0;         // CPU ranks, which poll
  int peer_threads = 0;  // Gloo has one for each rank
  double cores = 0;

  int threads() const { return ranks + peer_threads; }
  // If true, times depend on the scheduler: a waiting thread keeps its core until the next tick.
  bool crowded() const { return threads() > cores; }
  // A sentence for the head and the foot of a table; empty if it is not crowded.
  std::string warning() const;
};
Crowd crowd_of(const Ranks& ranks, const std::vector<Result>& results);

}  // namespace weft::cli
