#include "bench/crossing_measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "bench/rank_bench.hpp"
#include "oracle/moves.hpp"
#include "weft/crossings.hpp"
#include "weft/fused.hpp"
#include "weft/moe.hpp"
#include "workloads/reference.hpp"

namespace weft::cli {
namespace {

class CrossingMeasurement final : public RankBench {
 public:
  CrossingMeasurement(Ranks& ranks, const BenchArgs& args, const CrossingForm& form)
      : RankBench(ranks, args, 3), form_(form), seats_(static_cast<std::size_t>(ranks.local_size())) {
    ranks_.each([&](Ranks::Seat& seat) {
      Mine& own = mine(seat);
      own.counts = static_cast<std::int32_t*>(rank(seat).device->allocate((world() + 1) * sizeof(std::int32_t)));
      own.shard = rank(seat).device->allocate(args_.max_bytes);
      if (!form_.norm) return;
      for (void** tensor :
           {&own.residual, &own.residual_output, &own.gamma, &own.shard_normed, &own.scales, &own.shard_scales})
        *tensor = rank(seat).device->allocate(args_.max_bytes);
    });
  }

  std::vector<Contender> contenders(Operation) const override {
    std::vector<Contender> all = {Contender::automatic};
    if (attn_tp() > 1 || form_.norm) all.push_back(Contender::separate);
    if (form_.norm) all.push_back(Contender::unfused);
    for (const auto peer : peers(Operation::reduce_scatter)) all.push_back(peer);
    return all;
  }

  Result run(const Point& point, int samples) override {
    if (is_peer(point.contender) && attn_tp() != 1 && attn_tp() != world())
      return {.point = point, .detail = "peers are measured with attention groups of one rank, or of all ranks"};
    return RankBench::run(point, samples);
  }

 private:
  // Belongings of one rank of this process.
  struct Mine {
    std::optional<Group> group;      // its attention group, once needed
    std::optional<Group> alone;      // the rank alone, which norms between two calls
    std::int32_t* counts = nullptr;  // of all ranks' shards, and of its attention group's tokens
    void* shard = nullptr;           // between two calls
    // With a norm. Its residual has a row for each of the output's, of which the rank adds its shard's.
    void *residual = nullptr, *residual_output = nullptr, *gamma = nullptr, *scales = nullptr;
    void *shard_normed = nullptr, *shard_scales = nullptr;
  };
  Mine& mine(const Ranks::Seat& seat) { return seats_[static_cast<std::size_t>(seat.local_index())]; }
  std::size_t world() const { return static_cast<std::size_t>(ranks_.world_size()); }
  std::size_t attn_tp() const { return static_cast<std::size_t>(form_.layout.attn_tp()); }
  std::size_t hidden() const { return static_cast<std::size_t>(form_.hidden); }
  static bool gathers(const Point& point) { return point.operation == Operation::gather_sums; }

  // Rows of each rank's shard. Peers have as many on each, as if all groups had the largest one's tokens.
  std::vector<std::size_t> rows_of(const Point& point) const {
    std::vector<std::size_t> rows;
    for (int rank = 0; rank < ranks_.world_size(); ++rank) {
      const std::size_t tokens = form_.tokens(point, form_.layout.attn_dp_rank(rank));
      rows.push_back(
          shard_of(tokens, form_.layout.attn_tp(), form_.layout.attn_tp_rank(rank), Sharding::balanced).size());
    }
    if (is_peer(point.contender)) std::ranges::fill(rows, rows.front());
    return rows;
  }
  static std::size_t sum(std::span<const std::size_t> rows) {
    return std::accumulate(rows.begin(), rows.end(), std::size_t{0});
  }
  std::size_t group_rows(std::span<const std::size_t> rows, std::size_t group) const {
    return sum(rows.subspan(group * attn_tp(), attn_tp()));
  }
  std::size_t group_of(const Ranks::Seat& seat) const {
    return static_cast<std::size_t>(form_.layout.attn_dp_rank(seat.rank()));
  }
  // Rows of a tensor of one group, of which none has more than the first, and of all.
  struct Room {
    std::size_t group, whole;
    std::size_t input(const Point& point) const { return gathers(point) ? group : whole; }
    std::size_t output(const Point& point) const { return gathers(point) ? whole : group; }
  };
  Room room_of(std::span<const std::size_t> rows) const { return {group_rows(rows, 0), sum(rows)}; }
  std::size_t input_elements(const Point& point) const override {
    return room_of(rows_of(point)).input(point) * hidden();
  }
  std::size_t output_elements(const Point& point) const override {
    return room_of(rows_of(point)).output(point) * hidden();
  }

