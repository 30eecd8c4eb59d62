// Timing on CPU ranks: batches of calls between two barriers of threads.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <new>

#include "checker.hpp"
#include "gloo_peer.hpp"
#include "measure.hpp"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBatchUs = 3000;  // long against the wake-up of a thread
constexpr int kMostCalls = 2000;
constexpr std::align_val_t kPage{4096};

struct Free {
  void operator()(std::byte* memory) const { ::operator delete(memory, kPage); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

Buffer allocate(std::size_t bytes) {
  return Buffer(static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), kPage)));
}

class CpuBench final : public Bench {
 public:
  CpuBench(Ranks& ranks, const BenchArgs& args)
      : ranks_(ranks), args_(args), inputs_(local_size()), outputs_(local_size()) {
    if (ranks.local_size() != ranks.world_size()) {
      notes_.push_back("Gloo: only measured when the ranks are threads of one process");
    } else if (ranks.world_size() > 1) {
      gloo_ = open_gloo(ranks.world_size());
      if (!gloo_) notes_.push_back("Gloo: not installed, or weft-gloo-peer.so is not beside this program");
    }
  }

  std::vector<Contender> contenders() const override {
    if (!gloo_) return {Contender::one_shot, Contender::two_shot, Contender::bulk, Contender::automatic};
    return {Contender::one_shot,  Contender::two_shot,  Contender::bulk,
            Contender::automatic, Contender::gloo_ring, Contender::gloo_bcube};
  }
  std::vector<Method> methods() const override { return {Method::batch}; }
  std::vector<std::string> notes() const override { return notes_; }

  Result run(const Point& point, int sample_count) override {
    Result result{.point = point};
    std::vector<std::string> wrong(local_size());
    ranks_.each([&](Ranks::Seat& seat) {
      const auto index = static_cast<std::size_t>(seat.local_index());
      prepare(seat, point);
      std::string chosen;
      try {
        call(seat, point);
        if (is_weft(point.contender)) chosen = chosen_algorithm(seat.communicator());
      } catch (const Error& error) {
        if (!is_rejection(error)) throw;
        wrong[index] = error.what();
        return;
      }
      std::vector<double> samples = time(seat, point, sample_count);
      wrong[index] = checker_.check({outputs_[index].get(), point.bytes()}, is_exact(point));
      samples.push_back(wrong[index].empty() ? 0 : 1);
      auto all = seat.gather(samples);
      if (index == 0) {
        result.samples_us = std::move(all);
        result.chosen = chosen;
      }
    });
    result.verdict = result.samples_us.empty() ? Verdict::unavailable : Verdict::ok;
    for (auto& samples : result.samples_us) {
      if (samples.back() != 0) result.verdict = Verdict::wrong;
      samples.pop_back();
    }
    result.us = operation_us(result);
    for (const auto& detail : wrong)
      if (result.detail.empty()) result.detail = detail;
    return result;
  }

 private:
  std::size_t local_size() const { return static_cast<std::size_t>(ranks_.local_size()); }

  // Weft's sums have the reference's bits whatever the data; a peer's order of additions is its own.
  bool is_exact(const Point& point) const { return is_weft(point.contender) || args_.data == Data::integers; }

  void prepare(Ranks::Seat& seat, const Point& point) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    if (!inputs_[index] || capacity_ < point.bytes()) {
      seat.barrier();
      if (index == 0) capacity_ = std::max(args_.max_bytes, point.bytes());
      seat.barrier();
      inputs_[index] = allocate(capacity_);
      outputs_[index] = allocate(capacity_);
    }
    fill(inputs_[index].get(), 0, point.count, point.type, args_.data, seat.rank(), 0);
    checker_.prepare(
        seat, ranks_.local_size(),
        {.count = point.count, .type = point.type, .op = point.op, .data = args_.data, .ranks = ranks_.world_size()});
  }

  void call(Ranks::Seat& seat, const Point& point) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    const void* input = inputs_[index].get();
    void* output = outputs_[index].get();
    if (is_weft(point.contender)) {
      const Algorithm algorithms[] = {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot, Algorithm::bulk};
      all_reduce(seat.communicator(), {.input = input,
                                       .output = output,
                                       .count = point.count,
                                       .type = point.type,
                                       .op = point.op,
                                       .algorithm = algorithms[static_cast<int>(point.contender)],
                                       .launch = point.launch});
    } else {
      gloo_->all_reduce(seat.rank(), input, output, point.count, point.type, point.op,
                        point.contender == Contender::gloo_bcube);
    }
  }

  double batch(Ranks::Seat& seat, const Point& point, int calls) {
    seat.barrier();
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call(seat, point);
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
  }

  std::vector<double> time(Ranks::Seat& seat, const Point& point, int sample_count) {
    call(seat, point);
    double slowest = 0;
    for (const auto& one : seat.gather({batch(seat, point, 3)})) slowest = std::max(slowest, one.front());
    const int calls = std::clamp(static_cast<int>(kBatchUs / slowest), 1, kMostCalls);

    std::vector<double> samples;
    for (int s = 0; s < sample_count; ++s) {
      const auto index = static_cast<std::size_t>(seat.local_index());
      // What an earlier batch left behind must not pass for the last one's result.
      if (s + 1 == sample_count) std::memset(outputs_[index].get(), 0xff, point.bytes());
      samples.push_back(batch(seat, point, calls));
    }
    return samples;
  }

  Ranks& ranks_;
  BenchArgs args_;
  Checker checker_;
  std::unique_ptr<GlooPeer> gloo_;
  std::vector<std::string> notes_;
  std::size_t capacity_ = 0;
  std::vector<Buffer> inputs_;
  std::vector<Buffer> outputs_;
};

}  // namespace

std::unique_ptr<Bench> open_cpu_bench(Ranks& ranks, const BenchArgs& args) {
  return std::make_unique<CpuBench>(ranks, args);
}

}  // namespace weft::cli
