#include "tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "report.hpp"
#include "sizes.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "weft-tune-state-2";
constexpr double kWorthAGrid = 1.25;     // how far an algorithm may be behind for its grids to be tried
constexpr double kGridGain = 1.03;       // what a grid must gain on the one chosen by size
constexpr double kAlgorithmGain = 1.02;  // … and an algorithm on that of the next smaller size
constexpr int kConfirm = 3;              // times as many samples decide

detail::TuningStep ending(detail::TuningStep step, std::uint64_t up_to) {
  step.up_to = up_to;
  return step;
}

}  // namespace

TuneState::TuneState(Args args) : args_(std::move(args)) {
  if (!args_.text.empty()) read();
  known_ = times_.size();
}

void TuneState::read() {
  const auto bad = [&](const std::string& why) {
    return Error(Errc::invalid_argument,
                 fmt::format("--state {}: {}; delete it to begin anew, or name another file", args_.file, why));
  };
  try {
    std::size_t begin = 0, end = 0;
    for (; (end = args_.text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const json line = json::parse(args_.text.substr(begin, end - begin));
      if (begin == 0) {
        if (line.at("schema") != kSchema) throw bad("is no state of weft tune");
        if (line.at("identity") == args_.identity) continue;
        throw bad(fmt::format("was begun with {}, and this is {}", line.at("identity").dump(), args_.identity.dump()));
      }
      Trial trial{.bytes = line.at("bytes"), .launch = {line.at("blocks"), line.at("threads")}};
      trial.samples = line.at("samples");
      for (const auto algorithm : {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot, Algorithm::bulk})
        if (line.at("algorithm") == name(algorithm)) trial.algorithm = algorithm;
      times_[trial] = line.at("us");
    }
    if (begin == 0) throw bad("is no state of weft tune");
  } catch (const json::exception& error) {
    throw bad(error.what());
  }
}

double TuneState::time(const Trial& trial, const std::function<Result(const Trial&)>& measure) {
  const auto found = times_.find(trial);
  if (found != times_.end()) return found->second;
  const Result result = measure(trial);
  if (result.verdict == Verdict::unavailable) return kUnavailable;
  if (result.verdict == Verdict::wrong)
    throw Error(Errc::system,
                fmt::format("WRONG: {} of {}, {} × {}: {}; no table was written, and weft verify says more",
                            name(trial.algorithm), format_bytes(trial.bytes), trial.launch.blocks, trial.launch.threads,
                            result.detail.empty() ? "other bits, in another process" : result.detail));
  if (args_.writes) keep(trial, result.us);
  return times_[trial] = result.us;
}

// The first time the file is made anew, without what may be unfinished at its end.
void TuneState::keep(const Trial& trial, double us) {
  const auto line_of = [](const Trial& of, double time) {
    return json{{"bytes", of.bytes},          {"algorithm", name(of.algorithm)},
                {"blocks", of.launch.blocks}, {"threads", of.launch.threads},
                {"samples", of.samples},      {"us", time}}
               .dump() +
           "\n";
  };
  if (!out_.is_open()) {
    std::string text = json{{"schema", kSchema}, {"identity", args_.identity}}.dump() + "\n";
    for (const auto& [known, time] : times_) text += line_of(known, time);
    write_text(args_.file + ".new", text);
    std::filesystem::rename(args_.file + ".new", args_.file);
    out_.open(args_.file, std::ios::app);
  }
  out_ << line_of(trial, us) << std::flush;
  if (!out_) throw Error(Errc::system, fmt::format("--state {}: cannot be written", args_.file));
}

void TuneState::remove() {
  out_.close();
  std::error_code ignored;
  std::filesystem::remove(args_.file, ignored);
}

TunedSize tune_size(std::size_t bytes, const TuneSpace& space, const TunedSize* previous,
                    const std::function<double(const Trial&)>& time) {
  const int many = kConfirm * space.samples;
  // Each algorithm by the grid that its size gives.
  std::vector<TunedSize> best;
  double least = 0;
  for (const auto algorithm : space.algorithms) {
    const double us = time({.bytes = bytes, .algorithm = algorithm, .samples = many});
    if (us == kUnavailable) continue;
    best.push_back({.bytes = bytes, .algorithm = algorithm, .us = us});
    if (least == 0 || us < least) least = us;
  }
  if (best.empty()) throw Error(Errc::system, fmt::format("no algorithm serves {}", format_bytes(bytes)));
  // Grids of those that may become the first.
  for (TunedSize& tuned : best) {
    if (tuned.us > kWorthAGrid * least) continue;
    Trial fastest{};
    double fastest_us = 0;
    for (const int blocks : space.blocks) {
      for (const int threads : space.threads) {
        const Trial trial{bytes, tuned.algorithm, {blocks, threads}, space.samples};
        const double us = time(trial);
        if (fastest_us == 0 || us < fastest_us) {
          fastest = trial;
          fastest_us = us;
        }
      }
    }
    // The fastest of many is lucky, too: it is measured again before it is believed.
    if (fastest_us == 0 || fastest_us * kGridGain > tuned.us) continue;
    fastest.samples = many;
    const double us = time(fastest);
    if (us * kGridGain > tuned.us) continue;
    tuned.launch = fastest.launch;
    tuned.us = us;
  }
  const auto faster = [](const TunedSize& a, const TunedSize& b) { return a.us < b.us; };
  TunedSize chosen = *std::ranges::min_element(best, faster);
  if (previous != nullptr)
    for (const TunedSize& tuned : best)
      if (tuned.algorithm == previous->algorithm && tuned.us <= kAlgorithmGain * chosen.us) chosen = tuned;
  chosen.before_us = time({.bytes = bytes, .algorithm = Algorithm::automatic, .samples = many});
  return chosen;
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
  const std::uint64_t begin = steps.empty() ? 0 : steps.back().up_to + 1;
  if (begin < least && !goes_on(*above, sizes.front())) add(ending(*above, least - 1));
  for (std::size_t i = 0; i < sizes.size(); ++i)
    add({.up_to = i + 1 < sizes.size() ? (sizes[i].bytes + sizes[i + 1].bytes) / 2 : most,
         .algorithm = sizes[i].algorithm,
         .blocks = sizes[i].launch.blocks,
         .threads = sizes[i].launch.threads});
  while (above->up_to <= most && above->up_to != UINT64_MAX) ++above;
  if (goes_on(*above, sizes.back())) steps.back().up_to = (above++)->up_to;
  for (; above != base.data() + base.size(); ++above) add(*above);
  return steps;
}

void check_steps(std::span<const std::size_t> sizes, std::span<const detail::TuningStep> base) {
  const auto kept = std::ranges::count_if(
      base, [&](const detail::TuningStep& step) { return step.up_to < sizes.front() || step.up_to > sizes.back(); });
  // One of them may go on on both sides.
  const std::size_t steps = sizes.size() + static_cast<std::size_t>(kept) + 1;
  if (steps <= detail::kMostTuningSteps) return;
  throw Error(Errc::invalid_argument,
              fmt::format("--bytes: {} sizes beside {} steps for others make more than the {} steps of a table",
                          sizes.size(), kept, detail::kMostTuningSteps));
}

}  // namespace weft::cli
