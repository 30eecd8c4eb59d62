// Times GPU ranks: CUDA graphs of many operations, and events around replays (see Method).
#include <algorithm>
#include <chrono>

#include "bench/producer.hpp"
#include "bench/rank_device.hpp"
#include "common/cuda_graph.hpp"

namespace weft::cli {
namespace {

constexpr int kOperations = kLastStep + 1;  // per graph
constexpr int kVllmOperations = 10;
constexpr int kVllmWarmUps = 5;
constexpr int kVllmTrials = 50;
constexpr int kVllmRepeats = 3;  // of the whole: a hiccup of the host of 0.2 s is 400 µs in a wall clock's mean

class CudaRank final : public RankDevice {
 public:
  explicit CudaRank(int device) : device_(device) {
    use();
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~CudaRank() override {
    static_cast<void>(cudaSetDevice(device_));
    for (void* memory : memory_) static_cast<void>(cudaFree(memory));
    static_cast<void>(cudaEventDestroy(begin_));
    static_cast<void>(cudaEventDestroy(end_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  CudaRank(const CudaRank&) = delete;
  CudaRank& operator=(const CudaRank&) = delete;

  void* allocate(std::size_t bytes) override {
    use();
    void* memory = nullptr;
    check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
    memory_.push_back(memory);
    return memory;
  }
  void upload(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes, cudaMemcpyHostToDevice); }
  void download(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void fill(void* to, int byte, std::size_t bytes) override {
    use();
    check(cudaMemsetAsync(to, byte, bytes, stream_), "cudaMemset");
  }
  void produce(void* to, std::size_t count, DataType type, Data data, int rank, int step) override {
    use();
    enqueue_produce({.buffer = to, .count = count, .type = type, .data = data, .rank = rank, .step = step}, stream_);
  }
  Stream stream() const override { return stream_; }
  // Calls may come from different threads.
  void use() const override { check(cudaSetDevice(device_), "cudaSetDevice"); }

  void run(Ranks::Seat& seat, const std::function<void()>& operation) override {
    use();
    operation();
    synchronize(seat);
  }
  std::vector<double> time(Ranks::Seat& seat, const Timing& timing) override {
    use();
    return timing.method == Method::vllm ? time_replays(seat, timing) : time_graph(seat, timing);
  }
  std::vector<double> trace(Ranks::Seat& seat, const std::function<void()>& operation) override;
  // A node of the graph.
  void mark(Stream stream) override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "cudaEventCreate");
    marks_.push_back(event);
    check(cudaEventRecordWithFlags(event, static_cast<cudaStream_t>(stream), cudaEventRecordExternal),
          "cudaEventRecord");
  }

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    use();
    check(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpy");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void synchronize(Ranks::Seat& seat) {
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    seat.communicator().check();
  }
  void poison(Ranks::Seat& seat, const Timing& timing) {
    const auto wait = [&] {
      if (!timing.waits_for_nobody) return;
      synchronize(seat);
      seat.barrier();
    };
    wait();  // stores before this are done
    timing.poison();
    wait();
  }
  std::vector<double> time_graph(Ranks::Seat& seat, const Timing& timing);
  std::vector<double> time_replays(Ranks::Seat& seat, const Timing& timing);

  int device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<void*> memory_;
  std::vector<cudaEvent_t> marks_;
};

std::vector<double> CudaRank::time_graph(Ranks::Seat& seat, const Timing& timing) {
  const Graph graph(stream_, [&] {
    for (int step = 0; step < kOperations; ++step) {
      const bool produces = timing.method == Method::producer;  // every operation gets the same input, written anew
      if (produces) timing.produce(step);
      if (timing.operation) timing.operation(produces ? 0 : input_of(kLastStep - step));
    }
  });
  std::vector<double> times;
  for (int i = 0; i < timing.samples; ++i) {
    seat.barrier();
    graph.replay(stream_);
    if (timing.operation && i + 1 == timing.samples) poison(seat, timing);
    check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    graph.replay(stream_);
    check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    synchronize(seat);
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    times.push_back(milliseconds * 1e3 / kOperations);
  }
  seat.barrier();  // no rank frees its graph while another rank's graph waits for it
  return times;
}

std::vector<double> CudaRank::time_replays(Ranks::Seat& seat, const Timing& timing) {
  const Graph graph(stream_, [&] {
    for (int behind = kVllmOperations - 1; behind >= 0; --behind) timing.operation(input_of(behind));
  });
  std::vector<double> times;
  for (int repeat = 0; repeat < kVllmRepeats; ++repeat) {
    seat.barrier();
    for (int i = 0; i < kVllmWarmUps; ++i) graph.replay(stream_);
    poison(seat, timing);
    synchronize(seat);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kVllmTrials; ++i) graph.replay(stream_);
    synchronize(seat);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    times.push_back(time.count() / kVllmTrials / kVllmOperations);
  }
  seat.barrier();
  return times;
}

std::vector<double> CudaRank::trace(Ranks::Seat& seat, const std::function<void()>& operation) {
  use();
  marks_.clear();
  const Graph graph(stream_, [&] {
    mark(stream_);
    operation();
  });
  for (int replay = 0; replay < 2; ++replay) {  // the first one brings its kernels
    seat.barrier();
    graph.replay(stream_);
    synchronize(seat);
  }
  std::vector<double> times;
  for (std::size_t i = 1; i < marks_.size(); ++i) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, marks_[0], marks_[i]), "cudaEventElapsedTime");
    times.push_back(milliseconds * 1e3);
  }
  for (cudaEvent_t event : marks_) static_cast<void>(cudaEventDestroy(event));
  seat.barrier();  // as in time_graph()
  return times;
}

}  // namespace

std::unique_ptr<RankDevice> open_cuda_rank(int device) {
  return std::make_unique<CudaRank>(device);
}

}  // namespace weft::cli
