#include "bench/gather_measure.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "bench/bench_outputs.hpp"
#include "bench/move_check.hpp"
#include "bench/rank_bench.hpp"
#include "workloads/gather_reference.hpp"

namespace weft::cli {
namespace {

// Operations that move as many bytes between any two ranks, which a push of them bounds.
constexpr bool is_bounded(Operation operation) {
  return operation == Operation::all_gather || operation == Operation::reduce_scatter ||
         operation == Operation::all_to_all;
}

constexpr bool is_in_symmetric(Contender contender) {
  return contender == Contender::symmetric || contender == Contender::push;
}

class GatherMeasurement final : public RankBench {
 public:
  GatherMeasurement(Ranks& ranks, const BenchArgs& args, const GatherModel& model)
      : RankBench(ranks, args, 3),
        model_(model),
        counts_(static_cast<std::size_t>(ranks.local_size())),
        outputs_(ranks, args.max_bytes) {
    ranks_.each([&](Ranks::Seat& seat) {
      counts(seat) = static_cast<std::int32_t*>(
          rank(seat).device->allocate(2 * static_cast<std::size_t>(ranks_.world_size()) * sizeof(std::int32_t)));
    });
  }

  std::vector<Contender> contenders(Operation operation) const override {
    std::vector<Contender> all = {Contender::automatic};
    if (operation == Operation::four_tensors) {
      all.push_back(Contender::one_tensor);
    } else if (is_ragged(operation)) {
      all.push_back(Contender::padded);
    }
    if (is_copy(operation)) all.push_back(Contender::symmetric);
    // Peers have no such groups and no padded slots.
    if (is_in_groups(operation)) return all;
    if (is_ragged(operation) && model_.padding != Padding::none) return all;
    const bool whole_packs = model_.hidden % 16 == 0;
    if (is_bounded(operation) && whole_packs && outputs_.can_be_pushed_to()) all.push_back(Contender::push);
    for (const auto peer : peers(operation)) all.push_back(peer);
    return all;
  }

  // Weft's barrier has no output to compare. Barriers with late ranks are checked instead.
  Result run(const Point& point, int samples) override {
    if (point.contender == Contender::symmetric) {
      const std::string why = why_ordinary(point);
      if (!why.empty()) return {.point = point, .detail = why};
    }
    Result result = RankBench::run(point, samples);
    if (point.operation != Operation::barrier || !is_weft(point.contender)) return result;
    const Result held = check_barrier(ranks_);
    if (held.verdict != Verdict::wrong) return result;
    result.verdict = held.verdict;
    result.detail = held.detail;
    result.wrong_ranks = held.wrong_ranks;
    return result;
  }

 private:
  std::string why_ordinary(const Point& point) const {
    const GatherShape shape = gather_shape(model_, point);
    std::string why;
    for (std::size_t t = 0; why.empty() && t < shape.widths.size(); ++t)
      why = outputs_.why_ordinary(shape.row_bytes(t));
    return why;
  }
  std::size_t input_elements(const Point& point) const override { return gather_shape(model_, point).input_elements(); }
  std::size_t output_elements(const Point& point) const override {
    return gather_shape(model_, point).output_elements();
  }

  void begin(const Point& point) override {
    in_groups_ = is_in_groups(point.operation);
    for (int kind = 0; kind < (in_groups_ ? std::min(model_.layout.dp, 2) : 1); ++kind) {
      const auto k = static_cast<std::size_t>(kind);
      shapes_[k] = gather_shape(model_, point, kind);
      references_[k].prepare(shapes_[k], args_.data, kLastStep);
    }
    // The groups are made only when needed: with groups, a call on all ranks has fewer of the GPU's blocks.
    if (!in_groups_ || !groups_.empty()) return;
    groups_.resize(static_cast<std::size_t>(ranks_.local_size()));
    ranks_.each([&](Ranks::Seat& seat) {
      groups_[static_cast<std::size_t>(seat.local_index())] = seat.split(model_.layout.attn_tp_color(seat.rank()));
    });
  }

  // The k-th rank of every group sends the same rows.
  int pattern_rank(const Ranks::Seat& seat) const override {
    return in_groups_ ? model_.layout.attn_tp_rank(seat.rank()) : seat.rank();
  }

  void prepare(Ranks::Seat& seat, const Point&) override {
    const GatherShape& shape = shape_of(seat);
    std::vector<std::int32_t> rows(shape.rows.begin(), shape.rows.end());
    if (in_groups_) rows.assign(numbers_of(shape), static_cast<std::int32_t>(shape.own_rows()));
    if (shape.padding == Padding::per_rank)
      for (const RowRange& slot : shape.slots) rows.push_back(static_cast<std::int32_t>(slot.size()));
    rank(seat).device->upload(counts(seat), rows.data(), rows.size() * sizeof(std::int32_t));
  }

