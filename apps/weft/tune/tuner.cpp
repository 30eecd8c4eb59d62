#include "tune/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "common/sizes.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

constexpr double kGridGain = 1.03;       // gain of a grid that replaces the grid chosen by size
constexpr double kAlgorithmGain = 1.02;  // … of an algorithm that replaces the next smaller size's
constexpr double kTurnsGain = 1.02;      // … of a choice that replaces the present one
constexpr int kTurns = 7;                // turns that split these samples if two candidates alternate

detail::TuningStep ending(detail::TuningStep step, std::uint64_t up_to) {
  step.up_to = up_to;
  return step;
}

using Time = std::function<double(const Trial&)>;

// Puts the fastest grid into `tuned` if it beats the grid chosen by size, which `tuned` has.
void try_grids(TunedSize& tuned, const TuneSpace& space, const Time& time) {
  const auto faster = faster_grid(space, tuned.time.us, [&](const Launch& launch, int samples) {
    return time({tuned.bytes, tuned.algorithm, launch, samples});
  });
  if (!faster) return;
  tuned.launch = faster->launch;
  tuned.time = one_time(faster->us);
}

// Each algorithm that serves the size, with its best grid.
std::vector<TunedSize> best_of_each(std::size_t bytes, const TuneSpace& space, const Time& time) {
  std::vector<TunedSize> best;
  double least = kUnavailable;
  for (const auto algorithm : space.algorithms) {
    const double us = time({.bytes = bytes, .algorithm = algorithm, .samples = kConfirm * space.samples});
    if (us == kUnavailable) continue;
    best.push_back({.bytes = bytes, .algorithm = algorithm, .time = one_time(us)});
    least = std::min(least, us);
  }
  for (TunedSize& tuned : best)
    if (tuned.time.us <= kWorthAGrid * least) try_grids(tuned, space, time);
  return best;
}

// Times of one of two candidates that took turns.
struct Turns {
  std::array<double, kTurns> us = {};

  void sort() { std::ranges::sort(us); }
  double middle() const { return us[kTurns / 2]; }
  double spread() const { return us[kTurns - 2] - us[1]; }  // without the fastest and the slowest turn
  Figure figure() const { return {.us = middle(), .least = us.front(), .most = us.back(), .samples = us.size()}; }
};

// Whether the challenger beats the size's present choice. Both get the times that decided.
bool wins_in_turns(TunedSize& challenger, int samples, const Time& time) {
  const Contest contest = take_turns(samples, [&](bool of_challenger, int each, int turn) {
    Trial trial{.bytes = challenger.bytes, .algorithm = Algorithm::automatic, .samples = each, .turn = turn};
    if (of_challenger) {
      trial.algorithm = challenger.algorithm;
      trial.launch = challenger.launch;
    }
    return time(trial);
  });
  challenger.time = contest.challenger;
  challenger.before = contest.present;
  return contest.won;
}

}  // namespace

std::optional<FasterGrid> faster_grid(const TuneSpace& space, double us,
                                      const std::function<double(const Launch&, int samples)>& time) {
  FasterGrid fastest;
  for (const int blocks : space.blocks) {
    for (const int threads : space.threads) {
      const Launch launch{.blocks = blocks, .threads = threads};
      const double of_grid = time(launch, space.samples);
      if (fastest.us == 0 || of_grid < fastest.us) fastest = {launch, of_grid};
    }
  }
  // The fastest of many is lucky, too, so it must repeat its time.
  if (fastest.us == 0 || fastest.us * kGridGain > us) return {};
  fastest.us = time(fastest.launch, kConfirm * space.samples);
  if (fastest.us * kGridGain > us) return {};
  return fastest;
}

Contest take_turns(int samples, const std::function<double(bool, int, int)>& time) {
  const int each = (kConfirm * samples + kTurns - 1) / kTurns;
  Turns now, before;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const bool first : {true, false}) {
      const bool of_challenger = first == (turn % 2 != 0);
      (of_challenger ? now : before).us[static_cast<std::size_t>(turn)] = time(of_challenger, each, turn + 1);
    }
  }
  now.sort();
  before.sort();
  const double gain = before.middle() - now.middle();
  return {.challenger = now.figure(),
          .present = before.figure(),
          .won = now.middle() * kTurnsGain < before.middle() && gain > std::max(now.spread(), before.spread())};
}

TunedSize tune_size(const TuneQuery& query, const TuneSpace& space, const Time& time) {
  const std::vector<TunedSize> best = best_of_each(query.bytes, space, time);
  if (best.empty()) throw Error(Errc::system, fmt::format("no algorithm serves {}", format_bytes(query.bytes)));
  const auto faster = [](const TunedSize& a, const TunedSize& b) { return a.time.us < b.time.us; };
  TunedSize chosen = *std::ranges::min_element(best, faster);
  if (query.previous != nullptr)
    for (const TunedSize& tuned : best)
      if (tuned.algorithm == query.previous->algorithm && tuned.time.us <= kAlgorithmGain * chosen.time.us)
        chosen = tuned;
  const bool other = chosen.algorithm != query.algorithm || chosen.launch.blocks != query.launch.blocks ||
                     chosen.launch.threads != query.launch.threads;
  if (other && wins_in_turns(chosen, space.samples, time)) return chosen;
  const Figure as_before = other ? chosen.before : chosen.time;
  return {.bytes = query.bytes,
          .algorithm = query.algorithm,
          .launch = query.launch,
          .time = as_before,
          .before = as_before,
          .as_before = true};
}

