// Ranks as threads of this process, on the CPU: the frame of examples that need no launcher.
#pragma once

#include <cstddef>
#include <thread>
#include <vector>

#include <weft/weft.hpp>

// Calls `run_rank(communicator)` in a thread for each rank. Whether all of them return true.
template <class RunRank>
bool right_on_every_rank(int ranks, RunRank run_rank) {
  std::vector<weft::Communicator> communicators = weft::Communicator::local(ranks, {.device = weft::Device::cpu});
  std::vector<int> right(communicators.size());
  std::vector<std::jthread> threads;
  for (weft::Communicator& communicator : communicators)
    threads.emplace_back(
        [&, &mine = right[static_cast<std::size_t>(communicator.rank())]] { mine = run_rank(communicator) ? 1 : 0; });
  threads.clear();  // joins them

  for (const int mine : right)
    if (mine == 0) return false;
  return true;
}
