// Gathers and scatters that are recorded once and made for every batch: test bodies for CPU ranks and GPU ranks. `Side`
// says how either of them does it.
//
//   Moved                    a rank's memory for a move: HostMove or GpuMove
//   moved(largest)           makes one, its outputs where those of this side lie
//   record(body)             keeps the calls that `body` makes; replay() makes them again
//   run(now, used)           makes the call of `now`, which `used` has memory for, eagerly, and checks it; also for
//                            calls of other kinds than moves
//   make(group, what)        makes a move or an all-reduce in memory of its own, and checks it
//   launch(seed)             the grid of a move
//   check()                  throws the fault of replays, if there was one
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "support/move_mixes.hpp"
#include "support/turns.hpp"
#include "weft/recording.hpp"

namespace weft::test {

class HostSide {
 public:
  using Moved = HostMove;

  explicit HostSide(Communicator& communicator, std::byte* outputs = nullptr)
      : communicator_(communicator), outputs_(outputs) {}
  Communicator& communicator() const { return communicator_; }
  HostMove moved(const RankMove& largest) const { return HostMove(largest, outputs_); }
  template <class Body>
  Recording record(Body&& body) const {
    return Recording::capture(communicator_, std::forward<Body>(body));
  }
  void replay(const Recording& recording) const { recording.replay(); }
  // In memory of its own, which is no larger than it has to be.
  void run(const RankMove& now, HostMove&) const { run_on_cpu_rank(communicator_, now.move, outputs_); }
  template <class Prepared, class Used>
  void run(const Prepared& now, Used&) const {
    Used own(now);
    own.call(communicator_);
    own.check(now);
  }
  void make(const Group& group, const Move& move) const { run_on_cpu_rank(group, move, outputs_); }
  void make(const Group& group, const Prepared& prepared) const { run_on_cpu_rank(group, prepared, group.rank()); }
  Launch launch(std::uint32_t) const { return {}; }
  void check() const {}

 private:
  Communicator& communicator_;
  std::byte* outputs_;
};

// None in one rank of four, and up to twelve rows: the same on every rank.
inline std::vector<std::int32_t> any_counts(std::mt19937& random, int ranks) {
  std::vector<std::int32_t> counts;
  for (int i = 0; i < ranks; ++i) counts.push_back(static_cast<std::int32_t>(random() % 4 == 0 ? 0 : random() % 13));
  return counts;
}
// The capacity that a rank captures for: another one than its peers', and enough for the longest slots.
inline std::vector<std::int32_t> captured_counts(int ranks, int rank) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(ranks), 18 + 2 * rank);
}

// A gather, a scatter with another gather behind it, and eager calls in turns, with new counts and per_rank slots each
// time. If there are `group_ranks`, they are crossings.
struct Batches {
  Padding padding;
  std::vector<std::size_t> widths;
  std::uint32_t turns;
  int group_ranks = 0;
};
template <class Side>
void gather_and_scatter_every_batch(const Side& side, int ranks, int rank, const Batches& batches) {
  const bool crossings = batches.group_ranks != 0;
  const Kind there = crossings ? Kind::gather_sums : Kind::all_gather_v;
  const Kind back = crossings ? Kind::scatter_sums : Kind::reduce_scatter_v;
  const auto move = [&](Kind kind, std::vector<std::int32_t> counts, std::uint32_t seed) {
    return prepare(with_slots({.kind = kind,
                               .widths = kind == Kind::all_gather_v ? batches.widths : std::vector{batches.widths[0]},
                               .fill = Fill::special,
                               .counts = std::move(counts),
                               .padding = batches.padding,
                               .slot_rows = 2,
                               .group_ranks = std::max(batches.group_ranks, 1),
                               .seed = seed,
                               .launch = side.launch(seed)},
                              ranks),
                   ranks, rank);
  };
  take_turns(
      side, batches.turns, [&](const RankMove& largest) { return side.moved(largest); },
      [&](std::uint32_t kind) { return move(kind == 0 ? there : back, captured_counts(ranks, rank), 1 + kind); },
      [&](std::uint32_t kind, std::uint32_t turn) {
        std::mt19937 random(turn);
        return move(kind == 0 ? there : back, any_counts(random, ranks), turn);
      });
}

// Gathers of three widths, two of them recorded, whose outputs all begin at one place of symmetric memory.
template <class Side>
void gather_every_batch_to_one_place(const Side& side, int ranks, int rank) {
  const auto move = [&](std::vector<std::int32_t> counts, std::size_t width, std::uint32_t seed) {
    return prepare({.kind = Kind::all_gather_v,
                    .widths = {width},
                    .fill = Fill::bits,
                    .counts = std::move(counts),
                    .padding = Padding::aligned,
                    .slot_rows = 2,
                    .seed = seed,
                    .launch = side.launch(seed)},
                   ranks, rank);
  };
  constexpr std::size_t widths[] = {1024, 512, 256};
  const std::vector<std::int32_t> most = captured_counts(ranks, rank);
  const RankMove wide = move(most, widths[0], 1), narrow = move(most, widths[1], 2), least = move(most, widths[2], 3);
  typename Side::Moved first = side.moved(wide), second = side.moved(narrow), eager = side.moved(least);
  const auto of_first = side.record([&] { first.call(side.communicator()); });
  const auto of_second = side.record([&] { second.call(side.communicator()); });
  std::mt19937 random(3);
  for (std::uint32_t turn = 0; turn < 60; ++turn) {
    const std::vector<std::int32_t> counts = any_counts(random, ranks);
    const auto choice = random() % 3;
    const RankMove now = move(counts, widths[choice], turn);
    if (choice == 2) {
      side.run(now, eager);
    } else {
      typename Side::Moved& used = choice == 0 ? first : second;
      used.fill(now);
      side.replay(choice == 0 ? of_first : of_second);
      used.check(now);
    }
    side.check();
  }
}

// Batches for every way of rows: none, in one go, in chunks, by detours of two ranks. No rank has more rows than
// `busy`, and those between the first and the last no more than `few`.
template <class Side>
void move_every_way(const Side& side, int ranks, int rank, Kind kind, std::int32_t busy, std::int32_t few) {
  const auto move = [&](std::vector<std::int32_t> counts, std::uint32_t seed) {
    return prepare({.kind = kind,
                    .widths = {4096},
                    .fill = Fill::special,
                    .counts = std::move(counts),
                    .seed = seed,
                    .launch = side.launch(1)},
                   ranks, rank);
  };
  const auto size = static_cast<std::size_t>(ranks);
  const auto all = [&](std::int32_t rows) { return std::vector<std::int32_t>(size, rows); };
  std::vector<std::int32_t> most = all(few), first_busy = all(1), last_busy = all(0), single = all(1);
  most.front() = most.back() = first_busy.front() = last_busy.back() = busy;
  single[1] = first_busy[1] = 0;
  const RankMove captured = move(most, 0);
  typename Side::Moved used = side.moved(captured);
  const auto recorded = side.record([&] { used.call(side.communicator()); });
  std::uint32_t seed = 0;
  for (const auto& counts : {first_busy, all(0), last_busy, all(few), single, first_busy, single}) {
    const RankMove now = move(counts, ++seed);
    used.fill(now);
    side.replay(recorded);
    used.check(now);
    side.check();
  }
}

}  // namespace weft::test
