// How `weft tune` searches, what it keeps meanwhile, and the steps that come of it.
#pragma once

#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/tuning.hpp"
#include "measure.hpp"
#include "weft/collectives.hpp"

namespace weft::cli {

// One thing to measure.
struct Trial {
  std::size_t bytes = 0;
  Algorithm algorithm = Algorithm::one_shot;
  Launch launch = {};  // zeros: chosen by size
  int samples = 1;

  bool operator<(const Trial& other) const { return key() < other.key(); }

 private:
  std::tuple<std::size_t, Algorithm, int, int, int> key() const {
    return {bytes, algorithm, launch.blocks, launch.threads, samples};
  }
};

// What was measured, in a file, so that a run which was ended goes on where it was: a line that says on what, and one
// for each trial. A file of another machine, build or number of ranks is refused (Errc::invalid_argument). Only right
// results are kept: whoever goes on measures the others again.
class TuneState {
 public:
  struct Args {
    std::string file = {};
    nlohmann::json identity = {};
    std::string text = {};  // of a file that was found, or empty; a line that was not finished does not count
    bool writes = true;     // false: another process of the job does
  };
  explicit TuneState(Args args);

  // µs; measures what is not there yet, and keeps it. kUnavailable where the result says so, an exception where it is
  // wrong.
  double time(const Trial& trial, const std::function<Result(const Trial&)>& measure);
  std::size_t known() const { return known_; }  // trials that the file had
  void remove();

 private:
  void read();
  void keep(const Trial& trial, double us);

  Args args_;
  std::map<Trial, double> times_;
  std::size_t known_ = 0;
  std::ofstream out_;
};

// What one size is searched in.
struct TuneSpace {
  std::vector<Algorithm> algorithms;
  std::vector<int> blocks, threads;  // tried with each other; empty: grids are not searched
  int samples = 7;
};
// What serves a size, and the time of the automatic choice until now.
struct TunedSize {
  std::size_t bytes = 0;
  Algorithm algorithm = Algorithm::one_shot;
  Launch launch = {};
  double us = 0, before_us = 0;
};
inline constexpr double kUnavailable = std::numeric_limits<double>::infinity();
// `previous`: of the next smaller size, or null. What is no better by more than noise is left as it was.
TunedSize tune_size(std::size_t bytes, const TuneSpace& space, const TunedSize* previous,
                    const std::function<double(const Trial&)>& time);

// `sizes` ascending. Between two sizes that are served differently the middle decides. What is smaller than all of
// them, or larger, is served as `base` has it; where that is the same algorithm, with no grid of its own, as the
// outermost size is.
std::vector<detail::TuningStep> steps_of(const std::vector<TunedSize>& sizes, std::span<const detail::TuningStep> base);
// Throws where such a table may have more steps than a table can (Errc::invalid_argument). `sizes` ascending.
void check_steps(std::span<const std::size_t> sizes, std::span<const detail::TuningStep> base);

}  // namespace weft::cli
