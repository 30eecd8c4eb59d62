// All-reduces, beside those of NCCL or Gloo.
#include "checker.hpp"
#include "rank_bench.hpp"

namespace weft::cli {
namespace {

class AllReduceMeasurement final : public RankBench {
 public:
  using RankBench::RankBench;

  std::vector<Contender> contenders(Operation operation) const override {
    std::vector<Contender> all = {Contender::one_shot, Contender::two_shot, Contender::bulk, Contender::automatic};
    for (const auto multimem : {Contender::multimem_one_shot, Contender::multimem_two_shot}) {
      if (args_.multicast) all.push_back(multimem);
    }
    for (const auto peer : peers(operation)) all.push_back(peer);
    return all;
  }

 private:
  std::size_t input_elements(const Point& point) const override { return point.count; }
  std::size_t output_elements(const Point& point) const override { return point.count; }

  void enqueue(Ranks::Seat& seat, const Point& point) override {
    const auto [input, output] = buffers(seat, point);
    Rank& mine = rank(seat);
    if (!is_weft(point.contender)) return mine.peer->all_reduce(point, input, output, mine.device->stream());
    constexpr Algorithm algorithms[] = {Algorithm::automatic,         Algorithm::one_shot,
                                        Algorithm::two_shot,          Algorithm::bulk,
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

  std::string verify(Ranks::Seat& seat, const Point& point) override {
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
};

}  // namespace

std::unique_ptr<Bench> open_bench(Ranks& ranks, const BenchArgs& args) {
  return std::make_unique<AllReduceMeasurement>(ranks, args);
}

}  // namespace weft::cli
