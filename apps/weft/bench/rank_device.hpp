// Memory and time of one rank of a benchmark, on a CPU rank or a GPU rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/ranks.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// The step whose input the last operation of a graph meets, so that its result is what every method leaves behind.
inline constexpr int kLastStep = 19;

// Inputs that timed operations take in turns, so that what an earlier call brought is not what this one must bring: the
// data of two calls before, too, as the protocol's banks take turns by twos. Each begins so many bytes behind the one
// before it in one buffer, which costs no time, and next to no memory or cache.
inline constexpr int kInputs = 3;
inline constexpr std::size_t kInputStep = 256;
inline constexpr std::size_t kInputRoom = (kInputs - 1) * kInputStep;
// Which one an operation reads that has so many behind it. The last one reads the first.
constexpr int input_of(std::int64_t behind) {
  return static_cast<int>(behind % kInputs);
}

// What is timed. Method::producer: `produce` runs before every operation; without `operation` it is timed alone.
struct Timing {
  Method method = Method::batch;
  int samples = 1;
  std::function<void(int input)> operation = {};  // enqueues one that reads this one of its inputs
  std::function<void(int step)> produce = {};     // enqueues the rewriting of its first input
  // Enqueues the overwriting of the output, so that what an earlier sample left does not pass for the last one's.
  std::function<void()> poison = {};
  // The operation waits for no other rank, so that poison would come too late for what a faster one has stored.
  bool waits_for_nobody = false;
};

class RankDevice {
 public:
  virtual ~RankDevice() = default;
  virtual void* allocate(std::size_t bytes) = 0;  // freed with the device
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill(void* to, int byte, std::size_t bytes) = 0;  // in the order of the stream
  // Writes, in the order of the stream, what `rank` sends in `step`: cli::fill().
  virtual void produce(void* to, std::size_t count, DataType type, Data data, int rank, int step) = 0;
  virtual Stream stream() const = 0;
  // Makes its GPU the calling thread's; the functions here do so themselves.
  virtual void use() const = 0;

  // Runs `operation` alone for the first time; waits until it is done.
  virtual void run(Ranks::Seat& seat, const std::function<void()>& operation) = 0;
  // µs per operation, one number for each sample (see Method). Collective.
  virtual std::vector<double> time(Ranks::Seat& seat, const Timing& timing) = 0;
};

std::unique_ptr<RankDevice> open_cpu_rank();
std::unique_ptr<RankDevice> open_cuda_rank(int device);  // only in a build with CUDA
std::unique_ptr<RankDevice> open_rank_device(const Ranks& ranks, const Ranks::Seat& seat);

// How time can be taken on such ranks.
std::vector<Method> methods_of(Device device);

}  // namespace weft::cli
