// The file of measurements that `weft tune` continues from.
#pragma once

#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "tuning/tuning.hpp"
#include "weft/collectives.hpp"
#include "weft/moe_exchange.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// One measurement.
struct Trial {
  std::size_t bytes = 0;
  detail::TunedAlgorithm algorithm = Algorithm::one_shot;
  Launch launch = {};  // zeros: chosen by size
  int samples = 1;
  int turn = 0;  // from 1 if two candidates take turns
  detail::TunedOperation operation = detail::TunedOperation::all_reduce;
  std::string way = {};               // of steps by tokens, which `bytes` are then; empty: the present choice
  RowPath path = RowPath::automatic;  // of layers: the way of their rows

  bool operator<(const Trial& other) const { return key() < other.key(); }

 private:
  using Key =
      std::tuple<detail::TunedOperation, std::size_t, detail::TunedAlgorithm, int, int, int, int, RowPath, std::string>;
  Key key() const { return {operation, bytes, algorithm, launch.blocks, launch.threads, samples, turn, path, way}; }
};

// The time of a trial that cannot be done.
inline constexpr double kUnavailable = std::numeric_limits<double>::infinity();

std::string by(RowPath path);  // " by ring"; nothing for automatic
std::string in_words(const Trial& trial);

// Keeps measurements in a file, so that an interrupted run can continue: a line with the identity of the run, and one
// line per trial. Throws Errc::invalid_argument for a file of another machine, build or number of ranks. Only right
// results are kept: a continued run measures the others again.
class TuneState {
 public:
  struct Args {
    std::string file = {};
    nlohmann::json identity = {};
    std::string text = {};  // of an existing file, or empty; an unfinished last line is ignored
    bool writes = true;     // false: another process of the job writes
  };
  explicit TuneState(Args args);

  // µs. Measures and keeps a trial that the file does not have. Returns kUnavailable for an unavailable result, and
  // throws for a wrong one.
  double time(const Trial& trial, const std::function<Result(const Trial&)>& measure);
  std::size_t known() const { return known_; }  // trials that the file had at the start
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
