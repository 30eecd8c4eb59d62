#include "tune/layer_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/layer_figures.hpp"
#include "comm/state.hpp"
#include "ops/moe/exchange_grid.hpp"
#include "tune/subject.hpp"
#include "tune/tuner.hpp"
#include "tuning/layer_file.hpp"
#include "tuning/token_steps.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using detail::LayerStep;

constexpr int kNumbersApart[] = {8, 16, 32};

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

std::vector<LayerWay> ways_apart(const LayerWay& way, int processors) {
  std::vector<LayerWay> all;
  for (const int rows : kNumbersApart) {
    for (const int sums : kNumbersApart) {
      const int most = std::max(rows, sums), rest = processors - rows - sums;
      if (4 * most > processors || (rows == sums && rows == way.sms)) continue;
      LayerWay apart = way;
      apart.sms = 0;
      apart.numbers = detail::LayerSms{.send = rows, .recv = rows, .combine_send = sums, .up = rest, .down = rest};
      all.push_back(std::move(apart));
    }
  }
  return all;
}

LayerWay way_of(const LayerStep& step, RowPath path, int most_blocks, int processors) {
  detail::LayerSms sms = step.sms;
  for (int* const number : {&sms.send, &sms.recv, &sms.combine_send, &sms.combine_recv})
    *number = std::min(*number, most_blocks);
  for (int* const number : {&sms.up, &sms.down}) *number = std::min(*number, processors);
  return {.schedule = step.schedule, .rounds = step.rounds, .path = path, .experts = step.experts, .numbers = sms};
}

TunedLayer tune_layer(const LayerQuery& query, const LayerTime& time) {
  struct Timed {
    LayerWay way = {};
    double us = kUnavailable;
  };
  Timed fastest, in_rounds;  // the latter: with numbers of processors
  const auto try_all = [&](const std::vector<LayerWay>& ways) {
    for (const LayerWay& way : ways) {
      const Timed timed{way, time(&way, query.samples, 0)};
      if (timed.us < fastest.us) fastest = timed;
      if (way.schedule == LayerSchedule::rounds && way.sms != 0 && timed.us < in_rounds.us) in_rounds = timed;
    }
  };
  try_all(query.ways);
  if (query.apart && in_rounds.way.sms != 0 && in_rounds.us <= kWorthAGrid * fastest.us)
    try_all(ways_apart(in_rounds.way, query.processors));
  return against_present<LayerStep>(
      {.tokens = query.tokens, .step = step_of(fastest.way, query.processors), .time = one_time(fastest.us)},
      query.present, query.samples,
      [&](bool of_fastest, int samples, int turn) { return time(of_fastest ? &fastest.way : nullptr, samples, turn); });
}

OpenedLayers::OpenedLayers(Ranks& ranks, const LayerShape& shape, std::uint32_t most_tokens)
    : ranks_(ranks), shape_(shape), most_tokens_(most_tokens), opened_(static_cast<std::size_t>(ranks.local_size())) {}

Result OpenedLayers::measure(const Trial& trial, const LayerWay& way) {
  const auto tokens = static_cast<std::uint32_t>(trial.bytes);
  Result result{.verdict = Verdict::ok};
  std::vector<std::string> wrong(opened_.size());
  ranks_.each([&](Ranks::Seat& seat) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    Opened& opened = opened_[index];
    if (opened.rank == nullptr)
      opened.rank = std::make_unique<LayerRank>(ranks_, seat, LayerRank::Args{.shape = shape_, .tokens = most_tokens_});
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

LayerSearch::LayerSearch(Ranks& ranks, std::shared_ptr<OpenedLayers> layers, const Args& args)
    : LayerSteps(ranks, args.tokens), args_(args), layers_(std::move(layers)) {}

int LayerSearch::table_ranks() const {
  return shape().emulated != 0 ? static_cast<int>(shape().emulated) : ranks().world_size();
}

detail::TuningTable LayerSearch::table() const {
  return {.processor = processor(),
          .ranks = table_ranks(),
          .operation = detail::TunedOperation::moe_layer,
          .layer = table_size(shape(), args_.path),
          .origin = "measured"};
}

std::vector<LayerStep> LayerSearch::steps_now() const {
  const detail::TuningTable* const now =
      state_of(ranks()).communicator().layer_tuning_for(table_ranks(), table_size(shape(), args_.path));
  return now != nullptr ? now->layer_steps : std::vector<LayerStep>(1);
}

std::string LayerSearch::size_json() const {
  return detail::to_json(table_size(shape(), args_.path)) + remark();
}

std::string LayerSearch::remark() const {
  if (shape().emulated == 0) return {};
  return fmt::format(", {} ranks emulated on {}", shape().emulated, ranks().world_size());
}

LayerSearch::Words LayerSearch::words() const {
  return {.heading = fmt::format("layer of experts, {} and {} columns, {} experts on each rank, top {}, rows by {}{}",
                                 shape().hidden, shape().intermediate, shape().local(), shape().top_k, name(args_.path),
                                 remark()),
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
  LayerQuery query{.tokens = tokens,
                   .present = detail::token_step_for(steps_now(), tokens),
                   .ways = layer_ways(shape().local(), processors(), args_.quick),
                   .processors = processors(),
                   .samples = args_.samples,
                   .apart = !args_.quick};
  query.present.up_to = UINT32_MAX;
  for (LayerWay& way : query.ways) way.path = args_.path;
  const int most_blocks = detail::most_ring_blocks(state_of(ranks()).communicator().least_max_blocks());
  const LayerWay present = way_of(query.present, args_.path, most_blocks, processors());
  TunedLayer made = tune_layer(query, [&](const LayerWay* way, int samples, int turn) {
    const LayerStep step = way != nullptr ? step_of(*way, processors()) : query.present;
    return time({progress, known, tokens}, way != nullptr ? &step : nullptr, samples, turn,
                [&](const Trial& trial) { return layers_->measure(trial, way != nullptr ? *way : present); });
  });
  tuned_[tokens] = std::move(made);
}

std::vector<std::unique_ptr<TokenSearch>> open_layer_searches(Ranks& ranks, const LayerSearchArgs& args) {
  const LayerShape shape = layer_shape_of(args.model, ranks.world_size(), args.emulated, args.intermediate);
  check_gemms_for(ranks, shape, args.tokens.back());
  const auto layers = std::make_shared<OpenedLayers>(ranks, shape, args.tokens.back());
  std::vector<std::unique_ptr<TokenSearch>> all;
  for (const RowPath path : {RowPath::slots, RowPath::ring}) {
    if (args.path != RowPath::automatic && args.path != path) continue;
    LayerSearch::Args of_path{.tokens = args.tokens, .path = path, .quick = args.quick, .samples = args.samples};
    if (path == RowPath::slots)
      std::erase_if(of_path.tokens, [&](std::uint32_t tokens) { return !LayerRank::have_slots(shape, tokens); });
    if (!of_path.tokens.empty()) all.push_back(std::make_unique<LayerSearch>(ranks, layers, of_path));
  }
  if (all.empty())
    throw Error(Errc::invalid_argument, "--path slots: rows for that many tokens have none, in any of --tokens");
  return all;
}

}  // namespace weft::cli
