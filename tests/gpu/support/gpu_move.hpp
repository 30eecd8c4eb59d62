// A rank's memory for a gather or a scatter on the GPU. Made once for the largest move; filled, used and checked any
// number of times.
#pragma once

#include <cstring>
#include <vector>

#include "gpu/support/gpu_world.hpp"
#include "kernel/cuda_error.hpp"
#include "support/moves.hpp"

namespace weft::test {

class GpuMove {
 public:
  // `outputs`: their place; null: memory of its own.
  // `largest` stays as long as this.
  GpuMove(GpuRank& gpu, const RankMove&& largest, std::byte* outputs = nullptr) = delete;
  GpuMove(GpuRank& gpu, const RankMove& largest, std::byte* outputs = nullptr) : gpu_(gpu), largest_(largest) {
    for (std::size_t i = 0; i < largest.memory.size(); ++i) {
      const std::size_t bytes = largest.memory[i].before.size();
      const bool apart = outputs != nullptr && is_output(largest, i);
      take(bytes, apart ? outputs : nullptr);
      if (apart) outputs += bytes;
    }
    take(largest.counts.before.size(), nullptr);
    fill(largest);
  }

  // Writes the memory of another move of the same kind, which must not need more. Waits.
  void fill(const RankMove& move) {
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const Bytes& from = memory_of(move, i).before;
      std::memset(copies_[i].host, 0xff, copies_[i].bytes);
      std::memcpy(copies_[i].host, from.data(), from.size());
      detail::check_cuda(
          cudaMemcpyAsync(copies_[i].device, copies_[i].host, copies_[i].bytes, cudaMemcpyHostToDevice, gpu_.stream()),
          "upload");
    }
    gpu_.synchronize();
  }
  // The address of a piece of the largest move's memory.
  std::byte* place_of(const Memory& memory) const {
    if (&memory == &largest_.counts) return copies_.back().device;
    return copies_[static_cast<std::size_t>(&memory - largest_.memory.data())].device;
  }
  // Makes the call that was prepared first, with its pointers and capacities.
  void call(const Group& group) {
    const auto address = [&](const Memory& memory) { return place_of(memory); };
    issue(group, largest_, address, gpu_.stream());
  }
  // Waits, and throws if anything is wrong.
  void check(const RankMove& move) {
    for (const Copy& copy : copies_) {
      detail::check_cuda(cudaMemcpyAsync(copy.host, copy.device, copy.bytes, cudaMemcpyDeviceToHost, gpu_.stream()),
                         "download");
    }
    gpu_.synchronize();
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      expect_after(move, memory_of(move, i), std::span(copies_[i].host, copies_[i].bytes));
    }
  }

 private:
  struct Copy {
    std::byte* host;
    std::byte* device;
    std::size_t bytes;
  };
  void take(std::size_t bytes, std::byte* device) {
    copies_.push_back({gpu_.host_memory(bytes), device != nullptr ? device : gpu_.device_memory(bytes), bytes});
  }
  static const Memory& memory_of(const RankMove& move, std::size_t i) {
    return i < move.memory.size() ? move.memory[i] : move.counts;
  }

  GpuRank& gpu_;
  const RankMove& largest_;
  std::vector<Copy> copies_;
};

// Makes one call and checks it. Throws on a fault and on a wrong result.
inline void run_on_gpu_rank(const Group& group, GpuRank& gpu, const Move& move, std::byte* outputs = nullptr) {
  gpu.reset();
  const RankMove prepared = prepare(move, group.size(), group.rank());
  GpuMove on_gpu(gpu, prepared, outputs);
  on_gpu.call(group);
  gpu.synchronize();
  group.check();
  on_gpu.check(prepared);
}

}  // namespace weft::test
