#include "bench/crossing_measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "bench/bench_outputs.hpp"
#include "bench/rank_bench.hpp"
#include "weft/crossings.hpp"
#include "weft/fused.hpp"
#include "weft/moe.hpp"
#include "workloads/crossing_reference.hpp"

namespace weft::cli {
namespace {

class CrossingMeasurement final : public RankBench {
 public:
  CrossingMeasurement(Ranks& ranks, const BenchArgs& args, const CrossingForm& form)
      : RankBench(ranks, args, 3), form_(form), seats_(static_cast<std::size_t>(ranks.local_size())) {
    if (has_inner_groups())
      split_peers([&](const Ranks::Seat& seat) { return form_.layout.attn_tp_color(seat.rank()); });
    // A gather to groups of one rank is a copy. Others have no faster way to symmetric memory.
    if (attn_tp() == 1 && !form_.norm) outputs_.emplace(ranks, args.max_bytes);
    ranks_.each([&](Ranks::Seat& seat) {
      Mine& own = mine(seat);
      own.counts = static_cast<std::int32_t*>(rank(seat).device->allocate((2 * world() + 1) * sizeof(std::int32_t)));
      own.shard = rank(seat).device->allocate(args_.max_bytes);
      if (!form_.norm) return;
      for (void** tensor :
           {&own.residual, &own.residual_output, &own.gamma, &own.shard_normed, &own.scales, &own.shard_scales})
        *tensor = rank(seat).device->allocate(args_.max_bytes);
    });
  }

  std::vector<Contender> contenders(Operation operation) const override {
    std::vector<Contender> all = {Contender::automatic};
    if (attn_tp() > 1 || form_.norm) all.push_back(Contender::separate);
    if (form_.norm) all.push_back(Contender::unfused);
    if (outputs_ && operation == Operation::gather_sums) all.push_back(Contender::symmetric);
    for (const auto peer : peers(Operation::reduce_scatter)) all.push_back(peer);
    if (!peers(Operation::reduce_scatter_v).empty()) all.push_back(Contender::nccl_grouped);
    return all;
  }

  Result run(const Point& point, int samples) override {
    if (point.contender == Contender::symmetric) {
      const std::string why = outputs_->why_ordinary(hidden() * size_of(point.type));
      if (!why.empty()) return {.point = point, .detail = why};
    }
    return RankBench::run(point, samples);
  }

 private:
  // Belongings of one rank of this process.
  struct Mine {
    std::optional<Group> group;      // its attention group, once needed
    std::optional<Group> alone;      // the rank alone, which norms between two calls
    std::int32_t* counts = nullptr;  // of all ranks' shards, of its attention group's tokens, and of all slots
    void* shard = nullptr;           // between two calls
    // With a norm. Its residual has a row for each of the output's, of which the rank adds its shard's.
    void *residual = nullptr, *residual_output = nullptr, *gamma = nullptr, *scales = nullptr;
    void *shard_normed = nullptr, *shard_scales = nullptr;
  };
  Mine& mine(const Ranks::Seat& seat) { return seats_[static_cast<std::size_t>(seat.local_index())]; }
  std::size_t world() const { return static_cast<std::size_t>(ranks_.world_size()); }
  std::size_t attn_tp() const { return static_cast<std::size_t>(form_.layout.attn_tp()); }
  // Groups of some ranks, for which a peer needs a communicator of its own.
  bool has_inner_groups() const { return attn_tp() != 1 && attn_tp() != world(); }
  std::size_t hidden() const { return static_cast<std::size_t>(form_.hidden); }
  static std::size_t me(const Ranks::Seat& seat) { return static_cast<std::size_t>(seat.rank()); }
  static bool gathers(const Point& point) { return point.operation == Operation::gather_sums; }

  std::size_t input_elements(const Point& point) const override {
    return crossing_shape(form_, point).input_rows() * hidden();
  }
  std::size_t output_elements(const Point& point) const override {
    return crossing_shape(form_, point).output_rows() * hidden();
  }

  Buffers buffers(const Ranks::Seat& seat, const Point& point) override {
    Buffers own = RankBench::buffers(seat, point);
    if (point.contender == Contender::symmetric) own.output = outputs_->data(seat);
    return own;
  }

  // Groups are made only when needed: with groups, a call on all ranks has fewer of the GPU's blocks.
  void begin(const Point& point) override {
    shape_ = crossing_shape(form_, point);
    reference_.prepare(shape_, args_.data, kLastStep);
    if (point.contender != Contender::separate || seats_.front().group) return;
    ranks_.each([&](Ranks::Seat& seat) {
      mine(seat).group = seat.split(form_.layout.attn_tp_color(seat.rank()));
      if (form_.norm) mine(seat).alone = seat.split(seat.rank());
    });
  }

