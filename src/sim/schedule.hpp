// Decides an execution. Everything that the program does not determine is a choice among n: the thread that goes on,
// the message that a load reads, the place that a store takes, the time of a copy in bulk. Choice 0 is the ordinary
// one: the same thread, or the next in turn if it cannot go on; the newest message; the end; at once. So a schedule is
// the short list of choices that differ.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/memory.hpp"

namespace weft::sim {

struct Deviation {
  unsigned thread;   // the thread that chooses …
  std::uint32_t at;  // … and the number of its choice
  unsigned choice;
  bool operator==(const Deviation&) const = default;
};
using Schedule = std::vector<Deviation>;

// "2.17=1,0.4=3": thread 2's 17th choice is 1, …
std::string to_string(const Schedule& schedule);
Schedule parse_schedule(const std::string& text);  // throws weft::Error

enum class Kind : std::uint8_t {
  preempt,  // the thread that goes on, while the present one could
  next,     // the thread that goes on, as the present one cannot
  age,      // the message that a load reads, or the place that a store takes
  copy,     // when a copy in bulk is made: at once, or when it is awaited
};

enum class Strategy : std::uint8_t { random, pct, exhaustive, replay };

// Small, fast and the same everywhere (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  unsigned below(unsigned n) { return static_cast<unsigned>((next() >> 32) * n >> 32); }

 private:
  std::uint64_t state_;
};

// The number of bits that are set. std::popcount would call a library: not each x86-64 has the instruction.
inline unsigned count(ThreadMask threads) {
  threads -= threads >> 1 & 0x5555555555555555u;
  threads = (threads & 0x3333333333333333u) + (threads >> 2 & 0x3333333333333333u);
  threads = (threads + (threads >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return static_cast<unsigned>(threads * 0x0101010101010101u >> 56);
}

class Scheduler {
 public:
  static Scheduler random(std::uint64_t seed) { return {Strategy::random, seed}; }
  // Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs" (ASPLOS 2010).
  static Scheduler pct(std::uint64_t seed, unsigned change_points) {
    Scheduler scheduler{Strategy::pct, seed};
    scheduler.change_points_ = change_points;
    return scheduler;
  }
  // All schedules with at most `bound` choices that are not the ordinary one.
  static Scheduler exhaustive(unsigned bound) {
    Scheduler scheduler{Strategy::exhaustive, 0};
    scheduler.bound_ = bound;
    return scheduler;
  }
  static Scheduler replay(const Schedule& schedule);

  // Call it before each execution. False: none is left (exhaustive).
  bool begin();

  unsigned choose(Kind kind, unsigned thread, unsigned n) {
    const std::uint32_t at = counters_[thread]++;
    if (n <= 1 || (newest_ && kind == Kind::age)) return 0;
    return take(thread, at, decide(kind, thread, at, [n] { return n; }));
  }
  // `enabled` is not empty; `thread` is the present one.
  unsigned next_thread(unsigned thread, ThreadMask enabled);

  // From now on loads read the newest message and stores go to the end: only the orders of steps are choices.
  void keep_newest() { newest_ = true; }

  // Choices of the present execution that were not the ordinary one.
  const Schedule& taken() const { return taken_; }

 private:
  Scheduler(Strategy strategy, std::uint64_t seed) : strategy_(strategy), random_(seed) {}
  // `n()`: the number of choices, which most often need not be counted.
  template <class Count>
  unsigned decide(Kind kind, unsigned thread, std::uint32_t at, Count n);
  unsigned replayed(unsigned thread, std::uint32_t at, unsigned n);
  unsigned take(unsigned thread, std::uint32_t at, unsigned choice) {
    if (choice != 0) taken_.push_back({thread, at, choice});
    return choice;
  }
  unsigned next_by_priority(unsigned thread, ThreadMask enabled);
  unsigned by_priority(ThreadMask enabled);
  void set_places();

  Strategy strategy_;
  bool newest_ = false;
  Random random_;
  Schedule taken_;
  std::array<std::uint32_t, kMaxThreads> counters_{};

  // random: chances in 1/256, drawn anew for every execution
  unsigned preempt_chance_ = 0, age_chance_ = 0;

  // pct
  unsigned change_points_ = 0;
  std::array<std::uint8_t, kMaxThreads> by_priority_{};  // threads, highest first
  std::array<std::uint8_t, kMaxThreads> place_{};        // of each thread in them
  std::vector<std::uint32_t> changes_;                   // steps, descending
  std::uint32_t step_ = 0, longest_ = 64;

  // exhaustive: the choices that could differ within the bound, in order
  struct Point {
    std::uint32_t alternatives, chosen;
  };
  unsigned bound_ = 0;
  bool started_ = false;
  std::vector<Point> path_;
  std::size_t depth_ = 0;
  unsigned spent_ = 0;

  // replay
  std::array<std::vector<Deviation>, kMaxThreads> wanted_;
  std::array<std::size_t, kMaxThreads> next_wanted_{};
};

template <class Count>
[[gnu::always_inline]] inline unsigned Scheduler::decide(Kind kind, unsigned thread, std::uint32_t at, Count n) {
  // Depth first. A point is remembered only while another choice there would be within the bound.
  if (strategy_ == Strategy::exhaustive) {
    if (spent_ == bound_) return 0;
    if (depth_ == path_.size()) path_.push_back({n(), 0});
    const Point& point = path_[depth_++];
    spent_ += point.chosen != 0;
    return point.chosen;
  }
  if (strategy_ == Strategy::replay) return replayed(thread, at, n());
  // Neither time of a copy is the usual one on the hardware.
  if (kind == Kind::next || kind == Kind::copy) return random_.below(n());
  const unsigned chance = kind == Kind::preempt ? preempt_chance_ : age_chance_;
  return (random_.next() >> 56) < chance ? 1 + random_.below(n() - 1) : 0;
}

// The present thread's bit comes first in `turned`: choice i is the i-th enabled thread from it upwards, and around.
inline unsigned Scheduler::next_thread(unsigned thread, ThreadMask enabled) {
  if (strategy_ == Strategy::pct) return next_by_priority(thread, enabled);
  ThreadMask turned = thread == 0 ? enabled : enabled >> thread | enabled << (kMaxThreads - thread);
  const std::uint32_t at = counters_[thread]++;
  if ((turned & (turned - 1)) != 0) {
    const Kind kind = (turned & 1) != 0 ? Kind::preempt : Kind::next;
    unsigned choice = take(thread, at, decide(kind, thread, at, [=] { return count(turned); }));
    for (; choice > 0; --choice) turned &= turned - 1;
  }
  return (thread + static_cast<unsigned>(__builtin_ctzll(turned))) % kMaxThreads;
}

}  // namespace weft::sim
