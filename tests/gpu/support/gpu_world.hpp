// GPU ranks as threads: communicators, and for every rank a stream and preallocated memory. (If ranks share a GPU, one
// rank's cudaMalloc and cudaFree would wait for kernels of another, which wait for the first rank.)
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

// The factor by which kernels are slower than usual: WEFT_TEST_SLOWNESS, or 1. compute-sanitizer's runs set it.
int slowness();

// Waits end within `deadline` times slowness(), so that no bug hangs the GPU.
Config gpu_config(std::chrono::nanoseconds deadline = std::chrono::seconds(5));

// Messages of a few packs already take several kernels or chunks. There is one group.
Config small_gpu_pieces();
// Slots of 256 bytes: longer messages flow in chunks.
Config small_gpu_slots();
// Adds a table of these steps for so many ranks on the current GPU, in a file of that name.
Config with_tables(Config config, const std::string& file, std::vector<detail::TuningTable> tables, int ranks);
Config with_steps(Config config, const std::string& file, const std::vector<detail::TuningStep>& steps, int ranks);

// Ranks that share a GPU need its queues to run side by side. CUDA promises this only for work that has begun: with
// fifty launches ahead of each other, eight ranks on four GPUs hung.
inline constexpr int kMostAhead = 4;

// Ranks that wait for another rank continue when it ends, however it ends.
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
  // Makes this rank's GPU current in the thread.
  void use() const;

  // Memory until the next reset().
  std::byte* device_memory(std::size_t bytes);
  std::byte* host_memory(std::size_t bytes);
  void reset() { device_used_ = host_used_ = 0; }

  void synchronize() const;

  // Sets the meeting of the ranks that meet() waits for; null: none, as in a separate process.
  void attend(Meeting* meeting) { meeting_ = meeting; }
  // Waits until this rank's streams are idle and every other running rank has come here, too. Returns false on all of
  // them if a rank has ended.
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
  // The content is on its way when this returns.
  GpuTensors(GpuRank& gpu, const Prepared& prepared, int rank);

  AllReduceArgs arguments(cudaStream_t stream) const;
  void upload(cudaStream_t stream);
  void download(cudaStream_t stream);
  // Behind a call: compares its result on the GPU and overwrites it. Not for calls that work in place.
  void compare(unsigned long long* wrong, cudaStream_t stream);
  // Call it when the stream's work is done. Throws if anything is wrong.
  void check();
  std::span<std::byte> result() { return host_.output.content(); }
  // The output as it arrived, right or wrong.
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
  bool failed = false;  // a rank has ended with an exception: the others' state is unknown

  int size() const { return static_cast<int>(communicators.size()); }
  // Ranks share GPUs: their kernels must be small, so that all of them run at once.
  bool shared() const { return size() > gpu_count(); }
  Launch launch() const { return shared() ? Launch{.blocks = 6, .threads = 128} : Launch{}; }
  // For moves: some of the flowing ones use several warp groups per block.
  Launch launch(std::uint32_t seed) const {
    Launch small = launch();
    if (shared() && seed % 2 == 1) small.threads = 256;
    return small;
  }
};

GpuWorld make_gpu_world(int size, const Config& config);
// A world that lives as long as the test program, since NCCL starts slowly. For tests that need no first epoch, end no
// communicator, split nothing, and free their exchanges. Made anew after a fault or a failure. There is one for each
// size and `config`; null is gpu_config().
GpuWorld& lasting_gpu_world(int size, Config (*config)() = nullptr);

using GpuBody = std::function<void(Communicator& communicator, GpuRank& gpu, int rank)>;
std::vector<Ending> run_gpu_world(GpuWorld& world, const GpuBody& body);

// Makes one call and checks it. Throws on a fault and on a wrong result.
void run_on_gpu_rank(const Group& group, GpuRank& gpu, const Prepared& prepared, int rank);

// Prepares the cases, with a launch for worlds whose ranks share GPUs.
std::vector<Prepared> prepare_for(const GpuWorld& world, std::vector<Case> cases, int ranks = 0);

// Makes all calls one after the other on all ranks.
void expect_right(GpuWorld& world, const std::vector<Case>& cases);

}  // namespace weft::test
