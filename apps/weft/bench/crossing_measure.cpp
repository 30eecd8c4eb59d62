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
  std::size_t group_rows(const Point& point, int rank) const {
    const std::vector<std::size_t> rows = rows_of(point);
    return sum(
        std::span(rows).subspan(static_cast<std::size_t>(form_.layout.attn_dp_rank(rank)) * attn_tp(), attn_tp()));
  }
  std::size_t most_rows(const Point& point) const { return group_rows(point, 0); }  // no group has more
  std::size_t input_elements(const Point& point) const override {
    return (gathers(point) ? most_rows(point) : sum(rows_of(point))) * hidden();
  }
  std::size_t output_elements(const Point& point) const override {
    return (gathers(point) ? sum(rows_of(point)) : most_rows(point)) * hidden();
  }

  // Groups are made only when needed: with groups, a call on all ranks has fewer of the GPU's blocks.
  void begin(const Point& point) override {
    if (point.contender != Contender::separate || seats_.front().group) return;
    ranks_.each([&](Ranks::Seat& seat) { mine(seat).group = seat.split(form_.layout.attn_tp_color(seat.rank())); });
  }

  void prepare(Ranks::Seat& seat, const Point& point) override {
    const std::vector<std::size_t> rows = rows_of(point);
    std::vector<std::int32_t> counts(rows.begin(), rows.end());
    counts.push_back(static_cast<std::int32_t>(group_rows(point, seat.rank())));
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
                            .input_rows = gathers(point) ? most_rows(point) : sum(rows_of(point)),
                            .output_rows = gathers(point) ? sum(rows_of(point)) : most_rows(point),
                            .stream = rank(seat).device->stream(),
                            .launch = point.launch};
    gathers(point) ? gather_sums(seat.communicator(), args) : scatter_sums(seat.communicator(), args);
  }

  void call_separately(Ranks::Seat& seat, const Point& point) {
    const auto [input, output] = buffers(seat, point);
    const Mine& own = mine(seat);
    const std::size_t shard = (most_rows(point) + attn_tp() - 1) / attn_tp(), whole = sum(rows_of(point));
    const Counts of_all{.rows = own.counts};
    const Counts of_group{.rows = own.counts + world(), .sharding = Sharding::balanced};
    const Group& everybody = seat.communicator().world();
    reduce_scatter_v(gathers(point) ? *own.group : everybody, {.input = input,
                                                               .output = own.shard,
                                                               .width = hidden(),
                                                               .type = point.type,
                                                               .counts = gathers(point) ? of_group : of_all,
                                                               .input_rows = gathers(point) ? most_rows(point) : whole,
                                                               .output_rows = shard,
                                                               .stream = rank(seat).device->stream(),
                                                               .launch = point.launch});
    const GatheredTensor tensor{.input = own.shard, .output = output, .row_bytes = hidden() * size_of(point.type)};
    all_gather_v(gathers(point) ? everybody : *own.group, {.tensors = {&tensor, 1},
                                                           .counts = gathers(point) ? of_all : of_group,
                                                           .input_rows = shard,
                                                           .output_rows = gathers(point) ? whole : most_rows(point),
                                                           .stream = rank(seat).device->stream(),
                                                           .launch = point.launch});
  }

  // In groups of all ranks both calls are over all; in groups of one rank only one of them is needed.
  void move_by_peer(Ranks::Seat& seat, const Point& point) {
    const auto [input, output] = buffers(seat, point);
    const std::size_t each = rows_of(point).front();
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
    const std::size_t row_bytes = hidden() * size_of(point.type);
    const std::vector<std::size_t> rows = rows_of(point);
    std::vector<std::vector<std::byte>> inputs;
    std::vector<std::span<const std::byte>> messages;
    for (std::size_t from = 0; from < world(); ++from) {
      auto& input = inputs.emplace_back(input_elements(point) * size_of(point.type));
      fill(input.data(), 0, input_elements(point), point.type, args_.data, static_cast<int>(from), kLastStep);
    }
    for (std::size_t from = 0; from < world(); ++from) {
      const std::size_t own = gathers(point) ? group_rows(point, static_cast<int>(from)) : sum(rows);
      messages.push_back(std::span(inputs[from]).first(own * row_bytes));
    }
    const auto places = oracle::places_of(rows, Padding::none);
    const auto self = static_cast<std::size_t>(seat.rank());
    const auto expected = gathers(point)
                              ? oracle::gathered_sums(point.type, places, attn_tp(), messages, row_bytes)
                              : oracle::scattered_sums(point.type, places, attn_tp(), messages, self, row_bytes);
    const ReferenceArgs sums{
        .count = expected.size() / size_of(point.type), .type = point.type, .data = Data::integers, .ranks = 1};
    const std::span<const std::byte> got = rank(seat).host;
    if (is_exact(point) || attn_tp() == 1) return compare(sums, expected, got.first(expected.size()), is_exact(point));
    // In a group of all ranks, element i is the sum of all ranks' elements i of the pattern.
    return compare(
        {.count = sums.count, .type = point.type, .data = args_.data, .ranks = ranks_.world_size(), .step = kLastStep},
        expected, got.first(expected.size()), false);
  }

  CrossingForm form_;
  std::vector<Mine> seats_;
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
