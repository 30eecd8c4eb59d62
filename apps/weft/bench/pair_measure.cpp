#include "bench/pair_measure.hpp"

#include <algorithm>

#include "bench/checker.hpp"
#include "bench/rank_bench.hpp"
#include "comm/state.hpp"

namespace weft::cli {
namespace {

constexpr std::size_t kIdleBytes = 16;

class PairMeasurement final : public PairBench, private RankBench {
 public:
  PairMeasurement(Ranks& ranks, const BenchArgs& args)
      : RankBench(ranks, args),
        groups_(static_cast<std::size_t>(ranks.local_size()),
                std::vector<Group>(static_cast<std::size_t>(ranks.world_size()))) {
    const int size = ranks.world_size();
    ranks_.each([&](Ranks::Seat& seat) {
      if (size == 2) group_with(seat, 1 - seat.rank()) = seat.communicator().world();
      for (int round = 0; round < pair_rounds(size); ++round) {
        const int peer = partner(seat.rank(), round, size);
        Group pair = seat.split(peer < 0 ? -1 : std::min(seat.rank(), peer));
        if (peer >= 0) group_with(seat, peer) = std::move(pair);
      }
    });
  }

  Result copy(int from, int to, std::size_t count, int samples) override {
    first_ = from;
    second_ = to;
    copies_ = true;
    return RankBench::run({.count = count, .type = DataType::i32, .method = methods().front()}, samples);
  }

  // Only one pair runs at a time, so its call may use the whole GPU. The default of a group's call is smaller.
  Result all_reduce(int a, int b, std::size_t count, int samples) override {
    first_ = std::min(a, b);
    second_ = std::max(a, b);
    copies_ = false;
    Point point{.count = count, .method = methods().front()};
    if (ranks_.device() == Device::cuda && point.bytes() > kLatencyBytes)
      point.launch.blocks = ranks_.first().world().state().communicator().fabric().max_blocks();
    return RankBench::run(point, samples);
  }

 private:
  static constexpr std::size_t kLatencyBytes = 64 << 10;

  std::vector<Contender> contenders(Operation) const override { return {Contender::automatic}; }
  std::size_t input_elements(const Point& point) const override { return point.count; }
  std::size_t output_elements(const Point& point) const override { return point.count; }

  Group& group_with(const Ranks::Seat& seat, int peer) {
    return groups_[static_cast<std::size_t>(seat.local_index())][static_cast<std::size_t>(peer)];
  }
  bool takes_part(const Ranks::Seat& seat) const { return seat.rank() == first_ || seat.rank() == second_; }
  // The root of a copy and the first rank of a pair that sums send pattern 0.
  int pattern_rank(const Ranks::Seat& seat) const override { return seat.rank() == first_ ? 0 : 1; }

  void enqueue(Ranks::Seat& seat, const Point& point) override {
    Rank& mine = rank(seat);
    if (!takes_part(seat)) return mine.device->fill(mine.output, 0, kIdleBytes);  // a graph must not be empty
    const Group& pair = group_with(seat, seat.rank() == first_ ? second_ : first_);
    const auto [input, output] = buffers(seat, point);
    if (copies_)
      return broadcast(pair, {.input = input,
                              .output = output,
                              .row_bytes = point.bytes(),
                              .root = first_ < second_ ? 0 : 1,
                              .stream = mine.device->stream(),
                              .launch = point.launch});
    weft::all_reduce(pair, {.input = input,
                            .output = output,
                            .count = point.count,
                            .type = point.type,
                            .stream = mine.device->stream(),
                            .launch = point.launch});
  }

  std::string verify(Ranks::Seat& seat, const Point& point) override {
    checker_.prepare(
        seat, ranks_.local_size(),
        {.count = point.count, .type = point.type, .data = args_.data, .ranks = copies_ ? 1 : 2, .step = kLastStep});
    return takes_part(seat) ? checker_.check(rank(seat).host, true) : std::string();
  }

  std::vector<std::vector<Group>> groups_;  // [rank of this process][peer]
  Checker checker_;
  int first_ = 0, second_ = 1;  // for a copy: from, to
  bool copies_ = false;
};

}  // namespace

// The circle method of round-robin tournaments: one rank stays, the others rotate.
int partner(int rank, int round, int ranks) {
  const int even = ranks + ranks % 2, turning = even - 1;
  int peer = turning;
  if (rank == turning) {
    peer = round * (even / 2) % turning;  // the rank that would meet itself
  } else if (const int opposite = ((round - rank) % turning + turning) % turning; opposite != rank) {
    peer = opposite;
  }
  return peer < ranks ? peer : -1;
}

std::unique_ptr<PairBench> open_pair_bench(Ranks& ranks, std::size_t max_bytes) {
  return std::make_unique<PairMeasurement>(
      ranks, BenchArgs{.data = Data::random, .max_bytes = std::max(max_bytes, kIdleBytes), .peers = false});
}

}  // namespace weft::cli