  void prepare(Ranks::Seat& seat, const Point& point) override {
    std::vector<std::int32_t> counts(shape_.all.rows.begin(), shape_.all.rows.end());
    counts.push_back(static_cast<std::int32_t>(shape_.group_rows(me(seat))));
    for (const RowRange& slot : shape_.all.slots) counts.push_back(static_cast<std::int32_t>(slot.size()));
    RankDevice& device = *rank(seat).device;
    device.upload(mine(seat).counts, counts.data(), counts.size() * sizeof(std::int32_t));
    if (!is_normed(point)) return;
    const Mine& own = mine(seat);
    device.produce(own.residual, output_elements(point), point.type, args_.data, ranks_.world_size(), 0);
    device.produce(own.gamma, hidden(), point.type, args_.data, ranks_.world_size() + 1, 0);
    // Overwrites the outputs of the point before, so that they cannot pass for this one's.
    for (void* written : {own.residual_output, own.scales}) device.fill(written, 0xff, args_.max_bytes);
  }
  Counts counts_of_all(const Ranks::Seat& seat) {
    const std::int32_t* const counts = mine(seat).counts;
    return {.rows = counts,
            .padding = shape_.all.padding,
            .slot_rows = shape_.all.slot_rows,
            .slots = shape_.all.padding == Padding::per_rank ? counts + world() + 1 : nullptr};
  }
  bool is_normed(const Point& point) const {
    return form_.norm && !is_peer(point.contender) && point.contender != Contender::unfused;
  }
  // The row of a residual of all of the output's rows at which this rank's shard begins.
  std::size_t first_row(const Ranks::Seat& seat) const {
    return shape_.rows_between(shape_.gathers() ? 0 : shape_.first_of(me(seat)), me(seat));
  }
  // Tensors of the norm, of which this rank adds and makes its shard's.
  CrossingRmsNormArgs normed_args(Ranks::Seat& seat, const Point& point) {
    const auto [input, output] = buffers(seat, point);
    const Mine& own = mine(seat);
    CrossingRmsNormArgs args{.input = input,
                             .residual = static_cast<std::byte*>(own.residual) + first_row(seat) * shape_.row_bytes(),
                             .residual_output = own.residual_output,
                             .gamma = own.gamma,
                             .hidden = hidden(),
                             .type = point.type,
                             .epsilon = kEpsilon,
                             .group_ranks = attn_tp(),
                             .counts = counts_of_all(seat),
                             .input_rows = shape_.input_rows(),
                             .shard_rows = shape_.all.most_rows(),
                             .output_rows = shape_.output_rows(),
                             .stream = rank(seat).device->stream(),
                             .launch = point.launch};
    if (form_.norm->fp8) {
      args.fp8 = {.rows = output, .scaling = *form_.norm->fp8, .scales = own.scales};
    } else {
      args.output = output;
    }
    return args;
  }

  void enqueue(Ranks::Seat& seat, const Point& point) override {
    if (is_peer(point.contender)) return move_by_peer(seat, point);
    if (point.contender == Contender::separate) return call_separately(seat, point);
    if (is_normed(point)) {
      const CrossingRmsNormArgs args = normed_args(seat, point);
      return gathers(point) ? gather_sums_rms_norm(seat.communicator(), args)
                            : scatter_sums_rms_norm(seat.communicator(), args);
    }
    const auto [input, output] = buffers(seat, point);
    const CrossingArgs args{.input = input,
                            .output = output,
                            .width = hidden(),
                            .type = point.type,
                            .group_ranks = attn_tp(),
                            .counts = counts_of_all(seat),
                            .input_rows = shape_.input_rows(),
                            .output_rows = shape_.output_rows(),
                            .stream = rank(seat).device->stream(),
                            .launch = point.launch};
    gathers(point) ? gather_sums(seat.communicator(), args) : scatter_sums(seat.communicator(), args);
  }

