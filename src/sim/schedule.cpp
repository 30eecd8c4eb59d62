#include "sim/schedule.hpp"

#include <fmt/format.h>

#include <charconv>
#include <numeric>

#include "weft/error.hpp"

namespace weft::sim {

std::string to_string(const Schedule& schedule) {
  std::string text;
  for (const Deviation& d : schedule) {
    fmt::format_to(std::back_inserter(text), "{}{}.{}={}", text.empty() ? "" : ",", d.thread, d.at, d.choice);
  }
  return text;
}

Schedule parse_schedule(const std::string& text) {
  Schedule schedule;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](auto& value, char before) {
    if (before != '\0' && (at == end || *at++ != before)) return false;
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc{};
  };
  while (at != end) {
    Deviation d{};
    if (!number(d.thread, schedule.empty() ? '\0' : ',') || !number(d.at, '.') || !number(d.choice, '=') ||
        d.thread >= kMaxThreads) {
      throw Error(Errc::invalid_argument,
                  fmt::format("schedule \"{}\" is not of the form thread.choice=value,…", text));
    }
    schedule.push_back(d);
  }
  return schedule;
}

Scheduler Scheduler::replay(const Schedule& schedule) {
  Scheduler scheduler{Strategy::replay, 0};
  for (const Deviation& d : schedule) scheduler.wanted_[d.thread].push_back(d);
  for (auto& wanted : scheduler.wanted_) {
    std::sort(wanted.begin(), wanted.end(), [](const Deviation& a, const Deviation& b) { return a.at < b.at; });
  }
  return scheduler;
}

bool Scheduler::begin() {
  longest_ = std::max(longest_, step_);
  step_ = 0;
  depth_ = 0;
  spent_ = 0;
  counters_.fill(0);
  next_wanted_.fill(0);
  taken_.clear();
  switch (strategy_) {
    case Strategy::random: {
      constexpr std::array<unsigned, 4> preempt_chances{4, 16, 64, 160};
      constexpr std::array<unsigned, 4> age_chances{0, 8, 48, 144};
      preempt_chance_ = preempt_chances[random_.below(4)];
      age_chance_ = age_chances[random_.below(4)];
      return true;
    }
    case Strategy::pct: {
      std::iota(by_priority_.begin(), by_priority_.end(), std::uint8_t{0});
      for (unsigned i = kMaxThreads; i > 1; --i) std::swap(by_priority_[i - 1], by_priority_[random_.below(i)]);
      set_places();
      changes_.clear();
      for (unsigned i = 0; i < change_points_; ++i) changes_.push_back(random_.below(longest_));
      std::sort(changes_.rbegin(), changes_.rend());
      age_chance_ = random_.below(2) * 16;
      return true;
    }
    case Strategy::exhaustive:
      if (!started_) return started_ = true;
      while (!path_.empty() && path_.back().chosen + 1 >= path_.back().alternatives) path_.pop_back();
      if (path_.empty()) return false;
      ++path_.back().chosen;
      return true;
    case Strategy::replay:
      return true;
  }
  return false;
}

// The choice that a replayed schedule has there.
unsigned Scheduler::replayed(unsigned thread, std::uint32_t at, unsigned n) {
  auto& next = next_wanted_[thread];
  const auto& wanted = wanted_[thread];
  while (next < wanted.size() && wanted[next].at < at) ++next;
  return next < wanted.size() && wanted[next].at == at ? wanted[next].choice % n : 0;
}

void Scheduler::set_places() {
  for (unsigned place = 0; place < kMaxThreads; ++place) place_[by_priority_[place]] = static_cast<std::uint8_t>(place);
}

// Few of the 64 threads exist, so their places are looked up, rather than all places searched.
unsigned Scheduler::by_priority(ThreadMask enabled) {
  const auto first = [&] {
    unsigned least = kMaxThreads;
    for (ThreadMask rest = enabled; rest != 0; rest &= rest - 1) {
      least = std::min<unsigned>(least, place_[__builtin_ctzll(rest)]);
    }
    return least;
  };
  unsigned place = first();
  ++step_;
  if (!changes_.empty() && step_ >= changes_.back()) {
    changes_.pop_back();
    std::rotate(by_priority_.begin() + place, by_priority_.begin() + place + 1, by_priority_.end());
    set_places();
    place = first();
  }
  return by_priority_[place];
}

unsigned Scheduler::next_by_priority(unsigned thread, ThreadMask enabled) {
  const std::uint32_t at = counters_[thread]++;
  const unsigned next = by_priority(enabled);
  const ThreadMask turned = thread == 0 ? enabled : enabled >> thread | enabled << (kMaxThreads - thread);
  const unsigned distance = (next - thread) % kMaxThreads;
  take(thread, at, count(turned & (bit(distance) - 1)));
  return next;
}

}  // namespace weft::sim
