#include "bench/crossing_measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "bench/rank_bench.hpp"
#include "oracle/moves.hpp"
#include "weft/crossings.hpp"
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
    });
  }

  std::vector<Contender> contenders(Operation) const override {
    std::vector<Contender> all = {Contender::automatic};
    if (attn_tp() > 1) all.push_back(Contender::separate);
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
    std::int32_t* counts = nullptr;  // of all ranks' shards, and of its attention group's tokens
    void* shard = nullptr;           // between two calls
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
    ranks_.each([&](Ranks::Seat& seat) { mine(seat).group = seat.split(form_.layout.attn_tp_color(seat.rank())); });
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

  void prepare(Ranks::Seat& seat, const Point&) override {
    std::vector<std::int32_t> counts(rows_.begin(), rows_.end());
    counts.push_back(static_cast<std::int32_t>(group_rows(rows_, group_of(seat))));
    rank(seat).device->upload(mine(seat).counts, counts.data(), counts.size() * sizeof(std::int32_t));
  }

  void enqueue(Ranks::Seat& seat, const Point& point) override {
    if (is_peer(point.contender)) return move_by_peer(seat, point);
    if (point.contender == Contender::separate) return call_separately(seat, point);
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
    const std::size_t shard = (room_.group + attn_tp() - 1) / attn_tp();
    const Counts of_all{.rows = own.counts};
    const Counts of_group{.rows = own.counts + world(), .sharding = Sharding::balanced};
    const Group& everybody = seat.communicator().world();
    reduce_scatter_v(gathers(point) ? *own.group : everybody, {.input = input,
                                                               .output = own.shard,
                                                               .width = hidden(),
                                                               .type = point.type,
                                                               .counts = gathers(point) ? of_group : of_all,
                                                               .input_rows = room_.input(point),
                                                               .output_rows = shard,
                                                               .stream = rank(seat).device->stream(),
                                                               .launch = point.launch});
    const GatheredTensor tensor{.input = own.shard, .output = output, .row_bytes = hidden() * size_of(point.type)};
    all_gather_v(gathers(point) ? everybody : *own.group, {.tensors = {&tensor, 1},
                                                           .counts = gathers(point) ? of_all : of_group,
                                                           .input_rows = shard,
                                                           .output_rows = room_.output(point),
                                                           .stream = rank(seat).device->stream(),
                                                           .launch = point.launch});
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
    const auto got = std::span<const std::byte>(rank(seat).host).first(expected.size());
    // With groups of one rank a gather sums nothing, and a scatter's sums begin with the rank's own rows.
    const bool alone = attn_tp() == 1;
    const std::size_t first = alone && !gathers(point) ? static_cast<std::size_t>(seat.rank()) * rows_.front() : 0;
    return compare(sums, expected, got, is_exact(point) || (alone && gathers(point)), first * hidden());
  }

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
