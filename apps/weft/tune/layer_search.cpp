#include "tune/layer_search.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/layer_figures.hpp"
#include "comm/state.hpp"
#include "tune/subject.hpp"
#include "tune/tuner.hpp"
#include "tuning/layer_file.hpp"

namespace weft::cli {
namespace {

using detail::LayerStep;

Figure one_time(double us) {
  return {.us = us, .least = us, .most = us, .samples = 1};
}

// The rows of the first round and the sums of the last one are what nothing hides, so these rounds are short.
std::vector<std::uint32_t> short_ends(std::uint32_t local_experts) {
  const std::uint32_t end = std::max(1u, local_experts / 8), middle = local_experts - 2 * end;
  return {end, middle - middle / 2, middle / 2, end};
}

}  // namespace

std::vector<LayerWay> layer_ways(std::uint32_t local_experts, int processors, bool quick) {
  std::vector<int> sms{0};
  for (const int number : {16, 32})
    if (4 * number <= processors) sms.push_back(number);
  std::vector<LayerWay> all{{}};
  for (const LayerSchedule schedule : {LayerSchedule::rounds, LayerSchedule::combine_rounds}) {
    for (const int number : sms) {
      for (const std::uint32_t count : {2u, 4u}) {
        if (count <= local_experts && (count == 2 || !quick))
          all.push_back({.schedule = schedule, .rounds = count, .sms = number});
      }
      if (local_experts > 4 && !quick)
        all.push_back({.schedule = schedule, .rounds = 4, .sms = number, .experts = short_ends(local_experts)});
    }
  }
  return all;
}

TunedLayer tune_layer(const LayerQuery& query, const LayerTime& time) {
  const LayerWay* fastest = nullptr;
  double least = 0;
  for (const LayerWay& way : query.ways) {
    const double us = time(&way, query.samples, 0);
    if (fastest != nullptr && us >= least) continue;
    fastest = &way;
    least = us;
  }
  TunedLayer tuned{.tokens = query.tokens,
                   .step = step_of(*fastest, query.processors),
                   .time = one_time(least),
                   .before = one_time(least)};
  if (tuned.step != query.present) {
    const Contest contest = take_turns(query.samples, [&](bool of_challenger, int samples, int turn) {
      return time(of_challenger ? fastest : nullptr, samples, turn);
    });
    tuned.time = contest.challenger;
    tuned.before = contest.present;
    if (contest.won) return tuned;
    tuned.time = contest.present;
  }
  tuned.step = query.present;
  tuned.as_before = true;
  return tuned;
}

std::vector<LayerStep> layer_steps_of(const std::vector<TunedLayer>& tuned, std::span<const LayerStep> base) {
  const std::uint32_t least = tuned.front().tokens, most = tuned.back().tokens;
  std::vector<LayerStep> steps;
  const auto add = [&](LayerStep step, std::uint32_t up_to) {
    step.up_to = up_to;
    if (!steps.empty()) {
      LayerStep before = steps.back();
      before.up_to = up_to;
      if (before == step) steps.pop_back();
    }
    steps.push_back(std::move(step));
  };
  for (const LayerStep& step : base) {
    if (step.up_to + std::uint64_t{1} < least) add(step, step.up_to);
    if (step.up_to + std::uint64_t{1} >= least) {
      if (least > 1) add(step, least - 1);
      break;
    }
  }
  for (std::size_t i = 0; i < tuned.size(); ++i)
    add(tuned[i].step,
        i + 1 < tuned.size() ? static_cast<std::uint32_t>(boundary(tuned[i].tokens, tuned[i + 1].tokens)) : most);
  for (const LayerStep& step : base)
    if (step.up_to > most) add(step, step.up_to);
  return steps;
}

LayerSearch::LayerSearch(Ranks& ranks, const Args& args)
    : ranks_(ranks),
      args_(args),
      shape_(layer_shape_of(args.model, ranks.world_size(), 0, args.intermediate)),
      opened_(static_cast<std::size_t>(ranks.local_size())) {
  check_gemms_for(ranks, shape_, args.tokens.back());
}

detail::TuningTable LayerSearch::table() const {
  return {.processor = state_of(ranks_).communicator().fabric().processor(),
          .ranks = ranks_.world_size(),
          .operation = detail::TunedOperation::moe_layer,
          .layer = table_size(shape_),
          .origin = "measured"};
}

std::vector<LayerStep> LayerSearch::steps_now() const {
  const detail::TuningTable* const now =
      state_of(ranks_).communicator().layer_tuning_for(ranks_.world_size(), table_size(shape_));
  return now != nullptr ? now->layer_steps : std::vector<LayerStep>(1);
}

int LayerSearch::processors() const {
  return state_of(ranks_).communicator().fabric().processor().multiprocessors;
}

void LayerSearch::tune(Progress& progress, TuneState& known, std::uint32_t tokens) {
  const LayerQuery query{.tokens = tokens,
                         .present =
                             [&] {
                               LayerStep step = detail::layer_step_for(steps_now(), tokens);
                               step.up_to = UINT32_MAX;
                               return step;
                             }(),
                         .ways = layer_ways(shape_.local(), processors(), args_.quick),
                         .processors = processors(),
                         .samples = args_.samples};
  tuned_[tokens] = tune_layer(query, [&](const LayerWay* way, int samples, int turn) {
    Trial trial{.bytes = tokens,
                .algorithm = Algorithm::automatic,
                .samples = samples,
                .turn = turn,
                .operation = detail::TunedOperation::moe_layer};
    if (way != nullptr) trial.way = detail::to_json(step_of(*way, processors()));
    const LayerWay run = way != nullptr ? *way : LayerWay{.schedule = LayerSchedule::automatic};
    return known.time(trial, [&](const Trial& one) {
      progress.note(in_words(one));
      return measure(one, run);
    });
  });
}

Result LayerSearch::measure(const Trial& trial, const LayerWay& way) {
  measured_ = true;
  const auto tokens = static_cast<std::uint32_t>(trial.bytes);
  Result result{.verdict = Verdict::ok};
  std::vector<std::string> wrong(opened_.size());
  ranks_.each([&](Ranks::Seat& seat) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    Opened& opened = opened_[index];
    if (opened.rank == nullptr)
      opened.rank =
          std::make_unique<LayerRank>(ranks_, seat, LayerRank::Args{.shape = shape_, .tokens = args_.tokens.back()});
    LayerRank& rank = *opened.rank;
    if (uploaded_ != tokens) {
      rank.upload(seat, tokens);
      opened.plain = reference_outputs(seat, rank, {});
      wrong[index] = rank.check_gemms(LayerRank::kLayers - 1);
    }
    // The first of several turns stands for all of them.
    if (trial.turn <= 1 && wrong[index].empty()) wrong[index] = compare_way(seat, rank, way, opened.plain);
    const auto others = seat.gather({wrong[index].empty() ? 0.0 : 1.0});
    const Figure figure = figure_of(time_part(seat, rank, TimedPart::layer, way, trial.samples));
    if (index != 0) return;
    result.us = figure.us;
    if (std::ranges::any_of(others, [](const std::vector<double>& of_rank) { return of_rank[0] != 0; }))
      result.verdict = Verdict::wrong;
  });
  for (const std::string& one : wrong)
    if (result.detail.empty()) result.detail = one;
  uploaded_ = tokens;
  return result;
}

std::vector<TunedLayer> LayerSearch::tuned() const {
  std::vector<TunedLayer> all;
  for (const auto& [tokens, layer] : tuned_) all.push_back(layer);
  return all;
}

std::vector<TunedLayer> LayerSearch::with_left(std::span<const LayerStep> base) const {
  std::vector<TunedLayer> all;
  for (const std::uint32_t tokens : args_.tokens) {
    const auto found = tuned_.find(tokens);
    all.push_back(found != tuned_.end() ? found->second
                                        : TunedLayer{.tokens = tokens, .step = detail::layer_step_for(base, tokens)});
  }
  return all;
}

}  // namespace weft::cli
