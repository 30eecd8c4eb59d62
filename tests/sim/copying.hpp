// Small programs that copy in bulk.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/team.hpp"

namespace weft::sim {

// One warp of two lanes, on one rank, with launches one behind the other. Or two ranks, each with such a warp, or with
// one thread.
enum class Shape : std::uint8_t { warp, two_warps, two_threads };

template <Shape shape, int unit = 16>
class Tiny final : public Program {
 public:
  static constexpr unsigned kLanes = shape == Shape::two_threads ? 1 : 2;
  static constexpr unsigned kRanks = shape == Shape::warp ? 1 : 2;
  using Team = SimTeam<unit, kLanes>;
  using Body = std::function<void(Tiny& self, const Team& team, unsigned rank)>;

  explicit Tiny(Body body, unsigned launches = 1, AreaKind packs = AreaKind::word)
      : machine_(args(launches)), body_(std::move(body)) {
    Memory& memory = machine_.memory();
    for (unsigned i = 0; i < 8; ++i) *pack(i) = {{16 + i, 16 + i, 16 + i, 16 + i}};
    if (packs == AreaKind::slot) std::memset(pack(0), 0xff, 128);
    memory.add_area(
        {0, 128, kRanks - 1, packs, [](std::size_t offset) { return fmt::format("pack {}", offset / 16); }});
    memory.add_area({128, 192, kRanks - 1, AreaKind::word, [](std::size_t) { return std::string("word"); }});
  }
  Pack* pack(unsigned i) { return reinterpret_cast<Pack*>(machine_.memory().data()) + i; }
  std::uint64_t* word(unsigned i) { return reinterpret_cast<std::uint64_t*>(pack(8)) + i; }
  Pack newest(unsigned i) {
    Pack pack;
    for (unsigned part = 0; part < 16; part += unit) {
      auto* const at = reinterpret_cast<std::byte*>(this->pack(i)) + part;
      std::memcpy(reinterpret_cast<std::byte*>(&pack) + part,
                  &machine_.memory().newest(machine_.memory().locate(at, unit)), unit);
    }
    return pack;
  }
  unsigned launch(unsigned rank) const { return launch_[rank]; }
  void expect(bool good, const char* what) {
    if (!good && wrong_.empty()) wrong_ = what;
  }

  void run(unsigned thread, unsigned launch) override {
    launch_[thread / kLanes] = launch;
    body_(*this,
          Team(machine_, {.block = 0, .blocks = 1, .thread = thread % kLanes, .threads = kLanes, .host_epoch = 0}),
          thread / kLanes);
  }
  std::string check() override { return std::exchange(wrong_, {}); }

  Failure once(Scheduler& scheduler, const std::optional<Stop>& stop = {}) {
    wrong_.clear();
    return machine_.run(*this, scheduler, stop);
  }
  // All schedules with so many choices that are not the ordinary one: the first failure.
  Failure explore(unsigned bound, const std::optional<Stop>& stop = {}) {
    Scheduler scheduler = Scheduler::exhaustive(bound);
    Failure failure;
    while (!failure && scheduler.begin()) failure = once(scheduler, stop);
    return failure;
  }
  // The failures of all these schedules, of which none may end well.
  std::set<std::string> failures(unsigned bound) {
    Scheduler scheduler = Scheduler::exhaustive(bound);
    std::set<std::string> all;
    while (scheduler.begin()) {
      const Failure failure = once(scheduler);
      all.insert(failure.kind == FailureKind::broken_rule ? failure.what : "no rule is broken: " + failure.what);
    }
    return all;
  }
  Machine& machine() { return machine_; }

 private:
  static Machine::Args args(unsigned launches) {
    const ThreadMask warp = bit(kLanes) - 1;
    Machine::Args args{.bytes = 192, .rank_of = {}, .streams = {}, .lanes = kLanes, .copies = true};
    for (unsigned rank = 0; rank < kRanks; ++rank) {
      args.rank_of.insert(args.rank_of.end(), kLanes, rank);
      args.streams.push_back(std::vector<Launch>(launches, {warp << rank * kLanes}));
    }
    return args;
  }

  Machine machine_;
  Body body_;
  std::array<unsigned, kRanks> launch_{};
  std::string wrong_;
};

using Warp = Tiny<Shape::warp>;
inline bool same(const Pack& a, const Pack& b) {
  return std::memcmp(&a, &b, sizeof(Pack)) == 0;
}
inline bool all_are(const Pack& pack, std::uint32_t value) {
  return same(pack, {{value, value, value, value}});
}
inline Pack staged(const auto& team, std::uint32_t place) {
  return team.template staged<Pack>(place, 0);
}

}  // namespace weft::sim
