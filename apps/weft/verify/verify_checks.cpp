#include "verify/verify_checks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/sizes.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {
namespace {

// On H200s a pair's two-shot of 16 MB reaches 69 % of its links' rating, and all ranks at once 70 %. 8 KB take 2.2 µs
// (docs/benchmarks.md). A much worse figure has a cause that is worth finding.
constexpr double kLeastShare = 0.55;
constexpr double kMostLatency = 5;  // µs
// Pairs with the same links differ by 1 %.
constexpr double kLeastOfMedian = 0.85;
constexpr double kMostOfMedian = 1.5;
constexpr std::size_t kEnoughPairs = 3;  // fewer pairs have no meaningful median

bool is_known(const PairFigure& pair) {
  return pair.link_rate > 0;
}

constexpr const char* kSlowPair =
    "Look for other programs on these two GPUs (nvidia-smi); for links that are down or count errors (nvidia-smi "
    "nvlink --status, --errorcounters); and for Xid messages (dmesg); then run this again.";

}  // namespace

nlohmann::json to_json(const Check& check) {
  nlohmann::json out = {{"what", check.what},
                        {"who", check.who},
                        {"ranks", check.ranks},
                        {"bytes", check.bytes},
                        {"verdict", check.passed ? "PASS" : "FAIL"}};
  if (check.passed) return out;
  out.update({{"expected", check.expected}, {"got", check.got}, {"advice", check.advice}});
  return out;
}

double PairFigure::least_gb_per_s() const {
  return kLeastShare * link_rate;
}
double PairFigure::most_us() const {
  return link_rate > 0 ? kMostLatency : 0;
}

PairFigure figure_of_pair(const Result& small, const Result& large) {
  return {.latency_bytes = small.point.bytes(),
          .bandwidth_bytes = large.point.bytes(),
          .us = small.us,
          .gb_per_s = large.gb_per_s(),
          .small = figure_of(small),
          .large = figure_of(large)};
}

PairFigure best_of(const PairFigure& one, const PairFigure& other) {
  PairFigure best = one;
  if (other.us < one.us) {
    best.us = other.us;
    best.small = other.small;
  }
  if (other.gb_per_s > one.gb_per_s) {
    best.gb_per_s = other.gb_per_s;
    best.large = other.large;
  }
  return best;
}

std::vector<Check> judge_pairs(const std::vector<PairFigure>& figures) {
  std::vector<Check> checks;
  for (const PairFigure& pair : figures) {
    if (!is_known(pair)) continue;
    std::vector<double> rates, times;
    for (const PairFigure& other : figures) {
      if (other.link_rate != pair.link_rate) continue;
      rates.push_back(other.gb_per_s);
      times.push_back(other.us);
    }
    const bool compared = rates.size() >= kEnoughPairs;
    const std::string who = fmt::format("ranks {} ↔ {}", pair.a, pair.b);
    Check rate{.what = "bandwidth", .who = who, .ranks = {pair.a, pair.b}, .bytes = pair.bandwidth_bytes};
    if (pair.gb_per_s < pair.least_gb_per_s()) {
      rate.expected = fmt::format("{:.0f} GB/s each way or more ({:.0f} % of its NVLinks' {:.0f})",
                                  pair.least_gb_per_s(), 100 * kLeastShare, pair.link_rate);
    } else if (compared && pair.gb_per_s < kLeastOfMedian * median(rates)) {
      rate.expected = fmt::format("{:.0f} GB/s each way or more ({:.0f} % of the pairs' median)",
                                  kLeastOfMedian * median(rates), 100 * kLeastOfMedian);
    }
    rate.got = fmt::format("{:.0f} GB/s", pair.gb_per_s);
    Check time{.what = "latency", .who = who, .ranks = {pair.a, pair.b}, .bytes = pair.latency_bytes};
    if (pair.us > pair.most_us()) {
      time.expected = fmt::format("{:.1f} µs or less over NVLink", pair.most_us());
    } else if (compared && pair.us > kMostOfMedian * median(times)) {
      time.expected =
          fmt::format("{:.2f} µs or less ({:.1f} × the pairs' median)", kMostOfMedian * median(times), kMostOfMedian);
    }
    time.got = fmt::format("{:.2f} µs", pair.us);
    for (Check* check : {&rate, &time}) {
      if (check == &rate && pair.bandwidth_bytes < kLeastJudgedBytes) continue;
      check->passed = check->expected.empty();
      check->advice = kSlowPair;
      checks.push_back(*check);
    }
  }
  return checks;
}

std::string why_not_judged(const std::vector<PairFigure>& figures) {
  if (std::ranges::none_of(figures, is_known))
    return "Times are shown but not judged: the rate of these ranks' links is unknown";
  std::vector<std::string> pairs, reasons;
  for (const PairFigure& pair : figures)
    if (!is_known(pair)) pairs.push_back(fmt::format("{} ↔ {}", pair.a, pair.b));
  if (!pairs.empty())
    reasons.push_back(fmt::format("Times of ranks {} are shown but not judged: the rate of their links is unknown",
                                  fmt::join(pairs, ", ")));
  if (std::ranges::any_of(figures, [](const PairFigure& p) { return p.bandwidth_bytes < kLeastJudgedBytes; }))
    reasons.push_back(
        fmt::format("Bandwidths are shown but not judged: their messages are shorter than {} (--most-bytes)",
                    format_bytes(kLeastJudgedBytes)));
  return fmt::format("{}", fmt::join(reasons, ". "));
}

