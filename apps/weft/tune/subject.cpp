#include "tune/subject.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/pack.hpp"
#include "base/units.hpp"
#include "bench/crossing_measure.hpp"
#include "bench/gather_measure.hpp"
#include "bench/norm_measure.hpp"
#include "comm/state.hpp"
#include "common/sizes.hpp"
#include "kernel/most_threads.hpp"
#include "ops/all_reduce/all_reduce_plan.hpp"
#include "ops/moves/group_moves.hpp"
#include "ops/norm/norm_plan.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using detail::kKiB, detail::kMiB;
using detail::TunedOperation;

// Rows of common models, of all operations but all-reduces. A choice hardly depends on the length of rows.
constexpr std::size_t kHidden = 4096, kRowBytes = kHidden * 2;

std::size_t most_of(Device device, TunedOperation operation, bool quick) {
  const bool cpu = device == Device::cpu;
  if (operation != TunedOperation::all_reduce) return cpu ? kMiB : 64 * kMiB;
  return cpu ? 4 * kMiB : (quick ? 64 : 256) * kMiB;
}

// Powers of two, and a size in the middle of two of them if the choice changes in between.
std::vector<std::size_t> usual_sizes(Device device, TunedOperation operation, bool quick) {
  const bool cpu = device == Device::cpu, rows = operation != TunedOperation::all_reduce;
  const std::size_t least = rows ? kRowBytes : cpu ? 256 : 4 * kKiB;
  const std::size_t most = most_of(device, operation, quick);
  std::vector<std::size_t> all;
  for (std::size_t size = least; size <= most; size *= quick ? 4 : 2) {
    all.push_back(size);
    if (!quick && size > 64 * kKiB && size < most) all.push_back(size + size / 2);
  }
  return all;
}

detail::PlanQuery plan_query(const Ranks& ranks, DataType type, std::size_t count,
                             std::span<const detail::TuningStep> steps) {
  const auto& group = state_of(ranks);
  return {.device = ranks.device(),
          .size = static_cast<std::uint32_t>(ranks.world_size()),
          .layout = group.layout(),
          .type = type,
          .op = ReduceOp::sum,
          .count = count,
          .max_blocks = group.communicator().max_blocks(),
          .least_max_blocks = group.communicator().least_max_blocks(),
          .steps = steps};
}

// Pipelined is only searched if a table may choose it (ops/all_reduce/all_reduce_plan.cpp).
TuneSpace space_of(const Ranks& ranks, TunedOperation operation, DataType type, const SubjectArgs& args) {
  const detail::TunedKind& kind = kind_of(operation);
  const bool reduces_all = operation == TunedOperation::all_reduce;
  TuneSpace space{.algorithms = {kind.algorithms.begin(), kind.algorithms.end()},
                  .blocks = {},
                  .threads = {},
                  .samples = args.samples};
  const detail::TuningStep pipelined[] = {{.algorithm = Algorithm::pipelined}};
  if (reduces_all && detail::plan_all_reduce(plan_query(ranks, type, 1, pipelined)).algorithm != Algorithm::pipelined)
    space.algorithms.pop_back();
  // A number that every specialized instance for so many ranks can take.
  const int most_threads =
      reduces_all ? detail::max_threads(static_cast<std::uint32_t>(ranks.world_size())) : kind.most_threads;
  if (kind.grids) add_grids(space, ranks, args.quick, 64, most_threads);
  return space;
}

// Groups of as few ranks as there are, but not of one, whose crossings are copies.
ParallelLayout crossing_layout(int ranks) {
  int group = 2;
  while (ranks % group != 0) ++group;
  return {.tp = ranks, .dp = ranks / group};
}
CrossingForm crossing_form(int ranks, TunedOperation operation) {
  CrossingForm form{.layout = crossing_layout(ranks), .hidden = kHidden};
  if (operation == TunedOperation::crossing_rms_norm) form.norm = NormForm{};
  return form;
}
GatherModel gather_model(int ranks) {
  return {.layout = {.tp = ranks, .dp = ranks}, .hidden = kHidden};
}

Contender contender_of(detail::TunedAlgorithm algorithm) {
  constexpr Contender contenders[] = {Contender::automatic, Contender::one_shot, Contender::two_shot,
                                      Contender::pipelined};
  return contenders[static_cast<int>(algorithm.algorithm())];
}

}  // namespace

const detail::GroupState& state_of(const Ranks& ranks) {
  return ranks.first().world().state();
}

