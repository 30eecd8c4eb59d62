// How `weft tune` searches, what it keeps meanwhile, and the steps that come of it.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "core/tuning.hpp"
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

// What was measured, in a file, so that a run which was ended goes on where it was. `identity` says on what; a file of
// another machine, build or number of ranks is refused (Errc::invalid_argument).
class TuneState {
 public:
  // `text`: of a file that was found, or empty.
  TuneState(std::string file, nlohmann::json identity, const std::string& text);

  // µs; measures what is not there yet.
  double time(const Trial& trial, const std::function<double(const Trial&)>& measure);
  std::size_t known() const { return known_; }  // trials that the file had
  void save() const;                            // all or nothing
  void remove() const;

 private:
  std::string file_;
  nlohmann::json identity_;
  std::map<Trial, double> times_;
  std::size_t known_ = 0;
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
// `previous`: of the next smaller size, or null. What is no better by more than noise is left as it was.
TunedSize tune_size(std::size_t bytes, const TuneSpace& space, const TunedSize* previous,
                    const std::function<double(const Trial&)>& time);

// `sizes` ascending. Between two sizes that are served differently the middle decides.
std::vector<detail::TuningStep> steps_of(const std::vector<TunedSize>& sizes);

}  // namespace weft::cli
