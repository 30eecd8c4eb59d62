// Two recordings and eager calls that take turns and find another batch each time: a test body for CPU ranks and GPU
// ranks. `Side` is HostSide (support/move_recordings.hpp) or GpuSide.
#pragma once

#include <cstdint>
#include <random>

namespace weft::test {

// There are calls of two kinds, 0 and 1. `largest(kind)`: one that is prepared for this rank's capacity.
// `made(largest)`: memory for it. `batch(kind, turn)`: any that fits on every rank. The second recording makes a call
// of both kinds.
template <class Side, class Made, class Largest, class Batch>
void take_turns(const Side& side, std::uint32_t turns, Made made, Largest largest, Batch batch) {
  const auto one = largest(0), other = largest(1);
  auto alone = made(one), before = made(other), behind = made(one);
  const auto first = side.record([&] { alone.call(side.communicator()); });
  const auto second = side.record([&] {
    before.call(side.communicator());
    behind.call(side.communicator());
  });
  std::mt19937 random(3);
  for (std::uint32_t turn = 0; turn < turns; ++turn) {
    const auto now = batch(0, turn), back = batch(1, turn);
    const auto choice = random() % 4;
    if (choice == 0) {
      alone.fill(now);
      side.replay(first);
      alone.check(now);
    } else if (choice == 1) {
      before.fill(back);
      behind.fill(now);
      side.replay(second);
      before.check(back);
      behind.check(now);
    } else if (choice == 2) {
      side.run(now, behind);
    } else {
      side.run(back, before);
    }
    side.check();
  }
}

}  // namespace weft::test
