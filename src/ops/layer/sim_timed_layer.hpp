// A layer of experts on a machine with clocks, in the orders of ops/layer/layer_order.hpp. Ideals for its time follow
// from the times of its parts alone.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/moe/sim_timed_exchange.hpp"

namespace weft::sim {

struct TimedLayer {
  TimedTraffic traffic;
  double experts_ns;             // of all experts, on all processors
  Division division;             // a rank's experts of each round
  double processors;             // of dispatch, and of combine, in rounds; the experts have the others …
  std::vector<double> round_ns;  // … and take so long in each round
};

// In nanoseconds, until the slowest rank has ended.
struct TimedRun {
  double ns;
  std::vector<std::vector<std::uint16_t>> outputs;  // by rank
};
struct TimedParts {
  double dispatch, experts, combine;
};

// One part after the other, each on all processors.
TimedRun run_plain(const TimedLayer& layer);
TimedParts parts_of_plain(const TimedLayer& layer);
double ideal(const TimedParts& parts);

TimedRun run_rounds(const TimedLayer& layer);
// All on as many processors as in rounds.
struct TimedRoundParts {
  TimedParts all;
  double first_dispatch, last_combine;  // of the first round's rows, and of the last one's
};
TimedRoundParts parts_of_rounds(const TimedLayer& layer);
double ideal(const TimedRoundParts& parts);

}  // namespace weft::sim