  // Groups are made only when needed: with groups, a call on all ranks has fewer of the GPU's blocks.
  void begin(const Point& point) override {
    const std::vector<std::size_t> rows = rows_of(point);
    const bool known = point.operation == operation_ && point.type == type_ && rows == rows_;
    operation_ = point.operation, type_ = point.type, rows_ = rows, room_ = room_of(rows);
    if (!known) make_reference(point);
    if (point.contender != Contender::separate || seats_.front().group) return;
    ranks_.each([&](Ranks::Seat& seat) {
      mine(seat).group = seat.split(form_.layout.attn_tp_color(seat.rank()));
      if (form_.norm) mine(seat).alone = seat.split(seat.rank());
    });
  }

  // The right output of each attention group; a gather's is that of all ranks.
  void make_reference(const Point& point) {
    const std::size_t row_bytes = hidden() * size_of(point.type);
    std::vector<std::vector<std::byte>> inputs(world());
    std::vector<std::span<const std::byte>> messages;
    for (std::size_t from = 0; from < world(); ++from) {
      const std::size_t own = gathers(point) ? group_rows(rows_, from / attn_tp()) : room_.whole;
      inputs[from].resize(own * row_bytes);
      fill(inputs[from].data(), 0, own * hidden(), point.type, args_.data, static_cast<int>(from), kLastStep);
      messages.emplace_back(inputs[from]);
    }
    const auto places = oracle::places_of(rows_, Padding::none);
    expected_.clear();
    if (gathers(point)) {
      expected_.push_back(oracle::gathered_sums(point.type, places, attn_tp(), messages, row_bytes));
    } else {
      for (std::size_t first = 0; first < world(); first += attn_tp())
        expected_.push_back(oracle::scattered_sums(point.type, places, attn_tp(), messages, first, row_bytes));
    }
  }

  void prepare(Ranks::Seat& seat, const Point& point) override {
    std::vector<std::int32_t> counts(rows_.begin(), rows_.end());
    counts.push_back(static_cast<std::int32_t>(group_rows(rows_, group_of(seat))));
    RankDevice& device = *rank(seat).device;
    device.upload(mine(seat).counts, counts.data(), counts.size() * sizeof(std::int32_t));
    if (!is_normed(point)) return;
    const Mine& own = mine(seat);
    device.produce(own.residual, output_elements(point), point.type, args_.data, ranks_.world_size(), 0);
    device.produce(own.gamma, hidden(), point.type, args_.data, ranks_.world_size() + 1, 0);
    // Overwrites the outputs of the point before, so that they cannot pass for this one's.
    for (void* written : {own.residual_output, own.scales}) device.fill(written, 0xff, args_.max_bytes);
  }
  bool is_normed(const Point& point) const {
    return form_.norm && !is_peer(point.contender) && point.contender != Contender::unfused;
  }
  // The row of the output at which this rank's shard begins.
  std::size_t first_row(const Ranks::Seat& seat, const Point& point) const {
    const auto me = static_cast<std::size_t>(seat.rank()), first = gathers(point) ? 0 : me / attn_tp() * attn_tp();
    return sum(std::span(rows_).subspan(first, me - first));
  }
  // Tensors of the norm, of which this rank adds and makes its shard's.
  CrossingRmsNormArgs normed_args(Ranks::Seat& seat, const Point& point) {
    const auto [input, output] = buffers(seat, point);
    const Mine& own = mine(seat);
    const std::size_t row_bytes = hidden() * size_of(point.type);
    CrossingRmsNormArgs args{.input = input,
                             .residual = static_cast<std::byte*>(own.residual) + first_row(seat, point) * row_bytes,
                             .residual_output = own.residual_output,
                             .gamma = own.gamma,
                             .hidden = hidden(),
                             .type = point.type,
                             .epsilon = kEpsilon,
                             .group_ranks = attn_tp(),
                             .counts = {.rows = own.counts},
                             .input_rows = room_.input(point),
                             .shard_rows = shard_room(),
                             .output_rows = room_.output(point),
                             .stream = rank(seat).device->stream(),
                             .launch = point.launch};
    if (form_.norm->fp8) {
      args.fp8 = {.rows = output, .scaling = *form_.norm->fp8, .scales = own.scales};
    } else {
      args.output = output;
    }
    return args;
  }
  std::size_t shard_room() const { return (room_.group + attn_tp() - 1) / attn_tp(); }

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
                            .counts = {.rows = mine(seat).counts},
                            .input_rows = room_.input(point),
                            .output_rows = room_.output(point),
                            .stream = rank(seat).device->stream(),
                            .launch = point.launch};
    gathers(point) ? gather_sums(seat.communicator(), args) : scatter_sums(seat.communicator(), args);
  }

