#include "tune/subject.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/pack.hpp"
#include "base/units.hpp"
#include "bench/norm_measure.hpp"
#include "comm/state.hpp"
#include "common/sizes.hpp"
#include "kernel/most_threads.hpp"
#include "ops/all_reduce/all_reduce_plan.hpp"
#include "ops/norm/norm_plan.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using detail::kKiB, detail::kMiB;
using detail::TunedOperation;

// Rows of common models. A norm's choice hardly depends on the length of its rows.
constexpr std::size_t kHidden = 4096, kRowBytes = kHidden * 2;

std::size_t most_of(Device device, TunedOperation operation, bool quick) {
  const bool cpu = device == Device::cpu;
  if (operation == TunedOperation::all_reduce_rms_norm) return cpu ? kMiB : 64 * kMiB;
  return cpu ? 4 * kMiB : (quick ? 64 : 256) * kMiB;
}

// Powers of two, and a size in the middle of two of them if the choice changes in between.
std::vector<std::size_t> usual_sizes(Device device, TunedOperation operation, bool quick) {
  const bool cpu = device == Device::cpu, norm = operation == TunedOperation::all_reduce_rms_norm;
  const std::size_t least = norm ? kRowBytes : cpu ? 256 : 4 * kKiB;
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

// Pipelined is only searched if a table may choose it (ops/all_reduce/all_reduce_plan.cpp). Norms have grids of their
// own.
TuneSpace space_of(const Ranks& ranks, TunedOperation operation, DataType type, const SubjectArgs& args) {
  const auto& group = state_of(ranks);
  TuneSpace space{
      .algorithms = {Algorithm::one_shot, Algorithm::two_shot}, .blocks = {}, .threads = {}, .samples = args.samples};
  if (operation == TunedOperation::all_reduce_rms_norm) return space;
  const detail::TuningStep pipelined[] = {{.algorithm = Algorithm::pipelined}};
  if (detail::plan_all_reduce(plan_query(ranks, type, 1, pipelined)).algorithm == Algorithm::pipelined)
    space.algorithms.push_back(Algorithm::pipelined);
  if (ranks.device() == Device::cpu) return space;           // their grid never changes
  const int most = group.communicator().least_max_blocks();  // all ranks must search in the same way
  for (const int blocks : args.quick ? std::vector<int>{17, 65, most} : std::vector<int>{9, 17, 33, 49, 65, 97, most})
    if (blocks <= most && (space.blocks.empty() || blocks > space.blocks.back())) space.blocks.push_back(blocks);
  // A number that every specialized instance for so many ranks can take.
  const int most_threads = detail::max_threads(static_cast<std::uint32_t>(ranks.world_size()));
  for (const int threads : args.quick ? std::vector<int>{128, 512, 1024} : std::vector<int>{64, 128, 256, 512, 1024})
    if (threads <= most_threads) space.threads.push_back(threads);
  return space;
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
  if (operation != TunedOperation::all_reduce_rms_norm) return;
  const std::size_t most = most_of(ranks.device(), operation, args.quick);  // seven tensors are so large
  std::erase_if(sizes_, [&](std::size_t bytes) { return bytes % kRowBytes != 0 || bytes > most; });
}

std::vector<TuneSubject> TuneSubject::all(const Ranks& ranks, const SubjectArgs& args) {
  std::vector<TuneSubject> subjects;
  for (const auto operation : detail::kTunedBySize) {
    const TuneChoice choice = operation == TunedOperation::all_reduce ? TuneChoice::all_reduce : TuneChoice::norm;
    if (args.operations != TuneChoice::all && args.operations != choice) continue;
    TuneSubject subject(ranks, operation, args);
    if (!subject.sizes_.empty()) subjects.push_back(std::move(subject));
  }
  if (subjects.empty() && args.operations != TuneChoice::layer)
    throw Error(Errc::invalid_argument,
                fmt::format("--bytes {}: norms have whole rows, so one must be a multiple of {} up to {}", args.bytes,
                            format_bytes(kRowBytes),
                            format_bytes(most_of(ranks.device(), TunedOperation::all_reduce_rms_norm, args.quick))));
  return subjects;
}

std::string_view TuneSubject::title() const {
  if (operation_ == TunedOperation::all_reduce_rms_norm) return "all-reduce with norm, rows of 4096 bf16";
  return type_ == DataType::f32 ? "all-reduce of f32" : "all-reduce of bf16";
}

TuneQuery TuneSubject::served_now(const Ranks& ranks, std::size_t bytes) const {
  const auto& group = state_of(ranks);
  const auto& steps = group.tuning(operation_).table->steps;
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
  query.algorithm = detail::plan_all_reduce(plan_query(ranks, type_, bytes / size_of(type_), steps)).algorithm;
  const detail::TuningStep& step = detail::step_for(steps, bytes, bytes);  // the wire widens neither type
  if (step.algorithm == query.algorithm) query.launch = {.blocks = step.blocks, .threads = step.threads};
  return query;
}

std::unique_ptr<Bench> TuneSubject::open(Ranks& ranks) const {
  const BenchArgs args{.data = Data::integers, .max_bytes = sizes_.back(), .peers = false};
  return operation_ == TunedOperation::all_reduce ? open_bench(ranks, args) : open_norm_bench(ranks, args, {});
}

Point TuneSubject::point(const Bench& bench, const Trial& trial) const {
  constexpr Contender contenders[] = {Contender::automatic, Contender::one_shot, Contender::two_shot,
                                      Contender::pipelined};
  Point point{.count = trial.bytes / size_of(type_),
              .type = type_,
              .contender = contenders[static_cast<int>(trial.algorithm)],
              .method = bench.methods().front(),
              .launch = trial.launch};
  if (operation_ == TunedOperation::all_reduce) return point;
  point.operation = Operation::all_reduce_rms_norm;
  point.rows = static_cast<std::int64_t>(trial.bytes / kRowBytes);
  point.hidden = kHidden;
  return point;
}

}  // namespace weft::cli
