// What `weft verify` finds, and when a link is slower than it should be.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/machine.hpp"
#include "weft/types.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// Something that was checked. The last three are of a failed one.
struct Check {
  std::string what = {};        // "all_reduce sum bf16 two-shot"
  std::string who = {};         // "ranks 0 ↔ 3", "GPU 2"
  std::vector<int> ranks = {};  // a pair, those whose results are wrong; empty: all, or none
  std::size_t bytes = 0;        // of the message, where there is one
  bool passed = true;
  std::string expected = {}, got = {};
  std::string advice = {};  // what to do
};

nlohmann::json to_json(const Check& check);

// One pair's all-reduces. Links that nothing is known of are not judged.
struct PairFigure {
  int a = 0, b = 0;
  std::size_t latency_bytes = 0, bandwidth_bytes = 0;
  double us = 0;                  // of the small one
  double gb_per_s = 0;            // each way, of the large one
  Figure small = {}, large = {};  // their times with the spread
  double link_rate = 0;           // GB/s each way, of the links between the two; 0: unknown

  double least_gb_per_s() const;  // 0: not judged
  double most_us() const;         // likewise
};
// The figures of a message of `bytes` that took `us`.
inline double gb_per_s(std::size_t bytes, double us) {
  return us > 0 ? static_cast<double>(bytes) / us / 1e3 : 0;
}

// What all-reduces of a small message and of a large one say of the two ranks that made them.
PairFigure figure_of_pair(const Result& small, const Result& large);

// Bandwidths of shorter messages say more of latencies than of links.
inline constexpr std::size_t kLeastJudgedBytes = 16 << 20;

// Two checks for each pair whose links are known: against what they should give, and against the other pairs with as
// many links. Bandwidths of short messages are not judged.
std::vector<Check> judge_pairs(const std::vector<PairFigure>& figures);

// What figures of pairs are not judged, and why; empty where all are.
std::string why_not_judged(const std::vector<PairFigure>& figures);

// The slowest of the links between any two ranks, by their rate; 0 where one is not known.
double slowest_link(int ranks, const std::function<double(int, int)>& rate);

// All ranks at once: an all-reduce in two hops, whose bytes leave over links of this rate.
Check judge_world(int ranks, std::size_t bytes, double us, double link_rate);

// Which ranks were asked for, and how many GPUs they may have.
struct Seats {
  Device device = Device::automatic;
  int ranks = 0;  // of this process; 0: one for each GPU
  int gpus = 0;   // usable
};
// GPUs that are there and cannot be used, and ranks that have to share some.
std::vector<Check> judge_seats(const Machine& machine, const Seats& seats);
// That, and judge_links(), where ranks may be GPUs.
std::vector<Check> judge_machine(const Machine& machine, const Seats& seats);
// Why not all GPUs are looked at; empty where they are, or none was asked for.
std::string why_not_all_gpus(const Machine& machine, const Seats& seats);

// Links that are down, and GPUs that do not reach each other. Nothing is said of a machine with one GPU.
std::vector<Check> judge_links(const Machine& machine);

}  // namespace weft::cli
