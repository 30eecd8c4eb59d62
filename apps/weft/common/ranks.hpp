// The ranks that this process drives: all ranks as threads, or one rank of a launched job.
#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/communicator.hpp"

namespace weft::cli {

// True if a launcher (torchrun, mpirun, srun) started this process as one of several.
bool launched();

// Number of CUDA devices that this build can use, up to the first that is too old. 0 without CUDA, without a driver or
// without GPUs.
int usable_gpus();

class Ranks {
 public:
  struct Args {
    int world_size = 0;  // 0: all GPUs, or 4 CPU ranks; a launcher overrides it
    Device device = Device::automatic;
    Config config = {};
  };
  explicit Ranks(const Args& args);

  // The view of one rank's thread inside each().
  class Seat {
   public:
    int rank() const { return communicator_->rank(); }
    int local_index() const { return local_index_; }
    const Communicator& communicator() const { return *communicator_; }

    // Communicator::split(); collective.
    Group split(int color) { return communicator_->split(color); }
    // Waits for all ranks of the world.
    void barrier();
    // Gives every rank the numbers of all ranks. Every rank passes the same number of them. They travel as f32.
    std::vector<std::vector<double>> gather(const std::vector<double>& mine);
    // Gives every rank the bytes of rank 0.
    void broadcast(std::span<std::byte> bytes);

   private:
    friend class Ranks;
    Ranks* ranks_ = nullptr;
    Communicator* communicator_ = nullptr;
    int local_index_ = 0;
  };

  // The number of ranks that `args` would start.
  static int count(const Args& args);

  // Runs `work` for every rank of this process, each in its own thread, and waits for all of them. If one throws, the
  // communicator is aborted, so that none waits for ever, and the first cause is thrown here.
  void each(const std::function<void(Seat&)>& work);

  int world_size() const { return communicators_.front().size(); }
  int local_size() const { return static_cast<int>(communicators_.size()); }
  Device device() const { return communicators_.front().device(); }
  bool leader() const { return communicators_.front().rank() == 0; }  // the process that prints
  // The CUDA device of a rank of this process, as its communicator has it.
  int cuda_device(const Seat& seat) const;
  const Communicator& first() const { return communicators_.front(); }

 private:
  using Meeting = std::barrier<>;

  void sum_over_processes(std::span<std::int32_t> words);

  std::vector<Communicator> communicators_;
  std::unique_ptr<Meeting> meeting_;
  std::vector<std::vector<double>> slots_;
  std::span<std::byte> broadcast_;
};

// Sums `words` over the ranks of a launched job whose ranks are GPUs (in a build with CUDA).
void cuda_sum(const Group& group, int device, std::span<std::int32_t> words);

}  // namespace weft::cli
