#include "tune/exchange_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ops/moe/exchange_choice.hpp"
#include "ops/moe/exchange_state.hpp"
#include "tune/subject.hpp"
#include "tuning/exchange_file.hpp"
#include "tuning/token_steps.hpp"

namespace weft::cli {
namespace {

using detail::ExchangeStep;

constexpr int kLeastBlockThreads = 128, kMostBlockThreads = 512;  // by either way

MoeExchangeArgs exchange_of(const ExchangeSearch::Args& args) {
  return {.tokens = args.tokens.back(),
          .hidden = static_cast<std::uint32_t>(args.model.row_width()),
          .experts = static_cast<std::uint32_t>(args.model.num_experts),
          .top_k = static_cast<std::uint32_t>(args.model.top_k),
          .cast = args.cast,
          .layout = args.layout,
          .alignment = args.layout == RowLayout::expert_contiguous ? 128u : 1u};
}

// Slots and a ring side by side: try_step() chooses between them.
MoeExchangeArgs with_both(MoeExchangeArgs args) {
  args.ring_rows = detail::ring_rows_of_table(args);
  args.path = RowPath::ring;
  if (args.layout != RowLayout::rank_compact) args.slot_tokens = std::min(args.tokens, detail::kMaxSlotTokens);
  return args;
}

// Puts the fastest grid of a half into the step if it beats the grid chosen by size.
void try_grids(TunedExchange& tuned, detail::StepGrid ExchangeStep::*half, const ExchangeQuery& query,
               const ExchangeTime& time) {
  const auto with = [&](const Launch& launch) {
    ExchangeStep step = tuned.step;
    step.*half = {.blocks = launch.blocks, .threads = launch.threads};
    return step;
  };
  const auto faster = faster_grid(query.grids, tuned.time.us, [&](const Launch& launch, int samples) {
    const ExchangeStep step = with(launch);
    return time(&step, samples, 0);
  });
  if (!faster) return;
  tuned.step = with(faster->launch);
  tuned.time = one_time(faster->us);
}

std::string in_words(const detail::StepGrid& grid, const char* half) {
  return grid == detail::StepGrid{} ? "" : fmt::format(", {} {} × {}", half, grid.blocks, grid.threads);
}

// A step that goes another way loses its grids.
void yield(ExchangeStep& step, RowPath path) {
  if (step.path != path) step = {.up_to = step.up_to, .path = path};
}

}  // namespace

TunedExchange tune_exchange(const ExchangeQuery& query, const ExchangeTime& time) {
  std::vector<TunedExchange> best;
  for (const RowPath path : query.paths) {
    const ExchangeStep step{.path = path};
    best.push_back(
        {.tokens = query.tokens, .step = step, .time = one_time(time(&step, kConfirm * query.grids.samples, 0))});
  }
  const auto faster = [](const TunedExchange& a, const TunedExchange& b) { return a.time.us < b.time.us; };
  const double least = std::ranges::min_element(best, faster)->time.us;
  for (TunedExchange& tuned : best) {
    if (tuned.time.us > kWorthAGrid * least) continue;
    for (const auto half : {&ExchangeStep::dispatch, &ExchangeStep::combine}) try_grids(tuned, half, query, time);
  }
  const TunedExchange fastest = *std::ranges::min_element(best, faster);
  return against_present<ExchangeStep>(fastest, query.present, query.grids.samples,
                                       [&](bool of_fastest, int samples, int turn) {
                                         return time(of_fastest ? &fastest.step : nullptr, samples, turn);
                                       });
}

std::vector<ExchangeStep> exchange_steps_of(std::vector<TunedExchange> tuned, std::span<const ExchangeStep> base) {
  const auto path_at = [](std::size_t i, std::size_t end) { return i < end ? RowPath::slots : RowPath::ring; };
  std::size_t by_slots = 0, least = SIZE_MAX;
  for (std::size_t end = 0; end <= tuned.size(); ++end) {
    std::size_t cost = 0;
    for (std::size_t i = 0; i < tuned.size(); ++i)
      if (tuned[i].step.path != path_at(i, end)) cost += tuned[i].time.samples != 0 ? tuned.size() : 1;
    if (cost > least) continue;  // of two equal ones that with more slots, as without a table
    least = cost;
    by_slots = end;
  }
  for (std::size_t i = 0; i < tuned.size(); ++i) yield(tuned[i].step, path_at(i, by_slots));
  // Fewer tokens than the least that was measured go by slots if it does, and more than the most by the ring if it
  // does.
  std::vector<ExchangeStep> ordered;
  std::uint64_t begin = 0;
  for (ExchangeStep step : token_steps_of<ExchangeStep>(tuned, base)) {
    if (step.up_to < tuned.front().tokens && by_slots != 0) yield(step, RowPath::slots);
    if (begin > tuned.back().tokens && by_slots < tuned.size()) yield(step, RowPath::ring);
    begin = std::uint64_t{step.up_to} + 1;
    if (!ordered.empty()) {
      ExchangeStep before = ordered.back();
      before.up_to = step.up_to;
      if (before == step) ordered.pop_back();
    }
    ordered.push_back(step);
  }
  return ordered;
}

ExchangeSearch::ExchangeSearch(Ranks& ranks, const Args& args)
    : ExchangeSteps(ranks, args.tokens),
      args_(args),
      automatic_(exchange_of(args)),
      opened_(static_cast<std::size_t>(ranks.local_size())) {
  const auto world = static_cast<std::uint32_t>(ranks.world_size());
  detail::check_exchange_args(world, automatic_);
  detail::check_exchange_args(world, with_both(automatic_));
}

detail::TuningTable ExchangeSearch::table() const {
  return {.processor = processor(),
          .ranks = ranks().world_size(),
          .operation = detail::TunedOperation::moe_exchange,
          .exchange = detail::size_of_exchange(static_cast<std::uint32_t>(ranks().world_size()), automatic_),
          .origin = "measured"};
}

std::string ExchangeSearch::size_json() const {
  return detail::to_json(table().exchange);
}

ExchangeSearch::Words ExchangeSearch::words() const {
  return {.heading = fmt::format("dispatch and combine of experts: {}", detail::in_words(table().exchange)),
          .column = "way",
          .nothing = "No way is faster than the present one for these tokens.\n"};
}

std::string ExchangeSearch::step_in_words(const ExchangeStep& step) const {
  return fmt::format("{}{}{}", name(step.path), in_words(step.dispatch, "dispatch"), in_words(step.combine, "combine"));
}

// As an exchange of so many tokens goes, made with RowPath::automatic.
std::vector<ExchangeStep> ExchangeSearch::steps_now() const {
  const std::vector<ExchangeStep> steps = detail::tuning_of_exchange(state_of(ranks()), automatic_).steps;
  const MoeExchangeArgs made = detail::with_tuning(static_cast<std::uint32_t>(ranks().world_size()), automatic_, steps);
  const bool ring = detail::has_ring(made);
  const std::uint32_t by_slots = ring ? detail::slots(made) : UINT32_MAX;
  std::vector<ExchangeStep> now = steps;
  if (now.empty() && ring && by_slots != 0) now.push_back({.up_to = by_slots});
  if (steps.empty()) now.push_back({.path = ring ? RowPath::ring : RowPath::slots});
  return now;
}

void ExchangeSearch::tune(Progress& progress, TuneState& known, std::uint32_t tokens) {
  ExchangeQuery query{.tokens = tokens,
                      .present = detail::token_step_for(steps_now(), tokens),
                      .paths = {RowPath::ring},
                      .grids = {.algorithms = {}, .blocks = {}, .threads = {}, .samples = args_.samples}};
  query.present.up_to = UINT32_MAX;
  if (args_.layout != RowLayout::rank_compact && tokens <= detail::kMaxSlotTokens)
    query.paths.insert(query.paths.begin(), RowPath::slots);
  add_grids(query.grids, ranks(), args_.quick, kLeastBlockThreads, kMostBlockThreads);
  tuned_[tokens] = tune_exchange(query, [&](const ExchangeStep* step, int samples, int turn) {
    const ExchangeStep& run = step != nullptr ? *step : query.present;
    return time({progress, known, tokens}, step, samples, turn,
                [&](const Trial& trial) { return measure(trial, run); });
  });
}

Result ExchangeSearch::measure(const Trial& trial, const ExchangeStep& step) {
  const auto tokens = static_cast<std::uint32_t>(trial.bytes);
  const bool fresh = !traffic_ || traffic_->token_count() != tokens;
  if (fresh) traffic_.emplace(args_.model, with_both(automatic_), Traffic::uniform, ranks().world_size(), tokens);
  Result result{.verdict = Verdict::ok};
  std::vector<std::string> wrong(opened_.size());
  ranks().each([&](Ranks::Seat& seat) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    if (opened_[index] == nullptr) opened_[index] = std::make_unique<MoeRank>(ranks(), seat, with_both(automatic_));
    MoeRank& rank = *opened_[index];
    if (fresh) rank.upload(*traffic_);
    rank.try_step(step);
    const auto both = [&](int input) {
      const MoeRank::CallArgs call{.input = input};
      rank.combine(rank.dispatch(tokens, call), call);
    };
    seat.barrier();  // uploads and checks take long
    rank.device().run(seat, [&] { both(0); });
    seat.barrier();
    const Figure figure = figure_of(seat.gather(rank.device().time(
        seat,
        {.method = methods_of(ranks().device()).front(), .samples = trial.samples, .operation = both, .poison = [&] {
           rank.clear();
         }})));
    // The first of several turns stands for all of them.
    if (trial.turn <= 1) wrong[index] = rank.check_dispatch(*traffic_);
    if (trial.turn <= 1 && wrong[index].empty()) wrong[index] = rank.check_combine(*traffic_);
    const bool right = right_on_all(seat, wrong[index]);
    if (index != 0) return;
    result.us = figure.us;
    if (!right) result.verdict = Verdict::wrong;
  });
  result.detail = first_wrong(wrong);
  return result;
}

}  // namespace weft::cli
