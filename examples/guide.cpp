// Groups, recorded calls, sleep and faults among four ranks, each a thread of this process. No GPU is needed.
// docs/guide.md shows what is between the marks.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <vector>

#include <weft/weft.hpp>

#include "local_ranks.hpp"

// begin: docs/guide.md
// Every rank calls split(). Ranks with the same color form a group; color −1 joins none.
weft::Group attention_group(weft::Communicator& world) {
  const weft::ParallelLayout layout{.tp = world.size(), .dp = 2};
  return world.split(layout.attn_tp_color(world.rank()));
}
// end: docs/guide.md

// begin: docs/guide.md
// Keeps the calls that `layer` makes on `world` or its groups. It sends nothing.
weft::Recording record(const weft::Communicator& world, const std::function<void()>& layer) {
  return weft::Recording::capture(world, layer);
}
// end: docs/guide.md

// begin: docs/guide.md
// Every rank calls it, between two batches.
void sleep_and_wake(weft::Communicator& world) {
  world.release();  // peers' windows and symmetric memory are free now
  world.acquire();
}

// Replays a recording. If its memory has moved, records the calls anew on every rank.
void replay(const weft::Communicator& world, weft::Recording& recording, const std::function<void()>& layer) {
  try {
    recording.replay();
  } catch (const weft::Error& error) {
    if (error.code() != weft::Errc::released) throw;
    recording = record(world, layer);
    recording.replay();
  }
}
// end: docs/guide.md

// begin: docs/guide.md
// After a batch: on GPUs, once its stream has been synchronised. A communicator with a fault stays dead.
bool must_make_a_new_communicator(const weft::Communicator& world) {
  const std::optional<weft::Fault> fault = world.status();
  // A stale replay ends nothing: acquire() clears it.
  if (!fault.has_value() || fault->code == weft::Errc::released) return false;
  std::fprintf(stderr, "%s: rank %d is to blame\n", fault->operation.c_str(), fault->peer);
  return true;
}
// end: docs/guide.md

bool run_rank(weft::Communicator& world) {
  const weft::Group group = attention_group(world);
  std::vector<float> x(100);
  const auto layer = [&] {
    weft::all_reduce(group, {.input = x.data(), .output = x.data(), .count = x.size(), .type = weft::DataType::f32});
  };
  weft::Recording recording = record(world, layer);

  bool right = true;
  for (int batch = 0; batch < 3; ++batch) {
    x.assign(x.size(), static_cast<float>(batch + 1));
    replay(world, recording, layer);
    const std::vector<float> sums(x.size(), static_cast<float>(2 * (batch + 1)));
    right = right && !must_make_a_new_communicator(world) && x == sums;
    sleep_and_wake(world);
  }
  return right;
}

int main() {
  constexpr int ranks = 4;
  if (!right_on_every_rank(ranks, run_rank)) return EXIT_FAILURE;
  std::printf("%d ranks in two groups: three batches are right\n", ranks);
}