std::uint64_t boundary(std::uint64_t below, std::uint64_t above) {
  const std::uint64_t middle = below + (above - below) / 2,
                      step = std::max<std::uint64_t>(std::bit_floor(above - below) / 8, 1);
  return std::max(middle / step * step, below);
}

std::vector<detail::TuningStep> steps_of(const std::vector<TunedSize>& sizes,
                                         std::span<const detail::TuningStep> base) {
  const std::uint64_t least = sizes.front().bytes, most = sizes.back().bytes;
  std::vector<detail::TuningStep> steps;
  const auto add = [&](detail::TuningStep step) {
    if (!steps.empty()) {
      detail::TuningStep last = steps.back();
      last.up_to = step.up_to;
      if (last == step) steps.pop_back();
    }
    steps.push_back(step);
  };
  const auto goes_on = [](const detail::TuningStep& with, const TunedSize& size) {
    return with.algorithm == size.algorithm && with.blocks == 0 && with.threads == 0;
  };
  const detail::TuningStep* above = &base.front();
  for (; above->up_to < least; ++above) add(*above);
  const std::uint64_t begin = steps.empty() ? 0 : steps.back().up_to + 1, below = std::bit_floor(least - 1);
  if (begin < below && !goes_on(*above, sizes.front())) add(ending(*above, below));
  for (std::size_t i = 0; i < sizes.size(); ++i)
    add({.up_to = i + 1 < sizes.size() ? boundary(sizes[i].bytes, sizes[i + 1].bytes) : most,
         .algorithm = sizes[i].algorithm,
         .blocks = sizes[i].launch.blocks,
         .threads = sizes[i].launch.threads});
  while (above->up_to <= most && above->up_to != UINT64_MAX) ++above;
  if (goes_on(*above, sizes.back())) steps.back().up_to = (above++)->up_to;
  for (; above != base.data() + base.size(); ++above) add(*above);
  return steps;
}

namespace {

void yield(detail::TunedAlgorithm& algorithm, int& blocks, int& threads, detail::TunedAlgorithm way) {
  if (algorithm == way) return;
  algorithm = way;
  blocks = threads = 0;  // they were for the other way
}

// Sizes before `first` go in one hop, those before `second` in lines, others in chunks.
void put_in_order(std::vector<TunedSize>& sizes) {
  const auto way_at = [](std::size_t i, std::size_t first, std::size_t second) {
    return detail::TunedAlgorithm(i < first    ? detail::MoveWay::one_hop
                                  : i < second ? detail::MoveWay::lines
                                               : detail::MoveWay::chunks);
  };
  std::size_t best[2] = {}, least = SIZE_MAX;
  for (std::size_t second = 0; second <= sizes.size(); ++second) {
    for (std::size_t first = 0; first <= second; ++first) {
      std::size_t cost = 0;
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (sizes[i].algorithm != way_at(i, first, second)) cost += sizes[i].time.samples != 0 ? sizes.size() : 1;
      }
      if (cost >= least) continue;
      least = cost;
      best[0] = first;
      best[1] = second;
    }
  }
  for (std::size_t i = 0; i < sizes.size(); ++i)
    yield(sizes[i].algorithm, sizes[i].launch.blocks, sizes[i].launch.threads, way_at(i, best[0], best[1]));
}

}  // namespace

std::vector<detail::TuningStep> move_steps_of(std::vector<TunedSize> sizes, std::span<const detail::TuningStep> base) {
  put_in_order(sizes);
  std::vector<detail::TuningStep> ordered;
  std::uint64_t begin = 0;
  for (detail::TuningStep step : steps_of(sizes, base)) {
    detail::TunedAlgorithm way = step.algorithm;
    if (step.up_to < sizes.front().bytes) way = std::min(way, sizes.front().algorithm);
    if (begin > sizes.back().bytes) way = std::max(way, sizes.back().algorithm);
    yield(step.algorithm, step.blocks, step.threads, way);
    begin = step.up_to + 1;
    if (!ordered.empty() && ending(ordered.back(), step.up_to) == step) ordered.pop_back();
    ordered.push_back(step);
  }
  return ordered;
}

void check_steps(std::span<const std::size_t> sizes, std::span<const detail::TuningStep> base) {
  const auto kept = std::ranges::count_if(
      base, [&](const detail::TuningStep& step) { return step.up_to < sizes.front() || step.up_to > sizes.back(); });
  // One step of `base` may continue on both sides.
  const std::size_t steps = sizes.size() + static_cast<std::size_t>(kept) + 1;
  if (steps <= detail::kMostTuningSteps) return;
  throw Error(Errc::invalid_argument,
              fmt::format("--bytes: {} sizes beside {} steps for others make more than the {} steps of a table",
                          sizes.size(), kept, detail::kMostTuningSteps));
}

}  // namespace weft::cli
