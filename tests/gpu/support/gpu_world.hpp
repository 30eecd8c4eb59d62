// GPU ranks as threads: communicators, and for every rank a stream and memory that was taken beforehand. (Where ranks
// share a GPU, cudaMalloc and cudaFree of one would wait for kernels of another, which wait for the first.)
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/support/meeting.hpp"
#include "support/cases.hpp"
#include "support/world.hpp"
#include "tuning/tuning.hpp"

namespace weft::test {

int gpu_count();

// How many times slower than usual kernels are: WEFT_TEST_SLOWNESS, 1 unless compute-sanitizer runs them.
int slowness();

// Waits end within `deadline` times slowness(), so that no bug hangs the GPU.
Config gpu_config(std::chrono::nanoseconds deadline = std::chrono::seconds(5));

// Messages of a few packs already take several kernels, or chunks. One group.
Config small_gpu_pieces();
// Slots of 256 bytes: what is longer flows in chunks.
Config small_gpu_slots();
// With the table of these steps for so many ranks on the GPU at hand, in a file of that name.
Config with_steps(Config config, const std::string& file, const std::vector<detail::TuningStep>& steps, int ranks);

// Ranks that share a GPU need its queues to run side by side, which CUDA promises only for what it has begun: with
// fifty launches ahead of each other, eight ranks on four GPUs were seen to stand still.
inline constexpr int kMostAhead = 4;

// Whoever waits for a rank goes on when that rank ends, however it ends.
class CountDown {
 public:
  explicit CountDown(std::latch& latch) : latch_(&latch) {}
  ~CountDown() { now(); }
  CountDown(const CountDown&) = delete;
  CountDown& operator=(const CountDown&) = delete;
  void now() {
    if (latch_ != nullptr) std::exchange(latch_, nullptr)->count_down();
  }

 private:
  std::latch* latch_;
};

// The memory and the stream of one rank. Used by the rank's thread.
class GpuRank {
 public:
  static constexpr std::size_t kBytes = std::size_t{32} << 20;

  explicit GpuRank(int rank);
  ~GpuRank();
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  int device() const { return device_; }
  cudaStream_t stream() const { return streams_[0]; }
  cudaStream_t other_stream() const { return streams_[1]; }
  // Makes this rank's GPU the thread's.
  void use() const;

  // Memory until the next reset().
  std::byte* device_memory(std::size_t bytes);
  std::byte* host_memory(std::size_t bytes);
  void reset() { device_used_ = host_used_ = 0; }

  void synchronize() const;

  // Whose ranks meet() waits for; null: nobody, as in a process of its own.
  void attend(Meeting* meeting) { meeting_ = meeting; }
  // Waits until this rank's streams are idle and every other rank that has not ended has come here, too. False, on all
  // of them alike, where one has ended.
  bool meet() const;

 private:
  int device_;
  Meeting* meeting_ = nullptr;
  std::array<cudaStream_t, 2> streams_ = {};
  std::byte* device_memory_ = nullptr;
  std::byte* host_memory_ = nullptr;
  std::size_t device_used_ = 0, host_used_ = 0;
};

// The tensors of one call on the GPU.
class GpuTensors {
 public:
  // Content is on its way when this returns.
  GpuTensors(GpuRank& gpu, const Prepared& prepared, int rank);

  AllReduceArgs arguments(cudaStream_t stream) const;
  void upload(cudaStream_t stream);
  void download(cudaStream_t stream);
  // Behind a call: its result is compared on the GPU, and spoiled. Not where the call works in place.
  void compare(unsigned long long* wrong, cudaStream_t stream);
  // After the stream's work is done: throws where anything is wrong.
  void check();
  std::span<std::byte> result() { return host_.output.content(); }
  // The output as it came, right or wrong.
  std::span<const std::byte> downloaded() {
    return {copies_[1].pinned + host_.output.offset(), host_.output.content().size()};
  }

 private:
  struct Copy {
    Guarded* host;
    std::byte* pinned;
    std::byte* device;
  };
  const Prepared& prepared_;
  int rank_;
  Tensors host_;
  Copy copies_[2];
  std::byte* expected_;  // on the GPU
};

struct GpuWorld {
  std::vector<std::unique_ptr<GpuRank>> gpus;
  std::vector<Communicator> communicators;
  bool failed = false;  // a rank has ended with an exception: nobody knows where the others stand

  int size() const { return static_cast<int>(communicators.size()); }
  // Ranks share GPUs: their kernels must be small, so that all of them run at once.
  bool shared() const { return size() > gpu_count(); }
  Launch launch() const { return shared() ? Launch{.blocks = 6, .threads = 128} : Launch{}; }
  // Of moves: where they flow, every other one by several crews of a block.
  Launch launch(std::uint32_t seed) const {
    Launch small = launch();
    if (shared() && seed % 2 == 1) small.threads = 256;
    return small;
  }
};

GpuWorld make_gpu_world(int size, const Config& config);
// One that lives as long as the test program, as NCCL takes its time: for tests that need no first epoch, end nothing,
// split nothing, and free their exchanges. Made anew after a fault or a failure. There is one for each size and each
// `config`; null is gpu_config().
GpuWorld& lasting_gpu_world(int size, Config (*config)() = nullptr);

using GpuBody = std::function<void(Communicator& communicator, GpuRank& gpu, int rank)>;
std::vector<Ending> run_gpu_world(GpuWorld& world, const GpuBody& body);

// One call, checked. Throws on a fault and on a wrong result.
void run_on_gpu_rank(const Group& group, GpuRank& gpu, const Prepared& prepared, int rank);

// The same with a launch for worlds whose ranks share GPUs.
std::vector<Prepared> prepare_for(const GpuWorld& world, std::vector<Case> cases, int ranks = 0);

// All of them, one after the other, on all ranks.
void expect_right(GpuWorld& world, const std::vector<Case>& cases);

}  // namespace weft::test
