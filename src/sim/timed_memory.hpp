// Windows of all ranks, whose stores to peers take their time. A store that has landed is seen by everybody at once:
// orders of memory are not explored here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "base/pack.hpp"

namespace weft::sim {

class TimedMemory {
 public:
  TimedMemory(unsigned ranks, std::size_t window_bytes);

  std::byte* window(unsigned rank) { return reinterpret_cast<std::byte*>(packs_.data()) + rank * window_bytes_; }

  // For how much a stretch of every window stands.
  struct Area {
    std::size_t begin, end;           // offsets
    double weight = 1;                // bytes for each byte, but …
    std::size_t step = 0, light = 0;  // … if there is a step, for the first `light` bytes of every step …
    double light_weight = 1;          // … so many
    double looks = 1;                 // round trips that a data block's look stands for, which its warps share
    double lanes = 1;                 // lanes of a control block that look there beside each other
    bool once = false;                // data blocks look there as the control block does, each once
  };
  void add(const Area& area) { areas_.push_back(area); }
  const Area& area_of(const void* address) const;
  double weight_of(const void* address) const;

  // Memory beside the windows is of no rank, and nobody waits for it.
  static constexpr unsigned kNobody = ~0u;
  unsigned owner(const void* address) const;
  // Threads wait for places, which are packs.
  std::size_t place(const void* address) const { return offset_of(address) / sizeof(detail::Pack); }
  std::size_t places() const { return packs_.size(); }

  // A word or a pack lands in a window at a time.
  void send(double time, void* to, const void* value, unsigned bytes);
  static constexpr double kNever = 1e300;
  double next_landing() const { return flying_.empty() ? kNever : flying_.top().time; }
  // Lets the next store land; returns its place and its time.
  std::pair<std::size_t, double> land();
  void note_store(const void* to, double time) { landed_[place(to)] = time; }
  // When the last store to the place landed.
  double landed(std::size_t place) const { return landed_[place]; }

 private:
  struct Store {
    double time;
    std::uint64_t number;  // of two that land at one time the first one is first
    void* to;
    unsigned bytes;
    detail::Pack value;
    bool operator<(const Store& other) const { return time != other.time ? time > other.time : number > other.number; }
  };
  std::size_t offset_of(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(packs_.data());
  }

  std::size_t window_bytes_;
  std::vector<detail::Pack> packs_;
  std::vector<double> landed_;  // by place
  std::vector<Area> areas_;
  std::priority_queue<Store> flying_;
  std::uint64_t stores_ = 0;
};

}  // namespace weft::sim
