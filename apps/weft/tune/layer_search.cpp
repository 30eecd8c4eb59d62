#include "tune/layer_search.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/layer_figures.hpp"
#include "comm/state.hpp"
#include "tune/subject.hpp"
#include "tune/tuner.hpp"
#include "tuning/layer_file.hpp"
#include "tuning/token_steps.hpp"

namespace weft::cli {
namespace {

using detail::LayerStep;

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
  return against_present<LayerStep>(
      {.tokens = query.tokens, .step = step_of(*fastest, query.processors), .time = one_time(least)}, query.present,
      query.samples,
      [&](bool of_fastest, int samples, int turn) { return time(of_fastest ? fastest : nullptr, samples, turn); });
}

LayerSearch::LayerSearch(Ranks& ranks, const Args& args)
    : LayerSteps(ranks, args.tokens),
      args_(args),
      shape_(layer_shape_of(args.model, ranks.world_size(), 0, args.intermediate)),
      opened_(static_cast<std::size_t>(ranks.local_size())) {
  check_gemms_for(ranks, shape_, args.tokens.back());
}

detail::TuningTable LayerSearch::table() const {
  return {.processor = processor(),
          .ranks = ranks().world_size(),
          .operation = detail::TunedOperation::moe_layer,
          .layer = table_size(shape_),
          .origin = "measured"};
}

std::vector<LayerStep> LayerSearch::steps_now() const {
  const detail::TuningTable* const now =
      state_of(ranks()).communicator().layer_tuning_for(ranks().world_size(), table_size(shape_));
  return now != nullptr ? now->layer_steps : std::vector<LayerStep>(1);
}

std::string LayerSearch::size_json() const {
  return detail::to_json(table_size(shape_));
}

LayerSearch::Words LayerSearch::words() const {
  return {.heading = fmt::format("layer of experts, {} and {} columns, {} experts on each rank, top {}, rows by slots",
                                 shape_.hidden, shape_.intermediate, shape_.local(), shape_.top_k),
          .column = "schedule",
          .nothing = "No schedule is faster than the present one for these tokens.\n"};
}

std::string LayerSearch::step_in_words(const LayerStep& step) const {
  return in_words(step);
}

int LayerSearch::processors() const {
  return processor().multiprocessors;
}

void LayerSearch::tune(Progress& progress, TuneState& known, std::uint32_t tokens) {
  const LayerQuery query{.tokens = tokens,
                         .present =
                             [&] {
                               LayerStep step = detail::token_step_for(steps_now(), tokens);
                               step.up_to = UINT32_MAX;
                               return step;
                             }(),
                         .ways = layer_ways(shape_.local(), processors(), args_.quick),
                         .processors = processors(),
                         .samples = args_.samples};
  tuned_[tokens] = tune_layer(query, [&](const LayerWay* way, int samples, int turn) {
    const LayerWay run = way != nullptr ? *way : LayerWay{.schedule = LayerSchedule::automatic};
    const LayerStep step = step_of(run, processors());
    return time({progress, known, tokens}, way != nullptr ? &step : nullptr, samples, turn,
                [&](const Trial& trial) { return measure(trial, run); });
  });
}

Result LayerSearch::measure(const Trial& trial, const LayerWay& way) {
  const auto tokens = static_cast<std::uint32_t>(trial.bytes);
  Result result{.verdict = Verdict::ok};
  std::vector<std::string> wrong(opened_.size());
  ranks().each([&](Ranks::Seat& seat) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    Opened& opened = opened_[index];
    if (opened.rank == nullptr)
      opened.rank =
          std::make_unique<LayerRank>(ranks(), seat, LayerRank::Args{.shape = shape_, .tokens = args_.tokens.back()});
    LayerRank& rank = *opened.rank;
    if (uploaded_ != tokens) {
      rank.upload(seat, tokens);
      opened.plain = reference_outputs(seat, rank, {});
      wrong[index] = rank.check_gemms(LayerRank::kLayers - 1);
    }
    // The first of several turns stands for all of them.
    if (trial.turn <= 1 && wrong[index].empty()) wrong[index] = compare_way(seat, rank, way, opened.plain);
    const bool right = right_on_all(seat, wrong[index]);
    const Figure figure = figure_of(time_part(seat, rank, TimedPart::layer, way, trial.samples));
    if (index != 0) return;
    result.us = figure.us;
    if (!right) result.verdict = Verdict::wrong;
  });
  result.detail = first_wrong(wrong);
  uploaded_ = tokens;
  return result;
}

}  // namespace weft::cli
