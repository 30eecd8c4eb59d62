// Memory and timing of one rank of a benchmark, on a CPU rank or a GPU rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/ranks.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// The step whose input the last operation of a graph reads, so that every method leaves the same result.
inline constexpr int kLastStep = 19;

// Timed operations take these inputs in turns, so that stale data of an earlier call is not this call's. Data of two
// calls before is stale, too: the protocol's banks alternate. Each input begins kInputStep bytes behind the one before
// it in one buffer, which costs no time and little memory or cache.
inline constexpr int kInputs = 3;
inline constexpr std::size_t kInputStep = 256;
inline constexpr std::size_t kInputRoom = (kInputs - 1) * kInputStep;
// The input of an operation that has `behind` operations behind it. The last one reads the first input.
constexpr int input_of(std::int64_t behind) {
  return static_cast<int>(behind % kInputs);
}

// A timed operation. Method::producer runs `produce` before each; without `operation` it times `produce` alone.
struct Timing {
  Method method = Method::batch;
  int samples = 1;
  std::function<void(int input)> operation = {};  // enqueues one that reads its input number `input`
  std::function<void(int step)> produce = {};     // enqueues the rewriting of its first input
  // Enqueues the overwriting of the output, so that an earlier sample's output cannot pass for the last one's.
  std::function<void()> poison = {};
  // The operation waits for no other rank, so poison would overwrite the stores of faster ranks.
  bool waits_for_nobody = false;
};

class RankDevice {
 public:
  virtual ~RankDevice() = default;
  virtual void* allocate(std::size_t bytes) = 0;  // freed with the device
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill(void* to, int byte, std::size_t bytes) = 0;  // in the order of the stream
  // Writes the data that `rank` sends in `step` (cli::fill()), in the order of the stream.
  virtual void produce(void* to, std::size_t count, DataType type, Data data, int rank, int step) = 0;
  virtual Stream stream() const = 0;
  // Makes its GPU current in the calling thread. The functions here do so themselves.
  virtual void use() const = 0;

  // Runs `operation` alone for the first time, and waits until it is done.
  virtual void run(Ranks::Seat& seat, const std::function<void()>& operation) = 0;
  // µs per operation, one number for each sample (see Method). Collective.
  virtual std::vector<double> time(Ranks::Seat& seat, const Timing& timing) = 0;

  // Runs `operation`, on GPUs as a graph and for the second time. Gives µs of each mark that it sets, since it began.
  // Collective.
  virtual std::vector<double> trace(Ranks::Seat& seat, const std::function<void()>& operation) = 0;
  // Within trace(): notes the time behind the work that a stream has.
  virtual void mark(Stream stream) = 0;
};

std::unique_ptr<RankDevice> open_cpu_rank();
std::unique_ptr<RankDevice> open_cuda_rank(int device);  // only in a build with CUDA
std::unique_ptr<RankDevice> open_rank_device(const Ranks& ranks, const Ranks::Seat& seat);

// The methods that can time such ranks.
std::vector<Method> methods_of(Device device);

}  // namespace weft::cli
