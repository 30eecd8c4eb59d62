#include "bench/layer_ways.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "bench/bench_options.hpp"
#include "common/sizes.hpp"
#include "ops/moe/exchange.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

std::vector<RowPath> paths_of(const LayerOptions& options) {
  return options.path == RowPath::automatic ? std::vector{RowPath::slots, RowPath::ring} : std::vector{options.path};
}
// Parts on all processors are in every ideal.
std::vector<int> processors_of(const LayerOptions& options) {
  std::vector<int> all{0};
  for (const std::int64_t number : parse_counts(options.sms, "--sms", kMostBlocks, 0)) {
    check_cluster("--sms", number, options.cluster);
    if (number != 0) all.push_back(static_cast<int>(number));
  }
  return all;
}

void check_experts(const std::vector<LayerRounds>& divisions, std::uint32_t local) {
  for (const LayerRounds& division : divisions) {
    const std::uint32_t experts = std::accumulate(division.experts.begin(), division.experts.end(), 0u);
    if (local != 0 && !division.experts.empty() && experts != local)
      throw Error(Errc::invalid_argument, fmt::format("--rounds: {} are {} experts, and a rank has {}",
                                                      fmt::join(division.experts, ":"), experts, local));
  }
}

class Plan {
 public:
  Plan(const LayerOptions& options, std::uint32_t local)
      : options_(options), local_(local), divisions_(divisions_of(options.rounds)) {
    check_experts(divisions_, local);
  }

  std::vector<TimedLayer> all() {
    for (const RowPath by : paths_) add(TimedPart::layer, {.path = by});
    for (const RowPath by : paths_)
      if (options_.shared) add(TimedPart::layer, {.path = by, .shared_first = true});
    for (const RowPath by : paths_) add(TimedPart::layer, {.schedule = LayerSchedule::automatic, .path = by});
    for (const int number : processors_) {
      for (const RowPath by : paths_) {
        for (const TimedPart part : {TimedPart::exchange, TimedPart::dispatch, TimedPart::combine})
          add(part, {.sms = number, .path = by});
      }
    }
    add(TimedPart::experts, {});
    add(TimedPart::up, {});
    if (options_.shared) add(TimedPart::shared, {});
    add(TimedPart::sum, {});
    for (const std::int64_t number : parse_counts(options_.sms, "--sms", kMostBlocks, 0)) {
      for (const LayerRounds& division : divisions_) add_layers(division, static_cast<int>(number));
    }
    for (const int number : processors_) {
      for (const LayerRounds& division : divisions_) {
        if (division.rounds > 1) add_ends(division, number);
      }
    }
    if (local_ > 1) {
      for (const RowPath by : paths_) add(TimedPart::last_combine, last_expert(local_, by));
    }
    return std::move(all_);
  }

 private:
  void add(TimedPart part, const LayerWay& way) {
    const auto same = [&](const TimedLayer& one) { return one.part == part && one.way == way; };
    if (std::ranges::none_of(all_, same)) all_.push_back({part, way});
  }
  void add_layers(const LayerRounds& division, int number) {
    const auto way_of = [&](LayerSchedule schedule, RowPath by) {
      return LayerWay{
          .schedule = schedule, .rounds = division.rounds, .sms = number, .path = by, .experts = division.experts};
    };
    for (const RowPath by : paths_) {
      LayerWay way = way_of(LayerSchedule::rounds, by);
      add(TimedPart::layer, way);
      if (division.rounds > 1 && !options_.no_peo) {
        for (const std::int64_t method : methods_) {
          way.peo = static_cast<std::uint32_t>(method);
          add(TimedPart::layer, way);
        }
        add(TimedPart::dispatch_rounds, of_any_method(way));
        add(TimedPart::combine_rounds, of_any_method(way));
        add(TimedPart::experts, way_of_experts(way));
      }
      add(TimedPart::layer, way_of(LayerSchedule::combine_rounds, by));
    }
    // Experts send nothing.
    add(TimedPart::experts, way_of_experts(way_of(LayerSchedule::rounds, RowPath::slots)));
    add(TimedPart::down, way_of(LayerSchedule::combine_rounds, RowPath::slots));
  }
  void add_ends(const LayerRounds& division, int number) {
    for (const RowPath by : paths_) {
      for (const TimedPart part : {TimedPart::first_dispatch, TimedPart::last_combine})
        add(part, {.schedule = LayerSchedule::rounds,
                   .rounds = division.rounds,
                   .sms = number,
                   .path = by,
                   .experts = division.experts});
    }
  }

  const LayerOptions& options_;
  std::uint32_t local_;
  std::vector<LayerRounds> divisions_;
  std::vector<RowPath> paths_ = paths_of(options_);
  std::vector<int> processors_ = processors_of(options_);
  std::vector<std::int64_t> methods_ = parse_counts(options_.peo_methods, "--peo-methods", PeoLayer::kMethods, 1);
  std::vector<TimedLayer> all_;
};

}  // namespace

std::vector<LayerRounds> divisions_of(const std::string& text) {
  std::vector<LayerRounds> all;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string one = text.substr(begin, end - begin);
    begin = end + 1;
    if (one.find(':') == std::string::npos) {
      all.push_back(
          {.rounds = static_cast<std::uint32_t>(parse_counts(one, "--rounds", detail::kMostRounds, 1).front())});
      continue;
    }
    std::ranges::replace(one, ':', ',');
    LayerRounds division;
    for (const std::int64_t experts : parse_counts(one, "--rounds", 1 << 16, 0))
      division.experts.push_back(static_cast<std::uint32_t>(experts));
    division.rounds = static_cast<std::uint32_t>(division.experts.size());
    if (division.rounds > detail::kMostRounds)
      throw Error(Errc::invalid_argument,
                  fmt::format("--rounds: {} rounds; there are {} at most", division.rounds, detail::kMostRounds));
    all.push_back(std::move(division));
  }
  return all;
}

std::vector<LayerRounds> peo_divisions(const LayerOptions& options) {
  std::vector<LayerRounds> all;
  for (const LayerRounds& division : divisions_of(options.rounds)) {
    if (division.rounds > 1 && !options.no_peo) all.push_back(division);
  }
  return all;
}

std::vector<TimedLayer> timed_layers(const LayerOptions& options, std::uint32_t local) {
  return Plan(options, local).all();
}

}  // namespace weft::cli
