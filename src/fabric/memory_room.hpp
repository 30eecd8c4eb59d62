// How much memory CPU ranks can still take. What is more than that is found before it is touched: where memory runs out
// while a window is filled, the kernel ends a process of its choice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/bootstrap.hpp"

namespace weft::detail {

struct MemoryRoom {
  std::uint64_t bytes;
  std::uint64_t owner = 0;  // the control group whose limit it is, the same number for all who share it; 0: the machine
  std::string text;         // whose it is, and how it comes about
};

// Where the kernel tells it.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string groups = "/proc/self/cgroup";
  std::string mounts = "/proc/self/mountinfo";
};

// Both are empty where the kernel does not say. Free memory and what the kernel can drop, and swap.
std::optional<MemoryRoom> machine_room(const MemoryFiles& files = {});
// Of the control groups (version 2, or 1) that this process is in, the one with the least left.
std::optional<MemoryRoom> group_room(const MemoryFiles& files = {});

// Collective, of ranks on one machine: throws Errc::system on every rank, or Errc::rendezvous with that rank's reason,
// where `bytes` more for each are more than there is.
void check_memory_room(Bootstrap& bootstrap, std::uint64_t bytes, const MemoryFiles& files = {});

}  // namespace weft::detail
