// The findings of `weft verify`, and its rules for a link that is too slow.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/machine.hpp"
#include "weft/types.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// One check. Only a failed one has the last three members.
struct Check {
  std::string what = {};        // "all_reduce sum bf16 two-shot"
  std::string who = {};         // "ranks 0 ↔ 3", "GPU 2"
  std::vector<int> ranks = {};  // a pair, or the ranks with wrong results; empty: all, or none
  std::size_t bytes = 0;        // of the message, if there is one
  bool passed = true;
  std::string expected = {}, got = {};
  std::string advice = {};  // advice to the operator
};

nlohmann::json to_json(const Check& check);

// One pair's all-reduces. A pair whose links are unknown is not judged.
struct PairFigure {
  int a = 0, b = 0;
  std::size_t latency_bytes = 0, bandwidth_bytes = 0;
  double us = 0;                  // of the small message
  double gb_per_s = 0;            // each way, of the large message
  Figure small = {}, large = {};  // times with their spread
  double link_rate = 0;           // GB/s each way, of the links between the two; 0: unknown

  double least_gb_per_s() const;  // 0: not judged
  double most_us() const;         // 0: not judged
};
// The figures of a message of `bytes` that took `us`.
inline double gb_per_s(std::size_t bytes, double us) {
  return us > 0 ? static_cast<double>(bytes) / us / 1e3 : 0;
}

// The figures of two ranks, from their all-reduces of a small and a large message.
PairFigure figure_of_pair(const Result& small, const Result& large);

// Two measurements of one pair: the better time and the better bandwidth.
PairFigure best_of(const PairFigure& one, const PairFigure& other);

// Bandwidths of shorter messages depend on latencies more than on links.
inline constexpr std::size_t kLeastJudgedBytes = 16 << 20;

// Two checks for each pair whose links are known: against the links' rating, and against the other pairs with as many
// links. Bandwidths of short messages are not judged.
std::vector<Check> judge_pairs(const std::vector<PairFigure>& figures);

// The figures that are not judged, and the reason; empty if all are.
std::string why_not_judged(const std::vector<PairFigure>& figures);

// The lowest rate of the links between any two ranks; 0 if one is unknown.
double slowest_link(int ranks, const std::function<double(int, int)>& rate);

// Judges an all-reduce of all ranks in two hops over links of this rate.
Check judge_world(int ranks, std::size_t bytes, double us, double link_rate);

// The ranks that were asked for, and the GPUs that they may have.
struct Seats {
  Device device = Device::automatic;
  int ranks = 0;  // of this process; 0: one for each GPU
  int gpus = 0;   // usable
};
// Finds GPUs that are present but unusable, and ranks that must share a GPU.
std::vector<Check> judge_seats(const Machine& machine, const Seats& seats);
// judge_seats(), and judge_links() if ranks may be GPUs.
std::vector<Check> judge_machine(const Machine& machine, const Seats& seats);
// The reason why not all GPUs are checked; empty if all are, or if no GPU was asked for.
std::string why_not_all_gpus(const Machine& machine, const Seats& seats);

// Finds links that are down, and GPUs that cannot reach each other. A machine with one GPU gives no checks.
std::vector<Check> judge_links(const Machine& machine);

}  // namespace weft::cli