  void enqueue(Ranks::Seat& seat, const Point& point) override {
    const auto [input, output] = buffers(seat, point);
    const Stream stream = rank(seat).device->stream();
    const GatherShape& shape = shape_of(seat);
    if (point.contender == Contender::push) return push(seat, point);
    if (!is_weft(point.contender)) return rank(seat).peer->move(shape, input, output, stream);
    const Group& group =
        in_groups_ ? *groups_[static_cast<std::size_t>(seat.local_index())] : seat.communicator().world();
    const Counts counted{.rows = counts(seat),
                         .sharding = in_groups_ ? Sharding::balanced : Sharding::none,
                         .padding = shape.padding,
                         .slot_rows = shape.slot_rows,
                         .slots = shape.padding == Padding::per_rank ? counts(seat) + numbers_of(shape) : nullptr};
    switch (shape.operation) {
      case Operation::all_gather:
        return all_gather_into_tensor(group, {.input = input,
                                              .output = output,
                                              .rows = shape.most_rows(),
                                              .row_bytes = shape.row_bytes(0),
                                              .stream = stream,
                                              .launch = point.launch});
      case Operation::reduce_scatter:
        return reduce_scatter_tensor(group, {.input = input,
                                             .output = output,
                                             .rows = shape.most_rows(),
                                             .width = shape.widths[0],
                                             .type = shape.type,
                                             .stream = stream,
                                             .launch = point.launch});
      case Operation::all_to_all:
        return all_to_all(group, {.input = input,
                                  .output = output,
                                  .rows = shape.most_rows(),
                                  .row_bytes = shape.row_bytes(0),
                                  .stream = stream,
                                  .launch = point.launch});
      case Operation::broadcast:
        return broadcast(group, {.input = input,
                                 .output = output,
                                 .rows = shape.all_rows(),
                                 .row_bytes = shape.row_bytes(0),
                                 .stream = stream,
                                 .launch = point.launch});
      case Operation::barrier:
        return barrier(group, {.stream = stream});
      case Operation::reduce_scatter_v:
        return reduce_scatter_v(group, {.input = input,
                                        .output = output,
                                        .width = shape.widths[0],
                                        .type = shape.type,
                                        .counts = counted,
                                        .input_rows = shape.all_rows(),
                                        .output_rows = shape.most_slot(),
                                        .stream = stream,
                                        .launch = point.launch});
      default:
        break;
    }
    const std::size_t size = size_of(shape.type);
    GatheredTensor tensors[kMaxGatheredTensors];
    for (std::size_t t = 0; t < shape.widths.size(); ++t)
      tensors[t] = {.input = static_cast<std::byte*>(input) + shape.input_at(t) * size,
                    .output = static_cast<std::byte*>(output) + shape.output_at(t) * size,
                    .row_bytes = shape.row_bytes(t)};
    all_gather_v(group, {.tensors = {tensors, shape.widths.size()},
                         .counts = counted,
                         .input_rows = shape.most_rows(),
                         .output_rows = shape.all_rows(),
                         .stream = stream,
                         .launch = point.launch});
  }

  Buffers buffers(const Ranks::Seat& seat, const Point& point) override {
    Buffers own = RankBench::buffers(seat, point);
    if (is_in_symmetric(point.contender)) own.output = outputs_.data(seat);
    return own;
  }

  // The bandwidth of the links, without a protocol.
  void push(const Ranks::Seat& seat, const Point& point) {
    const GatherShape& shape = shape_of(seat);
    outputs_.push(seat,
                  {.input = buffers(seat, point).input,
                   .bytes = shape.most_rows() * shape.row_bytes(0),
                   .blocks = point.launch.blocks},
                  rank(seat).device->stream());
  }

  std::string verify(Ranks::Seat& seat, const Point& point) override {
    if (point.operation == Operation::barrier && is_weft(point.contender)) return {};  // run() has checked it
    return references_[kind_of(seat)].check(static_cast<std::size_t>(pattern_rank(seat)), rank(seat).host,
                                            is_exact(point));
  }

  // Attention groups are of two kinds: the first one, and all others.
  std::size_t kind_of(const Ranks::Seat& seat) const {
    return in_groups_ && model_.layout.attn_dp_rank(seat.rank()) > 0 ? 1 : 0;
  }
  const GatherShape& shape_of(const Ranks::Seat& seat) const { return shapes_[kind_of(seat)]; }

  // The length of Counts::rows. The ranks of a group share one count.
  std::size_t numbers_of(const GatherShape& shape) const { return in_groups_ ? 1 : shape.ranks(); }
  std::int32_t*& counts(const Ranks::Seat& seat) { return counts_[static_cast<std::size_t>(seat.local_index())]; }

  GatherModel model_;
  // State of the running point.
  bool in_groups_ = false;
  std::array<GatherShape, 2> shapes_;
  std::array<GatherReference, 2> references_;
  std::vector<std::optional<Group>> groups_;  // one for each rank of this process, once needed
  std::vector<std::int32_t*> counts_;         // counts, followed by the lengths of given slots
  BenchOutputs outputs_;
};

}  // namespace

std::unique_ptr<Bench> open_gather_bench(Ranks& ranks, const BenchArgs& args, const GatherModel& model) {
  return std::make_unique<GatherMeasurement>(ranks, args, model);
}

std::size_t gather_bytes(const GatherModel& model, const Point& point) {
  std::size_t most = 0;
  for (const auto contender : {Contender::automatic, Contender::padded, Contender::one_tensor}) {
    Point one = point;
    one.contender = contender;
    const GatherShape shape = gather_shape(model, one);
    most = std::max({most, shape.input_elements(), shape.output_elements()});
  }
  return most * size_of(point.type);
}

Point gather_point(const GatherModel& model, Operation operation, Load load, std::int64_t tokens, DataType type) {
  Point point{.operation = operation, .load = load, .rows = tokens, .hidden = model.hidden, .type = type};
  if (operation == Operation::barrier) {
    point.rows = point.hidden = 0;
    return point;
  }
  Point all = point;
  if (is_in_groups(operation)) all.operation = Operation::all_gather_v;  // it has the tokens of every group
  const GatherShape shape = gather_shape(model, all);
  point.count = shape.own_rows() * shape.row_elements();
  return point;
}

}  // namespace weft::cli
