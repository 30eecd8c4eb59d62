// The memory that CPU ranks can still take. Weft finds a shortage before it touches memory: if memory runs out while a
// window is filled, the kernel ends a process of its choice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/bootstrap.hpp"

namespace weft::detail {

struct MemoryRoom {
  std::uint64_t bytes;
  std::uint64_t owner = 0;  // the control group with this limit, one number for all its ranks; 0: the machine
  std::string text;         // its owner, and how it comes about
};

// The kernel's files.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string groups = "/proc/self/cgroup";
  std::string mounts = "/proc/self/mountinfo";
};

// Both are empty if the kernel does not say. Free memory, memory that the kernel can drop, and swap.
std::optional<MemoryRoom> machine_room(const MemoryFiles& files = {});
// The least memory left among the control groups (version 2, or 1) that this process is in.
std::optional<MemoryRoom> group_room(const MemoryFiles& files = {});

// Collective, for ranks on one machine. Throws on every rank if there are not `bytes` more for each: Errc::system, or
// Errc::rendezvous with that rank's reason.
void check_memory_room(Bootstrap& bootstrap, std::uint64_t bytes, const MemoryFiles& files = {});

}  // namespace weft::detail