double slowest_link(int ranks, const std::function<double(int, int)>& rate) {
  double slowest = 0;
  for (int a = 0; a < ranks; ++a) {
    for (int b = 0; b < ranks; ++b) {
      if (a == b) continue;
      const double one = rate(a, b);
      if (one <= 0) return 0;
      slowest = slowest == 0 ? one : std::min(slowest, one);
    }
  }
  return slowest;
}

Check judge_world(int ranks, std::size_t bytes, double us, double link_rate) {
  Check check{.what = "bandwidth, all at once", .who = "all ranks", .bytes = bytes};
  const double sent = 2.0 * (ranks - 1) / ranks * static_cast<double>(bytes);
  const double rate = us > 0 ? sent / us / 1e3 : 0;
  check.passed = rate >= kLeastShare * link_rate;
  check.expected = fmt::format("{:.0f} GB/s out of every GPU or more ({:.0f} % of its NVLinks' {:.0f})",
                               kLeastShare * link_rate, 100 * kLeastShare, link_rate);
  check.got = fmt::format("{:.0f} GB/s", rate);
  check.advice =
      "If every pair alone is fast, the switches between them are not: look at the fabric manager's log and at other "
      "programs on these GPUs; then run this again.";
  return check;
}

std::vector<Check> judge_seats(const Machine& machine, const Seats& seats) {
  std::vector<Check> checks;
  if (seats.device == Device::cpu) return checks;
  // A build without CUDA reports that elsewhere. `machine.gpus` includes GPUs that are too old.
  if (machine.gpus_present > 0 && machine.gpus.empty() && !machine.cuda_runtime.empty())
    checks.push_back({.what = "GPUs",
                      .who = "this machine",
                      .passed = false,
                      .expected = fmt::format("{} GPUs that programs can use", machine.gpus_present),
                      .got = machine.cuda_problem,
                      .advice = "Look at nvidia-smi, dmesg (Xid) and the fabric manager, and at CUDA_VISIBLE_DEVICES; "
                                "--device cpu checks CPU ranks alone."});
  if (seats.gpus > 0 && seats.ranks > seats.gpus)
    checks.push_back({.what = "GPUs",
                      .who = "this machine",
                      .passed = false,
                      .expected = fmt::format("{} GPUs, one for each rank", seats.ranks),
                      .got = fmt::format("{}, which ranks share, so that no link is judged", seats.gpus),
                      .advice = "If a GPU is missing, nvidia-smi -L and dmesg (Xid 79: fallen off the bus) say which; "
                                "without --ranks there are as many ranks as GPUs."});
  return checks;
}

std::vector<Check> judge_machine(const Machine& machine, const Seats& seats) {
  std::vector<Check> checks = judge_seats(machine, seats);
  if (seats.device == Device::cpu) return checks;
  for (Check& check : judge_links(machine)) checks.push_back(std::move(check));
  return checks;
}

std::string why_not_all_gpus(const Machine& machine, const Seats& seats) {
  if (seats.device == Device::cpu) return "";
  if (seats.gpus == 0) return fmt::format("GPU ranks were not checked: {}", machine.cuda_problem);
  if (seats.gpus >= machine.gpus_present) return "";
  return fmt::format(
      "{} of {} GPUs were checked: the others are hidden (CUDA_VISIBLE_DEVICES), too old, or do not answer", seats.gpus,
      machine.gpus_present);
}

std::vector<Check> judge_links(const Machine& machine) {
  std::vector<Check> checks;
  if (machine.gpus.size() < 2) return checks;
  for (std::size_t g = 0; g < machine.gpus.size(); ++g) {
    const NvLinks& links = machine.gpus[g].links;
    checks.push_back({.what = "NVLinks",
                      .who = fmt::format("GPU {}", g),
                      .passed = links.up == links.present,
                      .expected = fmt::format("{} links up", links.present),
                      .got = fmt::format("{}", links.up),
                      .advice = fmt::format("nvidia-smi nvlink --status -i {} shows which; dmesg and the fabric "
                                            "manager's log why. The GPU or its board may have to be replaced.",
                                            g)});
    for (std::size_t peer = g + 1; peer < machine.gpus[g].reach.size(); ++peer)
      checks.push_back({.what = "peer access",
                        .who = fmt::format("GPUs {} ↔ {}", g, peer),
                        .passed = machine.gpus[g].reach[peer] != "none",
                        .expected = "memory of the other GPU can be reached",
                        .got = "it cannot",
                        .advice = "nvidia-smi topo -p2p w shows why; NVLink needs the fabric manager to run."});
  }
  return checks;
}

}  // namespace weft::cli
