#include "tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "report.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "weft-tune-state-1";
constexpr double kWorthAGrid = 1.25;     // how far an algorithm may be behind for its grids to be tried
constexpr double kGridGain = 1.03;       // what a grid must gain on the one chosen by size
constexpr double kAlgorithmGain = 1.02;  // … and an algorithm on that of the next smaller size
constexpr int kConfirm = 3;              // times as many samples decide

}  // namespace

TuneState::TuneState(std::string file, json identity, const std::string& text)
    : file_(std::move(file)), identity_(std::move(identity)) {
  if (text.empty()) return;
  const auto bad = [&](const std::string& why) {
    return Error(Errc::invalid_argument,
                 fmt::format("--state {}: {}; delete it to begin anew, or name another file", file_, why));
  };
  try {
    const json whole = json::parse(text);
    if (whole.at("schema") != kSchema) throw bad("is no state of weft tune");
    if (whole.at("identity") != identity_)
      throw bad(fmt::format("was begun with {}, and this is {}", whole.at("identity").dump(), identity_.dump()));
    for (const json& entry : whole.at("trials")) {
      Trial trial{.bytes = entry.at("bytes"), .launch = {entry.at("blocks"), entry.at("threads")}};
      trial.samples = entry.at("samples");
      for (const auto algorithm : {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot, Algorithm::bulk})
        if (entry.at("algorithm") == name(algorithm)) trial.algorithm = algorithm;
      times_[trial] = entry.at("us");
    }
  } catch (const json::exception& error) {
    throw bad(error.what());
  }
  known_ = times_.size();
}

double TuneState::time(const Trial& trial, const std::function<double(const Trial&)>& measure) {
  const auto found = times_.find(trial);
  if (found != times_.end()) return found->second;
  return times_[trial] = measure(trial);
}

void TuneState::save() const {
  json trials = json::array();
  for (const auto& [trial, us] : times_)
    trials.push_back({{"bytes", trial.bytes},
                      {"algorithm", name(trial.algorithm)},
                      {"blocks", trial.launch.blocks},
                      {"threads", trial.launch.threads},
                      {"samples", trial.samples},
                      {"us", us}});
  const json whole = {{"schema", kSchema}, {"identity", identity_}, {"trials", trials}};
  write_text(file_ + ".new", whole.dump(1) + "\n");
  std::filesystem::rename(file_ + ".new", file_);
}

void TuneState::remove() const {
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

TunedSize tune_size(std::size_t bytes, const TuneSpace& space, const TunedSize* previous,
                    const std::function<double(const Trial&)>& time) {
  const int many = kConfirm * space.samples;
  // Each algorithm by the grid that its size gives.
  std::vector<TunedSize> best;
  double least = 0;
  for (const auto algorithm : space.algorithms) {
    const double us = time({.bytes = bytes, .algorithm = algorithm, .samples = many});
    best.push_back({.bytes = bytes, .algorithm = algorithm, .us = us});
    if (least == 0 || us < least) least = us;
  }
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

std::vector<detail::TuningStep> steps_of(const std::vector<TunedSize>& sizes) {
  std::vector<detail::TuningStep> steps;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const detail::TuningStep step{
        .algorithm = sizes[i].algorithm, .blocks = sizes[i].launch.blocks, .threads = sizes[i].launch.threads};
    if (!steps.empty()) {
      detail::TuningStep last = steps.back();
      last.up_to = step.up_to;
      if (last == step) continue;
      steps.back().up_to = (sizes[i - 1].bytes + sizes[i].bytes) / 2;
    }
    steps.push_back(step);
  }
  return steps;
}

}  // namespace weft::cli
