// Measures Weft's all-reduces, and the peer's (NCCL or Gloo).
#include <optional>
#include <vector>

#include "bench/bench_outputs.hpp"
#include "bench/checker.hpp"
#include "bench/push.hpp"
#include "bench/rank_bench.hpp"

namespace weft::cli {
namespace {

class AllReduceMeasurement final : public RankBench {
 public:
  AllReduceMeasurement(Ranks& ranks, const BenchArgs& args) : RankBench(ranks, args) {
    const int world = ranks_.world_size();
    if (!args.peers || ranks_.device() != Device::cuda || world < 2 || world > kMostPushed) return;
    outputs_.emplace(ranks_, 2 * args.max_bytes);
  }

  std::vector<Contender> contenders(Operation operation) const override {
    std::vector<Contender> all = {Contender::one_shot, Contender::two_shot, Contender::pipelined, Contender::automatic};
    for (const auto multimem : {Contender::multimem_one_shot, Contender::multimem_two_shot}) {
      if (args_.multicast) all.push_back(multimem);
    }
    if (outputs_ && outputs_->can_be_pushed_to()) all.push_back(Contender::push);
    for (const auto peer : peers(operation)) all.push_back(peer);
    return all;
  }

 private:
  std::size_t input_elements(const Point& point) const override { return point.count; }
  std::size_t output_elements(const Point& point) const override {
    if (point.contender != Contender::push) return point.count;
    return pushed_elements(point) * static_cast<std::size_t>(ranks_.world_size());
  }
  // A push stores to each peer as many bytes as leave a rank in the two hops of an all-reduce, in whole packs.
  std::size_t pushed_elements(const Point& point) const {
    const std::size_t pack = 16, to_each = 2 * point.bytes() / static_cast<std::size_t>(ranks_.world_size());
    return to_each / pack * pack / size_of(point.type);
  }

  void enqueue(Ranks::Seat& seat, const Point& point) override {
    const auto [input, output] = buffers(seat, point);
    Rank& mine = rank(seat);
    if (point.contender == Contender::push) return push(seat, point);
    if (!is_weft(point.contender)) return mine.peer->all_reduce(point, input, output, mine.device->stream());
    constexpr Algorithm algorithms[] = {Algorithm::automatic,         Algorithm::one_shot,
                                        Algorithm::two_shot,          Algorithm::pipelined,
                                        Algorithm::multimem_one_shot, Algorithm::multimem_two_shot};
    weft::all_reduce(seat.communicator(), {.input = input,
                                           .output = output,
                                           .count = point.count,
                                           .type = point.type,
                                           .op = point.op,
                                           .algorithm = algorithms[static_cast<int>(point.contender)],
                                           .stream = mine.device->stream(),
                                           .launch = point.launch});
  }

  Buffers buffers(const Ranks::Seat& seat, const Point& point) override {
    Buffers own = RankBench::buffers(seat, point);
    if (point.contender == Contender::push) own.output = outputs_->data(seat);
    return own;
  }

  void push(const Ranks::Seat& seat, const Point& point) {
    const std::size_t bytes = pushed_elements(point) * size_of(point.type);
    if (bytes == 0) throw Error(Errc::invalid_argument, "a plain push stores 16 bytes or more to each peer");
    outputs_->push(
        seat, {.input = buffers(seat, point).input, .bytes = bytes, .to_itself = false, .blocks = point.launch.blocks},
        rank(seat).device->stream());
  }

  std::string verify(Ranks::Seat& seat, const Point& point) override {
    if (point.contender == Contender::push)
      return check_pushed({.data = rank(seat).host.data(),
                           .elements = pushed_elements(point),
                           .type = point.type,
                           .pattern = args_.data,
                           .rank = seat.rank(),
                           .ranks = ranks_.world_size()});
    checker_.prepare(seat, ranks_.local_size(),
                     {.count = point.count,
                      .type = point.type,
                      .op = point.op,
                      .data = args_.data,
                      .ranks = ranks_.world_size(),
                      .step = kLastStep});
    return checker_.check(rank(seat).host, is_exact(point));
  }

  Checker checker_;
  std::optional<BenchOutputs> outputs_;  // for pushes only
};

}  // namespace

std::unique_ptr<Bench> open_bench(Ranks& ranks, const BenchArgs& args) {
  return std::make_unique<AllReduceMeasurement>(ranks, args);
}

}  // namespace weft::cli
