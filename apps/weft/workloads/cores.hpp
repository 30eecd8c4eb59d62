// How many cores this process may use, and whether what is measured has one for each of its threads.
#pragma once

#include <filesystem>
#include <string>

#include "workloads/measure.hpp"

namespace weft::cli {

// Cores' worth of time that control groups grant this process: the least of cpu.max (version 2) and of
// cpu.cfs_quota_us over cpu.cfs_period_us (version 1) of its group and those above. Infinite where there is no limit.
// `root`: where /proc and /sys lie.
double granted_cores(const std::filesystem::path& root = "/");
// Cores that the calling thread may run on (sched_getaffinity). In a launched job, whose ranks may be bound one by one,
// all of the machine.
int allowed_cores();
// The lesser of the two.
double usable_cores();

// Threads that all want a core at once, and the cores there are. Ranks on GPUs want none.
struct Crowd {
  int ranks = 0;         // CPU ranks, which poll
  int peer_threads = 0;  // Gloo has one beside each rank
  double cores = 0;

  int threads() const { return ranks + peer_threads; }
  // Then times are the scheduler's: a thread that waits keeps its core until the next tick.
  bool crowded() const { return threads() > cores; }
  // A sentence for the head and the foot of a table; empty where it is not crowded.
  std::string warning() const;
};
Crowd crowd_of(const Ranks& ranks, const std::vector<Result>& results);

}  // namespace weft::cli
