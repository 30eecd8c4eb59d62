#include "bench/norm_measure.hpp"

#include "bench/checker.hpp"
#include "bench/rank_bench.hpp"

namespace weft::cli {
namespace {

constexpr float kEpsilon = 1e-6f, kScale = 0.7f;

class NormMeasurement final : public RankBench {
 public:
  NormMeasurement(Ranks& ranks, const BenchArgs& args, const NormForm& form)
      : RankBench(ranks, args, 7), form_(form), memory_(static_cast<std::size_t>(ranks.local_size())) {
    ranks_.each([&](Ranks::Seat& seat) {
      RankDevice& device = *rank(seat).device;
      Memory& mine = memory(seat);
      for (void** tensor : {&mine.residual, &mine.residual_output, &mine.gamma, &mine.fp8, &mine.scales}) {
        *tensor = device.allocate(args_.max_bytes);
      }
      mine.scale = device.allocate(sizeof(kScale));
      device.upload(mine.scale, &kScale, sizeof(kScale));
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
    void *residual, *residual_output, *gamma, *fp8, *scales, *scale;
  };
  Memory& memory(const Ranks::Seat& seat) { return memory_[static_cast<std::size_t>(seat.local_index())]; }

  std::size_t input_elements(const Point& point) const override { return point.count; }
  std::size_t output_elements(const Point& point) const override { return point.count; }

  void prepare(Ranks::Seat& seat, const Point& point) override {
    const auto hidden = static_cast<std::size_t>(point.hidden);
    RankDevice& device = *rank(seat).device;
    device.produce(memory(seat).residual, point.count, point.type, args_.data, ranks_.world_size(), 0);
    device.produce(memory(seat).gamma, hidden, point.type, args_.data, ranks_.world_size() + 1, 0);
    // Overwrites the outputs of the point before, so that they cannot pass for this one's.
    const std::size_t bytes = point.bytes();
    for (void* written : {memory(seat).residual_output, memory(seat).fp8, memory(seat).scales})
      device.fill(written, 0xff, bytes);
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
    if (form_.fp8)
      fp8 = {.rows = of.fp8,
             .scaling = *form_.fp8,
             .scale = static_cast<const float*>(of.scale),
             .scales = of.scales,
             .scale_type = form_.scale_type};
    all_reduce_rms_norm(group, {.input = input,
                                .residual = form_.residual ? of.residual : nullptr,
                                .residual_output = of.residual_output,
                                .gamma = of.gamma,
                                .output = output,
                                .fp8 = fp8,
                                .tokens = static_cast<std::size_t>(point.rows),
                                .hidden = static_cast<std::size_t>(point.hidden),
                                .type = point.type,
                                .epsilon = kEpsilon,
                                .gamma_plus_one = form_.gamma_plus_one,
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
    const auto host = [&](const void* from) {
      std::vector<std::byte> content(point.bytes());
      mine.device->download(content.data(), from, content.size());
      return content;
    };
    const Memory& of = memory(seat);
    const auto residual = host(of.residual_output), fp8 = host(of.fp8), scales = host(of.scales);
    return compare_norm({.sum = sum,
                         .hidden = static_cast<std::size_t>(point.hidden),
                         .epsilon = kEpsilon,
                         .form = form_,
                         .scale = kScale},
                        checker_.reference(),
                        {.residual = residual, .normed = mine.host, .fp8 = fp8, .scales = scales});
  }

  NormForm form_;
  std::vector<Memory> memory_;
  Checker checker_;
};

}  // namespace

std::unique_ptr<Bench> open_norm_bench(Ranks& ranks, const BenchArgs& args, const NormForm& form) {
  return std::make_unique<NormMeasurement>(ranks, args, form);
}

}  // namespace weft::cli