  void call_separately(Ranks::Seat& seat, const Point& point) {
    const auto [input, output] = buffers(seat, point);
    const Mine& own = mine(seat);
    const Stream stream = rank(seat).device->stream();
    const Counts of_all = counts_of_all(seat);
    const Counts of_group{.rows = own.counts + world(), .sharding = Sharding::balanced};
    const Group& everybody = seat.communicator().world();
    // Groups of one rank have nothing to sum in a gather, and nothing to share in a scatter.
    const bool sums = attn_tp() > 1 || !gathers(point), shares = attn_tp() > 1 || gathers(point);
    if (sums) {
      reduce_scatter_v(gathers(point) ? *own.group : everybody, {.input = input,
                                                                 .output = own.shard,
                                                                 .width = hidden(),
                                                                 .type = point.type,
                                                                 .counts = gathers(point) ? of_group : of_all,
                                                                 .input_rows = shape_.input_rows(),
                                                                 .output_rows = shape_.all.most_slot(),
                                                                 .stream = stream,
                                                                 .launch = point.launch});
    }
    GatheredTensor tensors[] = {
        {.input = own.shard, .output = output, .row_bytes = hidden() * size_of(point.type)},
        {.input = own.shard_scales, .output = own.scales, .row_bytes = hidden() / kScaleColumns * sizeof(float)}};
    if (form_.norm) norm_shard(seat, point, sums ? own.shard : input, shares ? own.shard_normed : output);
    if (form_.norm) tensors[0].input = own.shard_normed;
    if (form_.norm && form_.norm->fp8) tensors[0].row_bytes = hidden();
    if (!shares) return;
    all_gather_v(gathers(point) ? everybody : *own.group,
                 {.tensors = {tensors, form_.norm && form_.norm->fp8 ? 2u : 1u},
                  .counts = gathers(point) ? of_all : of_group,
                  .input_rows = shape_.all.most_rows(),
                  .output_rows = shape_.output_rows(),
                  .stream = stream,
                  .launch = point.launch});
  }
  // Residual and norm of the whole room for a shard, as a captured graph would make them: no counts are read.
  void norm_shard(Ranks::Seat& seat, const Point& point, const void* sums, void* normed) {
    const CrossingRmsNormArgs of = normed_args(seat, point);
    AllReduceRmsNormArgs args{.input = sums,
                              .residual = of.residual,
                              .residual_output = of.residual_output,
                              .gamma = of.gamma,
                              .tokens = shape_.all.most_rows(),
                              .hidden = of.hidden,
                              .type = of.type,
                              .epsilon = of.epsilon,
                              .stream = of.stream};
    if (form_.norm->fp8) {
      args.fp8 = of.fp8;
      args.fp8.rows = normed;
      if (attn_tp() > 1 || gathers(point)) args.fp8.scales = mine(seat).shard_scales;
    } else {
      args.output = normed;
    }
    all_reduce_rms_norm(*mine(seat).alone, args);
  }

  // Groups of one rank need only one of the two calls.
  void move_by_peer(Ranks::Seat& seat, const Point& point) {
    const auto [input, output] = buffers(seat, point);
    Peer& peer = *rank(seat).peer;
    const Stream stream = rank(seat).device->stream();
    const bool ragged = point.contender == Contender::nccl_grouped;
    const bool sums = attn_tp() > 1 || !gathers(point), shares = attn_tp() > 1 || gathers(point);
    const GatherShape group = shape_.group(me(seat));
    const auto move = [&](Operation operation, bool over_all, const void* from, void* to) {
      GatherShape shape = over_all ? shape_.all : group;
      shape.operation = operation;
      over_all || !has_inner_groups() ? peer.move(shape, from, to, stream)
                                      : peer.move_in_group(shape, from, to, stream);
    };
    // NCCL's symmetric kernels need windows: sums go to their place in the output, where they are gathered.
    const std::size_t first =
        gathers(point) ? shape_.all.first_row(me(seat)) : group.first_row(me(seat) - shape_.first_of(me(seat)));
    void* const shard = static_cast<std::byte*>(output) + first * shape_.row_bytes();
    if (sums) move(ragged ? Operation::reduce_scatter_v : Operation::reduce_scatter, !gathers(point), input, shard);
    if (shares)
      move(ragged ? Operation::all_gather_v : Operation::all_gather, gathers(point), sums ? shard : input, output);
  }

  std::string verify(Ranks::Seat& seat, const Point& point) override {
    const CrossingOutput output{.rank = me(seat),
                                .rows = rank(seat).host,
                                .exact = is_exact(point),
                                // The calls inside of a group know nothing of pads.
                                .has_pads = gathers(point) || point.contender != Contender::separate};
    if (!is_normed(point)) return reference_.check(output);
    const auto download = [&](const void* from, std::size_t bytes) {
      std::vector<std::byte> content(bytes);
      rank(seat).device->download(content.data(), from, bytes);
      return content;
    };
    const auto residual = download(mine(seat).residual_output, shape_.all.rows[me(seat)] * shape_.row_bytes());
    const std::size_t row_scales = form_.norm->fp8 ? hidden() / kScaleColumns * sizeof(float) : 0;
    const auto scales = download(mine(seat).scales, shape_.output_rows() * row_scales);
    return reference_.check(output, {.form = *form_.norm, .epsilon = kEpsilon, .residual = residual, .scales = scales});
  }

  static constexpr float kEpsilon = 1e-6f;
  CrossingForm form_;
  std::vector<Mine> seats_;
  std::optional<BenchOutputs> outputs_;
  // State of the running point.
  CrossingShape shape_;
  CrossingReference reference_;
};

}  // namespace

std::unique_ptr<Bench> open_crossing_bench(Ranks& ranks, const BenchArgs& args, const CrossingForm& form) {
  return std::make_unique<CrossingMeasurement>(ranks, args, form);
}

}  // namespace weft::cli
