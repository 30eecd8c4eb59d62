// Times CPU ranks: batches of calls between two barriers of threads.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "bench/rank_device.hpp"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::align_val_t kPage{4096};
constexpr double kBatchUs = 3000;  // long against the wake-up of a thread
constexpr int kMostCalls = 2000;

struct Free {
  void operator()(std::byte* memory) const { ::operator delete(memory, kPage); }
};

class CpuRank final : public RankDevice {
 public:
  void* allocate(std::size_t bytes) override {
    memory_.emplace_back(static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), kPage)));
    return memory_.back().get();
  }
  // A tensor of no bytes has no address.
  void upload(void* to, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override { upload(to, from, bytes); }
  void fill(void* to, int byte, std::size_t bytes) override {
    if (bytes != 0) std::memset(to, byte, bytes);
  }
  void produce(void* to, std::size_t count, DataType type, Data data, int rank, int step) override {
    cli::fill(static_cast<std::byte*>(to), 0, count, type, data, rank, step);
  }
  Stream stream() const override { return nullptr; }
  void use() const override {}

  void run(Ranks::Seat&, const std::function<void()>& operation) override { operation(); }
  std::vector<double> time(Ranks::Seat& seat, const Timing& timing) override {
    std::int64_t behind = kInputs + 1;  // the two calls before the first batch read other inputs than the last call
    const auto batch = [&](int calls) {
      seat.barrier();
      const auto begin = Clock::now();
      for (int i = 0; i < calls; ++i) timing.operation(input_of(--behind));
      return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
    };
    double slowest = 0;
    for (const auto& one : seat.gather({batch(3)})) slowest = std::max(slowest, one.front());
    const int calls = std::clamp(static_cast<int>(kBatchUs / slowest), 1, kMostCalls);
    behind = std::int64_t{calls} * timing.samples;
    std::vector<double> times;
    for (int i = 0; i < timing.samples; ++i) {
      if (i + 1 == timing.samples) timing.poison();
      times.push_back(batch(calls));
    }
    return times;
  }

  std::vector<double> trace(Ranks::Seat& seat, const std::function<void()>& operation) override {
    marks_.clear();
    seat.barrier();
    const Clock::time_point begin = Clock::now();
    operation();
    std::vector<double> times;
    for (const Clock::time_point& mark : marks_)
      times.push_back(std::chrono::duration<double, std::micro>(mark - begin).count());
    return times;
  }
  void mark(Stream) override { marks_.push_back(Clock::now()); }

 private:
  std::vector<Clock::time_point> marks_;
  std::vector<std::unique_ptr<std::byte, Free>> memory_;
};

}  // namespace

std::unique_ptr<RankDevice> open_cpu_rank() {
  return std::make_unique<CpuRank>();
}

#if !WEFT_WITH_CUDA
std::unique_ptr<RankDevice> open_cuda_rank(int) {
  return nullptr;
}
#endif

std::unique_ptr<RankDevice> open_rank_device(const Ranks& ranks, const Ranks::Seat& seat) {
  return ranks.device() == Device::cuda ? open_cuda_rank(ranks.cuda_device(seat)) : open_cpu_rank();
}

std::vector<Method> methods_of(Device device) {
  if (device == Device::cuda) return {Method::graph, Method::producer, Method::vllm};
  return {Method::batch};
}

}  // namespace weft::cli
