#include "tune/token_search.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/bench_options.hpp"
#include "comm/state.hpp"
#include "tune/subject.hpp"
#include "tune/tuner.hpp"
#include "tuning/token_steps.hpp"
#include "weft/error.hpp"

namespace weft::cli {

using detail::ExchangeStep;
using detail::LayerStep;

bool right_on_all(Ranks::Seat& seat, const std::string& wrong) {
  const auto all = seat.gather({wrong.empty() ? 0.0 : 1.0});
  return std::ranges::none_of(all, [](const std::vector<double>& of_rank) { return of_rank[0] != 0; });
}

std::string first_wrong(const std::vector<std::string>& of_ranks) {
  const auto first = std::ranges::find_if(of_ranks, [](const std::string& one) { return !one.empty(); });
  return first != of_ranks.end() ? *first : "";
}

template <class Step>
TunedTokens<Step> against_present(TunedTokens<Step> fastest, const Step& present, int samples,
                                  const std::function<double(bool, int, int)>& time) {
  fastest.before = fastest.time;
  if (fastest.step != present) {
    const Contest contest = take_turns(samples, time);
    fastest.time = contest.challenger;
    fastest.before = contest.present;
    if (contest.won) return fastest;
    fastest.time = contest.present;
  }
  fastest.step = present;
  fastest.as_before = true;
  return fastest;
}

template <class Step>
std::vector<Step> token_steps_of(const std::vector<TunedTokens<Step>>& tuned, std::span<const Step> base) {
  const std::uint32_t least = tuned.front().tokens, most = tuned.back().tokens;
  std::vector<Step> steps;
  const auto add = [&](Step step, std::uint32_t up_to) {
    step.up_to = up_to;
    if (!steps.empty()) {
      Step before = steps.back();
      before.up_to = up_to;
      if (before == step) steps.pop_back();
    }
    steps.push_back(std::move(step));
  };
  for (const Step& step : base) {
    if (step.up_to + std::uint64_t{1} < least) add(step, step.up_to);
    if (step.up_to + std::uint64_t{1} >= least) {
      if (least > 1) add(step, least - 1);
      break;
    }
  }
  for (std::size_t i = 0; i < tuned.size(); ++i)
    add(tuned[i].step,
        i + 1 < tuned.size() ? static_cast<std::uint32_t>(boundary(tuned[i].tokens, tuned[i + 1].tokens)) : most);
  for (const Step& step : base)
    if (step.up_to > most) add(step, step.up_to);
  return steps;
}

detail::Processor TokenSearch::processor() const {
  return state_of(ranks_).communicator().fabric().processor();
}

double TokenSearch::time(const Session& session, std::string step, int samples, int turn,
                         const std::function<Result(const Trial&)>& measure) {
  const Trial trial{.bytes = session.tokens,
                    .algorithm = Algorithm::automatic,
                    .samples = samples,
                    .turn = turn,
                    .operation = table().operation,
                    .way = std::move(step),
                    .path = path()};
  return session.known.time(trial, [&](const Trial& one) {
    session.progress.note(in_words(one));
    measured_ = true;
    return measure(one);
  });
}

template <class Step, std::vector<Step> detail::TuningTable::*kSteps>
void StepSearch<Step, kSteps>::check_steps(const detail::TuningTable* replaced) const {
  const std::size_t kept = base(replaced).size();
  if (tokens().size() + kept + 1 <= detail::kMostTuningSteps) return;
  throw Error(Errc::invalid_argument,
              fmt::format("--tokens: {} numbers beside {} steps for others make more than the {} steps of a table",
                          tokens().size(), kept, detail::kMostTuningSteps));
}

template <class Step, std::vector<Step> detail::TuningTable::*kSteps>
detail::TuningTable StepSearch<Step, kSteps>::made(const detail::TuningTable* replaced) const {
  const std::vector<Step> before = base(replaced);
  std::vector<TunedTokens<Step>> all;
  for (const std::uint32_t count : tokens()) {
    const auto found = tuned_.find(count);
    if (found != tuned_.end())
      all.push_back(found->second);
    else
      all.push_back({.tokens = count, .step = detail::token_step_for(before, count)});
  }
  detail::TuningTable made = table();
  made.*kSteps = steps_of(all, before);
  return made;
}

template <class Step, std::vector<Step> detail::TuningTable::*kSteps>
void StepSearch<Step, kSteps>::print(const detail::TuningTable& made) const {
  const Words words = this->words();
  Table table({"tokens", std::string(words.column), "µs", "before µs", "gain"});
  bool all_as_before = true;
  std::string yielded;
  for (const auto& [count, tuned] : tuned_) {
    table.add({std::to_string(count), step_in_words(tuned.step), cell(tuned.time), cell(tuned.before),
               tuned.as_before ? "as before" : fmt::format("{:.2f}", tuned.before.us / tuned.time.us)});
    all_as_before &= tuned.as_before;
    Step written = detail::token_step_for(made.*kSteps, count);
    written.up_to = tuned.step.up_to;
    if (written != tuned.step)
      yielded += fmt::format("{} tokens go by {} all the same: no way comes back for more tokens.\n", count,
                             step_in_words(written));
  }
  fmt::print("\n{}\n{}\n{}{}", words.heading, table.text(), all_as_before ? words.nothing : "", yielded);
}

template TunedTokens<LayerStep> against_present(TunedTokens<LayerStep>, const LayerStep&, int,
                                                const std::function<double(bool, int, int)>&);
template TunedTokens<ExchangeStep> against_present(TunedTokens<ExchangeStep>, const ExchangeStep&, int,
                                                   const std::function<double(bool, int, int)>&);
template std::vector<LayerStep> token_steps_of(const std::vector<TunedTokens<LayerStep>>&, std::span<const LayerStep>);
template std::vector<ExchangeStep> token_steps_of(const std::vector<TunedTokens<ExchangeStep>>&,
                                                  std::span<const ExchangeStep>);
template class StepSearch<LayerStep, &detail::TuningTable::layer_steps>;
template class StepSearch<ExchangeStep, &detail::TuningTable::exchange_steps>;

}  // namespace weft::cli
