#include "norm_measure.hpp"

#include "checker.hpp"
#include "rank_bench.hpp"

namespace weft::cli {
namespace {

constexpr float kEpsilon = 1e-6f;

class NormMeasurement final : public RankBench {
 public:
  NormMeasurement(Ranks& ranks, const BenchArgs& args, std::optional<Fp8Scaling> fp8)
      : RankBench(ranks, args), fp8_(fp8), memory_(static_cast<std::size_t>(ranks.local_size())) {
    ranks_.each([&](Ranks::Seat& seat) {
      RankDevice& device = *rank(seat).device;
      Memory& mine = memory(seat);
      for (void** tensor : {&mine.residual, &mine.residual_output, &mine.gamma, &mine.fp8, &mine.scales}) {
        *tensor = device.allocate(args_.max_bytes);
      }
      device.fill(mine.scales, 0x3f, args_.max_bytes < 4 ? args_.max_bytes : 4);  // of all rows: 0.7
    });
  }

  std::vector<Contender> contenders(Operation operation) const override {
    if (operation == Operation::all_reduce_rms_norm) {
      return {Contender::one_shot, Contender::two_shot, Contender::automatic};
    }
    std::vector<Contender> all = {Contender::automatic};
    for (const auto peer : peers(Operation::all_reduce)) all.push_back(peer);
    return all;
  }

 private:
  struct Memory {
    void *residual, *residual_output, *gamma, *fp8, *scales;
  };
  Memory& memory(const Ranks::Seat& seat) { return memory_[static_cast<std::size_t>(seat.local_index())]; }

  std::size_t input_elements(const Point& point) const override { return point.count; }
  std::size_t output_elements(const Point& point) const override { return point.count; }

  void prepare(Ranks::Seat& seat, const Point& point) override {
    const auto hidden = static_cast<std::size_t>(point.hidden);
    RankDevice& device = *rank(seat).device;
    device.produce(memory(seat).residual, point.count, point.type, args_.data, ranks_.world_size(), 0);
    device.produce(memory(seat).gamma, hidden, point.type, args_.data, ranks_.world_size() + 1, 0);
  }

  void enqueue(Ranks::Seat& seat, const Point& point) override {
    const auto [input, output] = buffers(seat, point);
    Rank& mine = rank(seat);
    const Stream stream = mine.device->stream();
    if (!is_weft(point.contender)) return mine.peer->all_reduce(point, input, output, stream);
    constexpr Algorithm algorithms[] = {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot};
    const Algorithm algorithm = algorithms[static_cast<int>(point.contender)];
    const Group& group = seat.communicator();
    if (point.operation == Operation::all_reduce) {
      return all_reduce(group, {.input = input,
                                .output = output,
                                .count = point.count,
                                .type = point.type,
                                .algorithm = algorithm,
                                .stream = stream,
                                .launch = point.launch});
    }
    const Memory& of = memory(seat);
    Fp8Output fp8;
    if (fp8_) {
      fp8 = {.rows = of.fp8, .scaling = *fp8_, .scale = static_cast<const float*>(of.scales), .scales = of.scales};
    }
    all_reduce_rms_norm(group, {.input = input,
                                .residual = of.residual,
                                .residual_output = of.residual_output,
                                .gamma = of.gamma,
                                .output = output,
                                .fp8 = fp8,
                                .tokens = static_cast<std::size_t>(point.rows),
                                .hidden = static_cast<std::size_t>(point.hidden),
                                .type = point.type,
                                .epsilon = kEpsilon,
                                .algorithm = algorithm,
                                .stream = stream,
                                .launch = point.launch});
  }

  std::string verify(Ranks::Seat& seat, const Point& point) override {
    const ReferenceArgs sum{
        .count = point.count, .type = point.type, .data = args_.data, .ranks = ranks_.world_size(), .step = kLastStep};
    checker_.prepare(seat, ranks_.local_size(), sum);
    const Rank& mine = rank(seat);
    if (point.operation == Operation::all_reduce) return checker_.check(mine.host, is_exact(point));
    return compare_norm({.sum = sum, .hidden = static_cast<std::size_t>(point.hidden), .epsilon = kEpsilon},
                        checker_.reference(), mine.host);
  }

  std::optional<Fp8Scaling> fp8_;
  std::vector<Memory> memory_;
  Checker checker_;
};

}  // namespace

std::unique_ptr<Bench> open_norm_bench(Ranks& ranks, const BenchArgs& args, std::optional<Fp8Scaling> fp8) {
  return std::make_unique<NormMeasurement>(ranks, args, fp8);
}

}  // namespace weft::cli
