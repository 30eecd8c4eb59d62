// Timing on GPU ranks: CUDA graphs of many operations, events around replays (see Method).
#include <chrono>
#include <span>
#include <string>

#include "checker.hpp"
#include "cuda_check.hpp"
#include "cuda_graph.hpp"
#include "measure.hpp"
#include "nccl_peer.hpp"
#include "producer.hpp"

namespace weft::cli {
namespace {

constexpr int kOperations = 20;  // per graph
constexpr int kLastStep = kOperations - 1;
constexpr int kVllmOperations = 10;
constexpr int kVllmWarmUps = 5;
constexpr int kVllmTrials = 50;
constexpr int kVllmRepeats = 3;  // of the whole: a host's hiccup of 0.2 s is 400 µs of a wall clock's mean

// One rank: its device, stream, buffers and peer.
struct RankState {
  int device = 0;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  void* input = nullptr;
  void* output = nullptr;
  std::vector<std::byte> host;
  std::unique_ptr<NcclPeer> nccl;
};

class CudaBench final : public Bench {
 public:
  CudaBench(Ranks& ranks, const BenchArgs& args) : ranks_(ranks), args_(args) {
    states_.resize(static_cast<std::size_t>(ranks.local_size()));
    const bool share = ranks.local_size() > usable_gpus();
    if (share) notes_.push_back("NCCL: several ranks share a GPU here, which NCCL does not do");
    const bool peer = !share && ranks.world_size() > 1;
    ranks.each([&](Ranks::Seat& seat) { open(seat, peer); });
    if (!peer) return;
    contenders_.push_back(Contender::nccl);
    const auto& problem = states_.front().nccl->symmetric_problem();
    if (problem.empty()) contenders_.push_back(Contender::nccl_symmetric);
    if (!problem.empty()) notes_.push_back("NCCL on symmetric windows: " + problem);
  }

  ~CudaBench() override {
    try {
      ranks_.each([&](Ranks::Seat& seat) { close(seat); });
    } catch (const std::exception&) {
      // A rank failed before; the process is about to end with its message.
    }
  }

  std::vector<Contender> contenders() const override { return contenders_; }
  std::vector<Method> methods() const override { return {Method::graph, Method::producer, Method::vllm}; }
  std::vector<std::string> notes() const override { return notes_; }

  Result run(const Point& point, int sample_count) override;

 private:
  RankState& state(const Ranks::Seat& seat) { return states_[static_cast<std::size_t>(seat.local_index())]; }

  void open(Ranks::Seat& seat, bool peer);
  void close(Ranks::Seat& seat);
  void* input(const RankState& rank, const Point& point) const {
    return point.contender == Contender::nccl_symmetric ? rank.nccl->symmetric_input() : rank.input;
  }
  void* output(const RankState& rank, const Point& point) const {
    return point.contender == Contender::nccl_symmetric ? rank.nccl->symmetric_output() : rank.output;
  }
  void enqueue(Ranks::Seat& seat, const Point& point);
  void synchronize(Ranks::Seat& seat);
  void poison(Ranks::Seat& seat, const Point& point);
  std::string warm_up(Ranks::Seat& seat, const Point& point);  // gives the algorithm chosen
  std::string verify(Ranks::Seat& seat, const Point& point);
  struct Content {  // of a graph: producers, operations, or both in turn
    bool producers = false;
    bool operations = false;
  };
  std::vector<double> time_graph(Ranks::Seat& seat, const Point& point, Content content, int sample_count);
  std::vector<double> time_vllm(Ranks::Seat& seat, const Point& point);

