// What `weft tune` has measured so far, in a file.
#pragma once

#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "weft/collectives.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// One thing to measure.
struct Trial {
  std::size_t bytes = 0;
  Algorithm algorithm = Algorithm::one_shot;
  Launch launch = {};  // zeros: chosen by size
  int samples = 1;
  int turn = 0;  // from 1 where two take turns

  bool operator<(const Trial& other) const { return key() < other.key(); }

 private:
  std::tuple<std::size_t, Algorithm, int, int, int, int> key() const {
    return {bytes, algorithm, launch.blocks, launch.threads, samples, turn};
  }
};

// The time of what cannot be done.
inline constexpr double kUnavailable = std::numeric_limits<double>::infinity();

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

}  // namespace weft::cli
