// How `weft tune` searches, and the steps that come of it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tune/tune_state.hpp"
#include "tuning/tuning.hpp"
#include "weft/collectives.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// What one size is searched in.
struct TuneSpace {
  std::vector<Algorithm> algorithms;
  std::vector<int> blocks, threads;  // tried with each other; empty: grids are not searched
  int samples = 7;
};
// What serves a size.
struct TunedSize {
  std::size_t bytes = 0;
  Algorithm algorithm = Algorithm::one_shot;
  Launch launch = {};
  // Medians of the same turns with the fastest and the slowest, where two took turns; else both are the one time of
  // what serves the size as before.
  Figure time = {}, before = {};
  bool as_before = false;
};

// What is tuned: a size, what serves it until now, and what serves the next smaller size from now on, or null.
struct TuneQuery {
  std::size_t bytes = 0;
  Algorithm algorithm = Algorithm::one_shot;
  Launch launch = {};
  const TunedSize* previous = nullptr;
};
// The fastest of the space and what serves the size until now (Algorithm::automatic) are measured again in turns. The
// latter stays unless it is slower by more than those turns differ from each other.
TunedSize tune_size(const TuneQuery& query, const TuneSpace& space, const std::function<double(const Trial&)>& time);

// `sizes` ascending. Between two sizes that are served differently a round number near the middle decides. What is
// smaller than all of them is served as `base` has it from the next power of two down, and what is larger from the next
// byte on; where that is the same algorithm, with no grid of its own, as the outermost size is.
std::vector<detail::TuningStep> steps_of(const std::vector<TunedSize>& sizes, std::span<const detail::TuningStep> base);
// Throws where such a table may have more steps than a table can (Errc::invalid_argument). `sizes` ascending.
void check_steps(std::span<const std::size_t> sizes, std::span<const detail::TuningStep> base);

}  // namespace weft::cli