  Ranks& ranks_;
  BenchArgs args_;
  Checker checker_;
  std::vector<RankState> states_;
  std::vector<Contender> contenders_ = {Contender::one_shot, Contender::two_shot, Contender::bulk,
                                        Contender::automatic};
  std::vector<std::string> notes_;
};

void CudaBench::open(Ranks::Seat& seat, bool peer) {
  RankState& rank = state(seat);
  rank.device = ranks_.cuda_device(seat);
  check(cudaSetDevice(rank.device), "cudaSetDevice");
  check(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  check(cudaEventCreate(&rank.begin), "cudaEventCreate");
  check(cudaEventCreate(&rank.end), "cudaEventCreate");
  const auto bytes = std::max<std::size_t>(args_.max_bytes, 1);
  check(cudaMalloc(&rank.input, bytes), "cudaMalloc");
  check(cudaMalloc(&rank.output, bytes), "cudaMalloc");
  if (peer) rank.nccl = std::make_unique<NcclPeer>(seat, bytes);
}

void CudaBench::close(Ranks::Seat& seat) {
  RankState& rank = state(seat);
  check(cudaSetDevice(rank.device), "cudaSetDevice");
  rank.nccl.reset();
  static_cast<void>(cudaFree(rank.input));
  static_cast<void>(cudaFree(rank.output));
  static_cast<void>(cudaEventDestroy(rank.begin));
  static_cast<void>(cudaEventDestroy(rank.end));
  static_cast<void>(cudaStreamDestroy(rank.stream));
}

void CudaBench::enqueue(Ranks::Seat& seat, const Point& point) {
  RankState& rank = state(seat);
  if (!is_weft(point.contender))
    return rank.nccl->all_reduce(point, input(rank, point), output(rank, point), rank.stream);
  constexpr Algorithm algorithms[] = {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot, Algorithm::bulk};
  all_reduce(seat.communicator(), {.input = rank.input,
                                   .output = rank.output,
                                   .count = point.count,
                                   .type = point.type,
                                   .op = point.op,
                                   .algorithm = algorithms[static_cast<int>(point.contender)],
                                   .stream = rank.stream,
                                   .launch = point.launch});
}

void CudaBench::synchronize(Ranks::Seat& seat) {
  check(cudaStreamSynchronize(state(seat).stream), "cudaStreamSynchronize");
  seat.communicator().check();
}

void CudaBench::poison(Ranks::Seat& seat, const Point& point) {
  RankState& rank = state(seat);
  check(cudaMemsetAsync(output(rank, point), 0xff, point.bytes(), rank.stream), "cudaMemset");
}

std::string CudaBench::warm_up(Ranks::Seat& seat, const Point& point) {
  RankState& rank = state(seat);
  check(cudaSetDevice(rank.device), "cudaSetDevice");
  enqueue_produce(input(rank, point), point, args_.data, seat.rank(), kLastStep, rank.stream);
  enqueue(seat, point);
  const auto chosen = is_weft(point.contender) ? chosen_algorithm(seat.communicator()) : std::string();
  for (int i = 0; i < 2; ++i) enqueue(seat, point);
  synchronize(seat);
  return chosen;
}

std::vector<double> CudaBench::time_graph(Ranks::Seat& seat, const Point& point, Content content, int sample_count) {
  RankState& rank = state(seat);
  const Graph graph(rank.stream, [&] {
    for (int step = 0; step < kOperations; ++step) {
      if (content.producers) enqueue_produce(input(rank, point), point, args_.data, seat.rank(), step, rank.stream);
      if (content.operations) enqueue(seat, point);
    }
  });
  std::vector<double> samples;
  for (int s = 0; s < sample_count; ++s) {
    seat.barrier();
    graph.replay(rank.stream);
    // What an earlier replay left behind must not pass for the last one's result.
    if (content.operations && s + 1 == sample_count) poison(seat, point);
    check(cudaEventRecord(rank.begin, rank.stream), "cudaEventRecord");
    graph.replay(rank.stream);
    check(cudaEventRecord(rank.end, rank.stream), "cudaEventRecord");
    synchronize(seat);
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, rank.begin, rank.end), "cudaEventElapsedTime");
    samples.push_back(milliseconds * 1e3 / kOperations);
  }
  seat.barrier();  // no rank frees its graph while another one's waits for it
  return samples;
}

std::vector<double> CudaBench::time_vllm(Ranks::Seat& seat, const Point& point) {
  RankState& rank = state(seat);
  const Graph graph(rank.stream, [&] {
    for (int i = 0; i < kVllmOperations; ++i) enqueue(seat, point);
  });
  std::vector<double> samples;
  for (int repeat = 0; repeat < kVllmRepeats; ++repeat) {
    seat.barrier();
    for (int i = 0; i < kVllmWarmUps; ++i) graph.replay(rank.stream);
    poison(seat, point);
    synchronize(seat);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kVllmTrials; ++i) graph.replay(rank.stream);
    synchronize(seat);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    samples.push_back(time.count() / kVllmTrials / kVllmOperations);
  }
  seat.barrier();
  return samples;
}

std::string CudaBench::verify(Ranks::Seat& seat, const Point& point) {
  RankState& rank = state(seat);
  checker_.prepare(seat, ranks_.local_size(),
                   {.count = point.count,
                    .type = point.type,
                    .op = point.op,
                    .data = args_.data,
                    .ranks = ranks_.world_size(),
                    .step = kLastStep});
  rank.host.resize(point.bytes());
  check(cudaMemcpyAsync(rank.host.data(), output(rank, point), point.bytes(), cudaMemcpyDeviceToHost, rank.stream),
        "cudaMemcpy");
  check(cudaStreamSynchronize(rank.stream), "cudaStreamSynchronize");
  // Weft's sums have the reference's bits whatever the data; a peer's order of additions is its own.
  return checker_.check(rank.host, is_weft(point.contender) || args_.data == Data::integers);
}

Result CudaBench::run(const Point& point, int sample_count) {
  Result result{.point = point};
  std::vector<std::string> wrong(states_.size());
  std::vector<std::vector<double>> flags;
  ranks_.each([&](Ranks::Seat& seat) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    std::string chosen;
    try {
      chosen = warm_up(seat, point);
    } catch (const Error& error) {
      if (!is_rejection(error)) throw;
      wrong[index] = error.what();
      return;
    }
    seat.barrier();
    std::vector<double> baseline;
    if (point.method == Method::producer) baseline = time_graph(seat, point, {.producers = true}, sample_count);
    const bool producers = point.method == Method::producer;
    const auto samples = point.method == Method::vllm
                             ? time_vllm(seat, point)
                             : time_graph(seat, point, {.producers = producers, .operations = true}, sample_count);
    wrong[index] = verify(seat, point);
    auto all_samples = seat.gather(samples);
    auto all_flags = seat.gather({wrong[index].empty() ? 0.0 : 1.0});
    auto all_baselines = baseline.empty() ? std::vector<std::vector<double>>{} : seat.gather(baseline);
    if (index != 0) return;
    result.chosen = chosen;
    result.samples_us = std::move(all_samples);
    result.baseline_us = std::move(all_baselines);
    flags = std::move(all_flags);
  });
  for (const auto& detail : wrong)
    if (result.detail.empty()) result.detail = detail;
  if (result.samples_us.empty()) return result;  // rejected

  result.verdict = Verdict::ok;
  for (const auto& flag : flags)
    if (flag.front() != 0) result.verdict = Verdict::wrong;
  result.us = operation_us(result);
  return result;
}

}  // namespace

std::unique_ptr<Bench> open_cuda_bench(Ranks& ranks, const BenchArgs& args) {
  return std::make_unique<CudaBench>(ranks, args);
}

}  // namespace weft::cli
