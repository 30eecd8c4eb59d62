#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "moe_device.hpp"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::align_val_t kPage{4096};
constexpr double kBatchUs = 3000;

struct Free {
  void operator()(std::byte* memory) const { ::operator delete(memory, kPage); }
};

class CpuMoeDevice final : public MoeDevice {
 public:
  void* allocate(std::size_t bytes) override {
    memory_.emplace_back(static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), kPage)));
    return memory_.back().get();
  }
  void upload(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void fill(void* to, int byte, std::size_t bytes) override { std::memset(to, byte, bytes); }
  Stream stream() const override { return nullptr; }

  std::vector<double> time(Ranks::Seat& seat, int samples, const std::function<void()>& operation,
                           const std::function<void()>& before_last) override {
    const auto batch = [&](int calls) {
      seat.barrier();
      const auto begin = Clock::now();
      for (int i = 0; i < calls; ++i) operation();
      return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
    };
    double slowest = 0;
    for (const auto& one : seat.gather({batch(2)})) slowest = std::max(slowest, one.front());
    const int calls = std::clamp(static_cast<int>(kBatchUs / slowest), 1, 1000);
    std::vector<double> times;
    for (int i = 0; i < samples; ++i) {
      if (i + 1 == samples) before_last();
      times.push_back(batch(calls));
    }
    return times;
  }

 private:
  std::vector<std::unique_ptr<std::byte, Free>> memory_;
};

}  // namespace

std::unique_ptr<MoeDevice> open_cpu_moe_device() {
  return std::make_unique<CpuMoeDevice>();
}

#if !WEFT_WITH_CUDA
std::unique_ptr<MoeDevice> open_cuda_moe_device(int) {
  return nullptr;
}
#endif

}  // namespace weft::cli