  void call_separately(Ranks::Seat& seat, const Point& point) {
    const auto [input, output] = buffers(seat, point);
    const Mine& own = mine(seat);
    const Stream stream = rank(seat).device->stream();
    const Counts of_all{.rows = own.counts};
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
                                                                 .input_rows = room_.input(point),
                                                                 .output_rows = shard_room(),
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
                  .input_rows = shard_room(),
                  .output_rows = room_.output(point),
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
                              .tokens = shard_room(),
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

  // In groups of all ranks both calls are over all; in groups of one rank only one of them is needed.
  void move_by_peer(Ranks::Seat& seat, const Point& point) {
    const auto [input, output] = buffers(seat, point);
    const std::size_t each = rows_.front();
    const auto move = [&](Operation operation, const void* from, void* to) {
      GatherShape shape{.operation = operation, .type = point.type};
      shape.rows.assign(world(), each);
      shape.widths = {hidden()};
      for (std::size_t i = 0; i < world(); ++i) shape.slots.push_back({i * each, (i + 1) * each});
      rank(seat).peer->move(shape, from, to, rank(seat).device->stream());
    };
    if (attn_tp() == 1) return move(gathers(point) ? Operation::all_gather : Operation::reduce_scatter, input, output);
    // NCCL's symmetric kernels need windows: sums go to the begin of the output's, where they are gathered in place.
    auto* const sums =
        static_cast<std::byte*>(output) + static_cast<std::size_t>(seat.rank()) * each * hidden() * size_of(point.type);
    move(Operation::reduce_scatter, input, sums);
    move(Operation::all_gather, sums, output);
  }

  std::string verify(Ranks::Seat& seat, const Point& point) override {
    const auto& expected = expected_[gathers(point) ? 0 : group_of(seat)];
    const ReferenceArgs sums{.count = expected.size() / size_of(point.type),
                             .type = point.type,
                             .data = args_.data,
                             .ranks = ranks_.world_size(),
                             .step = kLastStep};
    const auto host = std::span<const std::byte>(rank(seat).host);
    if (is_normed(point)) return verify_norm(seat, point, sums, expected, host);
    const auto got = host.first(expected.size());
    // With groups of one rank a gather sums nothing, and a scatter's sums begin with the rank's own rows.
    const bool alone = attn_tp() == 1;
    const std::size_t first = alone && !gathers(point) ? static_cast<std::size_t>(seat.rank()) * rows_.front() : 0;
    return compare(sums, expected, got, is_exact(point) || (alone && gathers(point)), first * hidden());
  }

  // Against the norm of the sums that are expected without it.
  std::string verify_norm(Ranks::Seat& seat, const Point& point, const ReferenceArgs& sums,
                          std::span<const std::byte> expected, std::span<const std::byte> host) {
    const auto download = [&](const void* from, std::size_t bytes) {
      std::vector<std::byte> content(bytes);
      rank(seat).device->download(content.data(), from, bytes);
      return content;
    };
    const auto me = static_cast<std::size_t>(seat.rank());
    const std::size_t rows = expected.size() / size_of(point.type) / hidden();
    const auto residual = download(mine(seat).residual_output, rows_[me] * hidden() * size_of(point.type));
    const bool casts = form_.norm->fp8.has_value();
    const auto scales =
        download(mine(seat).scales, casts ? rows * (hidden() / kScaleColumns) * sizeof(float) : std::size_t{0});
    NormOutputs got{.residual = residual, .normed = {}, .residual_row = first_row(seat, point)};
    if (casts) {
      got.fp8 = host.first(rows * hidden()), got.scales = scales;
    } else {
      got.normed = host.first(expected.size());
    }
    return compare_norm({.sum = sums, .hidden = hidden(), .epsilon = kEpsilon, .form = *form_.norm}, expected, got);
  }

  static constexpr float kEpsilon = 1e-6f;
  CrossingForm form_;
  std::vector<Mine> seats_;
  // State of the running point.
  Operation operation_ = Operation::all_reduce;
  DataType type_ = DataType::bf16;
  std::vector<std::size_t> rows_;  // of each rank's shard
  Room room_{};
  std::vector<std::vector<std::byte>> expected_;  // make_reference()
};

}  // namespace

std::size_t CrossingForm::tokens(const Point& point, int group) const {
  return point.load == Load::busy && group > 0 ? 1 : static_cast<std::size_t>(point.rows);
}

std::size_t crossing_bytes(const CrossingForm& form, const Point& point) {
  const auto each = static_cast<std::size_t>(form.layout.attn_tp()), ranks = static_cast<std::size_t>(form.layout.tp);
  const std::size_t shard = (static_cast<std::size_t>(point.rows) + each - 1) / each;
  return shard * ranks * static_cast<std::size_t>(form.hidden) * size_of(point.type);
}

std::unique_ptr<Bench> open_crossing_bench(Ranks& ranks, const BenchArgs& args, const CrossingForm& form) {
  return std::make_unique<CrossingMeasurement>(ranks, args, form);
}

}  // namespace weft::cli
