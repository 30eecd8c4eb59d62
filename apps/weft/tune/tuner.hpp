// The search of `weft tune`, and the table steps that it gives.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tune/tune_state.hpp"
#include "tuning/tuning.hpp"
#include "weft/collectives.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// The space of a size's search.
struct TuneSpace {
  std::vector<detail::TunedAlgorithm> algorithms;
  std::vector<int> blocks, threads;  // all combinations are tried; empty: grids are not searched
  int samples = 7;
};
// The figure of one time.
inline Figure one_time(double us) {
  return {.us = us, .least = us, .most = us, .samples = 1};
}

// The fastest grid of a space, if it beats `us`, the time of the grid chosen by size, and beats it again.
struct FasterGrid {
  Launch launch;
  double us = 0;
};
std::optional<FasterGrid> faster_grid(const TuneSpace& space, double us,
                                      const std::function<double(const Launch&, int samples)>& time);
inline constexpr double kWorthAGrid = 1.25;  // an algorithm may be this much slower and its grids are still tried
inline constexpr int kConfirm = 3;           // this many times as many samples decide

// The choice for a size.
struct TunedSize {
  std::size_t bytes = 0;
  detail::TunedAlgorithm algorithm = Algorithm::one_shot;
  Launch launch = {};
  // If two candidates took turns: the median, fastest and slowest turn of each. Otherwise both are the one time of the
  // present choice.
  Figure time = {}, before = {};
  bool as_before = false;
};

// The query of a search: a size, its present choice, and the new choice of the next smaller size, or null.
struct TuneQuery {
  std::size_t bytes = 0;
  detail::TunedAlgorithm algorithm = Algorithm::one_shot;
  Launch launch = {};
  const TunedSize* previous = nullptr;
};
// Measures the fastest of the space and the present choice (Algorithm::automatic) again in turns. The present choice
// stays unless it is slower by more than the spread of the turns.
TunedSize tune_size(const TuneQuery& query, const TuneSpace& space, const std::function<double(const Trial&)>& time);

// Two candidates that have taken turns. The first of each turn alternates, so that other load on the machine affects
// both. Figures are of the turns.
struct Contest {
  Figure challenger, present;
  bool won = false;  // by more than the spread of the turns
};
// `time(of_challenger, samples, turn)`; turns count from 1, and have three times as many samples together.
Contest take_turns(int samples, const std::function<double(bool, int, int)>& time);

// A round number near the middle between two measured sizes.
std::uint64_t boundary(std::uint64_t below, std::uint64_t above);

// `sizes` must ascend. If two neighbours differ, a round number near their middle is the boundary. Sizes below the
// smallest keep the choices of `base`, from the next power of two downwards. Sizes above the largest keep them from the
// next byte on. If the outermost choice is the same algorithm with no grid of its own, it extends over them instead.
std::vector<detail::TuningStep> steps_of(const std::vector<TunedSize>& sizes, std::span<const detail::TuningStep> base);
// The same for moves, none of whose ways may come back for larger messages. If measured sizes disagree, ways change
// there where the fewest lose the one that they chose. Unmeasured sizes yield first.
std::vector<detail::TuningStep> move_steps_of(std::vector<TunedSize> sizes, std::span<const detail::TuningStep> base);
// Throws Errc::invalid_argument if the table could exceed the most steps of a table. `sizes` must ascend.
void check_steps(std::span<const std::size_t> sizes, std::span<const detail::TuningStep> base);

}  // namespace weft::cli