std::vector<std::size_t> parse_tuned_bytes(const std::string& text) {
  std::vector<std::size_t> all;
  if (text.empty()) return all;
  for (const auto size : parse_bytes_list(text)) {
    if (size < 16 || size % 16 != 0)
      throw Error(Errc::invalid_argument, fmt::format("--bytes {}: must be a multiple of 16, and not 0", size));
    all.push_back(size);
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

TuneSubject::TuneSubject(const Ranks& ranks, TunedOperation operation, const SubjectArgs& args)
    : operation_(operation),
      type_(operation == TunedOperation::all_reduce && ranks.device() == Device::cpu ? DataType::f32 : DataType::bf16),
      sizes_(args.bytes.empty() ? usual_sizes(ranks.device(), operation, args.quick) : parse_tuned_bytes(args.bytes)),
      space_(space_of(ranks, operation, type_, args)) {
  if (operation == TunedOperation::all_reduce) return;
  const std::size_t most = most_of(ranks.device(), operation, args.quick);  // some tensors of a norm are so large
  std::erase_if(sizes_, [&](std::size_t bytes) { return bytes % kRowBytes != 0 || bytes > most; });
}

std::vector<TuneSubject> TuneSubject::all(const Ranks& ranks, const SubjectArgs& args) {
  std::vector<TuneSubject> subjects;
  for (const detail::TunedKind& kind : detail::kTunedBySize) {
    if (args.operations != TuneChoice::all && args.operations != choice_of(kind.operation)) continue;
    TuneSubject subject(ranks, kind.operation, args);
    if (!subject.sizes_.empty()) subjects.push_back(std::move(subject));
  }
  if (subjects.empty() && !is_by_tokens(args.operations))
    throw Error(Errc::invalid_argument,
                fmt::format("--bytes {}: a {} has whole rows, so one must be a multiple of {} up to {}", args.bytes,
                            name(args.operations), format_bytes(kRowBytes),
                            format_bytes(most_of(ranks.device(), TunedOperation::all_reduce_rms_norm, args.quick))));
  return subjects;
}

void add_grids(TuneSpace& space, const Ranks& ranks, bool quick, int least, int most) {
  if (ranks.device() == Device::cpu) return;
  const int fit = state_of(ranks).communicator().least_max_blocks();  // all ranks must search in the same way
  for (const int blocks : quick ? std::vector<int>{17, 65, fit} : std::vector<int>{9, 17, 33, 49, 65, 97, fit})
    if (blocks <= fit && (space.blocks.empty() || blocks > space.blocks.back())) space.blocks.push_back(blocks);
  for (const int threads : quick ? std::vector<int>{128, 512, 1024} : std::vector<int>{64, 128, 256, 512, 1024})
    if (threads >= least && threads <= most) space.threads.push_back(threads);
}

std::string_view TuneSubject::title() const {
  switch (operation_) {
    case TunedOperation::all_reduce:
      return type_ == DataType::f32 ? "all-reduce of f32" : "all-reduce of bf16";
    case TunedOperation::all_reduce_rms_norm:
      return "all-reduce with norm, rows of 4096 bf16";
    case TunedOperation::all_gather:
      return "gather, rows of 4096 bf16 of each rank";
    case TunedOperation::reduce_scatter:
      return "scatter, rows of 4096 bf16 for each rank";
    case TunedOperation::crossing:
      return "crossing both ways, rows of 4096 bf16 of a group";
    case TunedOperation::crossing_rms_norm:
      return "crossing both ways with norm, rows of 4096 bf16 of a group";
    case TunedOperation::moe_layer:
    case TunedOperation::moe_exchange:
      break;
  }
  return {};
}

// CPU ranks never make a crossing with a norm in one hop.
bool TuneSubject::has_one_hop(const Ranks& ranks) const {
  return operation_ == TunedOperation::crossing ||
         (operation_ == TunedOperation::crossing_rms_norm && ranks.device() == Device::cuda);
}

detail::MoveQuery TuneSubject::move_query(const Ranks& ranks) const {
  detail::MoveQuery query = detail::move_query_for(state_of(ranks), operation_, type_);
  if (operation_ == TunedOperation::crossing || operation_ == TunedOperation::crossing_rms_norm)
    query.group_ranks = static_cast<std::uint64_t>(crossing_layout(ranks.world_size()).attn_tp());
  return query;
}

TuneSpace TuneSubject::space(const Ranks& ranks, std::size_t bytes) const {
  TuneSpace all = space_;
  if (!moves()) return all;
  std::erase_if(all.algorithms, [&](detail::TunedAlgorithm way) {
    const detail::TuningTable alone{.steps = {{.algorithm = way}}};
    detail::MoveQuery query = move_query(ranks);
    query.table = &alone;
    return detail::move_way(query, bytes, has_one_hop(ranks)) != way;
  });
  return all;
}

detail::TuningTable TuneSubject::served_now(const Ranks& ranks) const {
  const detail::TuningTable* const table = state_of(ranks).tuning(operation_).table;
  detail::TuningTable now = table != nullptr ? *table : detail::TuningTable{};
  if (table == nullptr) now.steps = detail::move_steps(move_query(ranks), has_one_hop(ranks));
  // An all-reduce's table may serve norms, which have one hop or two, and grids of their own.
  if (operation_ == TunedOperation::all_reduce_rms_norm) {
    for (detail::TuningStep& step : now.steps)
      step = {.up_to = step.up_to,
              .algorithm = step.algorithm == Algorithm::one_shot ? Algorithm::one_shot : Algorithm::two_shot};
  }
  return now;
}

TuneQuery TuneSubject::served_now(const Ranks& ranks, std::size_t bytes) const {
  const auto& group = state_of(ranks);
  const std::vector<detail::TuningStep> steps = served_now(ranks).steps;
  TuneQuery query{.bytes = bytes};
  if (operation_ == TunedOperation::all_reduce_rms_norm) {
    query.algorithm = detail::plan_norm({.device = ranks.device(),
                                         .size = static_cast<std::uint32_t>(ranks.world_size()),
                                         .layout = group.layout(),
                                         .type = type_,
                                         .rows = bytes / kRowBytes,
                                         .row_packs = kRowBytes / sizeof(detail::Pack),
                                         .max_blocks = group.communicator().max_blocks(),
                                         .steps = steps})
                          .algorithm;
    return query;
  }
  if (moves()) {
    query.algorithm = detail::move_way(move_query(ranks), bytes, has_one_hop(ranks));
  } else {
    query.algorithm = detail::plan_all_reduce(plan_query(ranks, type_, bytes / size_of(type_), steps)).algorithm;
  }
  const detail::TuningStep& step = detail::step_for(steps, bytes, bytes);  // the wire widens no type that is measured
  if (step.algorithm == query.algorithm) query.launch = {.blocks = step.blocks, .threads = step.threads};
  return query;
}

std::unique_ptr<Bench> TuneSubject::open(Ranks& ranks) const {
  BenchArgs args{.data = Data::integers, .max_bytes = sizes_.back(), .peers = false};
  if (!moves()) {
    return operation_ == TunedOperation::all_reduce ? open_bench(ranks, args) : open_norm_bench(ranks, args, {});
  }
  const Point largest = points(ranks, {.bytes = sizes_.back()}).front();
  if (operation_ == TunedOperation::all_gather || operation_ == TunedOperation::reduce_scatter) {
    args.max_bytes = gather_bytes(gather_model(ranks.world_size()), largest);
    return open_gather_bench(ranks, args, gather_model(ranks.world_size()));
  }
  const CrossingForm form = crossing_form(ranks.world_size(), operation_);
  args.max_bytes = crossing_bytes(form, largest);
  return open_crossing_bench(ranks, args, form);
}

// Without their method.
std::vector<Point> TuneSubject::points(const Ranks& ranks, const Trial& trial) const {
  const auto rows = static_cast<std::int64_t>(trial.bytes / kRowBytes);
  Point point{.count = trial.bytes / size_of(type_), .rows = rows, .hidden = kHidden, .type = type_};
  switch (operation_) {
    case TunedOperation::all_gather:
      return {gather_point(gather_model(ranks.world_size()), Operation::all_gather, Load::balanced, rows, type_)};
    case TunedOperation::reduce_scatter:
      return {gather_point(gather_model(ranks.world_size()), Operation::reduce_scatter, Load::balanced, rows, type_)};
    case TunedOperation::crossing:
    case TunedOperation::crossing_rms_norm: {
      point.operation = Operation::gather_sums;
      point.count *= static_cast<std::size_t>(crossing_layout(ranks.world_size()).dp);
      Point back = point;
      back.operation = Operation::scatter_sums;
      return {point, back};
    }
    case TunedOperation::all_reduce_rms_norm:
      point.operation = Operation::all_reduce_rms_norm;
      point.contender = contender_of(trial.algorithm);
      return {point};
    default:
      point.rows = point.hidden = 0;
      point.contender = contender_of(trial.algorithm);
      point.launch = trial.launch;
      return {point};
  }
}

Result TuneSubject::measure(Ranks& ranks, Bench& bench, const Trial& trial) const {
  const detail::TuningTable tried{
      .operation = operation_,
      .steps = {{.algorithm = trial.algorithm, .blocks = trial.launch.blocks, .threads = trial.launch.threads}}};
  const auto use = [&](const detail::TuningTable* table) {
    if (!moves()) return;  // a call names its algorithm
    ranks.each([&](Ranks::Seat& seat) { seat.communicator().world().state().try_table(operation_, table); });
  };
  use(trial.algorithm == Algorithm::automatic ? nullptr : &tried);
  Result all{.verdict = Verdict::ok};
  for (Point& point : points(ranks, trial)) {
    point.method = bench.methods().front();
    const Result one = bench.run(point, trial.samples);
    all.us += one.us;
    if (one.verdict == Verdict::ok) continue;
    all.verdict = one.verdict;
    all.detail = one.detail;
    break;
  }
  use(nullptr);
  return all;
}

}  // namespace weft::cli
