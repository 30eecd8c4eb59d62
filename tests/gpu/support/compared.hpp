// Calls behind each other without a wait between, each with other contents than the time before. Their memory is
// restored before each call and compared behind it, on the GPU.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "gpu/support/dawdle.hpp"
#include "gpu/support/gpu_world.hpp"
#include "gpu/support/kernels.hpp"
#include "kernel/cuda_error.hpp"
#include "support/columns.hpp"
#include "support/moves.hpp"
#include "support/normed_crossings.hpp"
#include "support/ranks.hpp"
#include "support/top_k.hpp"

namespace weft::test {

// A stretch of a rank's memory, before and after a call.
struct Stretch {
  Bytes before, after;
};
using Stretches = std::vector<Stretch>;

inline Stretches stretches_of(const RankMove& move) {
  Stretches all;
  for (const Memory& memory : move.memory) all.push_back({memory.before, memory.after});
  all.push_back({move.counts.before, move.counts.after});
  return all;
}
inline Stretches stretches_of(const RankNormedCrossing& crossing) {
  Stretches all;
  for (std::size_t i = 0; i < crossing.places(); ++i)
    all.push_back({crossing.place(i).before, crossing.place(i).after});
  return all;
}

inline Stretches stretches_of(const PreparedColumns& columns) {
  const std::vector<std::int32_t> numbers = numbers_of(columns.c);
  const auto bytes = std::as_bytes(std::span(numbers));
  const Bytes counts(bytes.begin(), bytes.end());
  return {{columns.input, columns.input}, {columns.output, columns.expected}, {counts, counts}};
}
inline Stretches stretches_of(const PreparedTopK& search) {
  const auto output = [](const Bytes& right) { return Stretch{Bytes(right.size(), std::byte{0xa5}), right}; };
  return {{search.input, search.input}, output(search.values), output(search.indices)};
}

// The calls are of one kind, and the first one needs the most memory.
class ComparedCalls {
 public:
  // Makes the first call, with stretch i at `at(i)`.
  using At = std::function<std::byte*(std::size_t i)>;
  using Call = std::function<void(const Group& group, const At& at)>;

  // `places`: of stretches; null: memory of their own. The contents are read before it returns.
  ComparedCalls(GpuRank& gpu, const std::vector<Stretches>& contents, Call call,
                const std::vector<std::byte*>& places = {})
      : stream_(gpu.stream()), call_(std::move(call)), turns_(contents.size()) {
    for (std::size_t i = 0; i < contents[0].size(); ++i) {
      std::byte* const own = i < places.size() ? places[i] : nullptr;
      used_.push_back(own != nullptr ? own : gpu.device_memory(contents[0][i].before.size()));
    }
    for (const Stretches& stretches : contents) {
      for (std::size_t i = 0; i < stretches.size(); ++i)
        kept_.push_back(
            {used_[i], kept(gpu, stretches[i].before), kept(gpu, stretches[i].after), stretches[i].before.size()});
    }
    gpu.synchronize();
  }

  void enqueue(const Group& group, std::size_t turn, unsigned long long* wrong) const {
    const auto now = std::span(kept_).subspan(turn % turns_ * used_.size(), used_.size());
    for (const Kept& of : now) {
      detail::check_cuda(cudaMemcpyAsync(of.used, of.before, of.bytes, cudaMemcpyDeviceToDevice, stream_), "restore");
    }
    call_(group, [this](std::size_t i) { return used_[i]; });
    for (const Kept& of : now) count_differences(of.used, of.after, of.bytes, wrong, stream_);
  }

 private:
  struct Kept {
    std::byte* used;
    const std::byte *before, *after;
    std::size_t bytes;
  };
  std::byte* kept(GpuRank& gpu, std::span<const std::byte> content) const {
    std::byte* const to = gpu.device_memory(content.size());
    detail::check_cuda(cudaMemcpyAsync(to, content.data(), content.size(), cudaMemcpyHostToDevice, stream_), "upload");
    return to;
  }

  cudaStream_t stream_;
  Call call_;
  std::size_t turns_;
  std::vector<std::byte*> used_;
  std::vector<Kept> kept_;
};

// The number of wrong bytes of a rank's calls, on the GPU.
class WrongBytes {
 public:
  explicit WrongBytes(GpuRank& gpu)
      : gpu_(gpu), count_(reinterpret_cast<unsigned long long*>(gpu.device_memory(sizeof(*count_)))) {
    detail::check_cuda(cudaMemsetAsync(count_, 0, sizeof(*count_), gpu.stream()), "cudaMemsetAsync");
  }
  unsigned long long* count() const { return count_; }
  // Waits for the stream.
  void expect_none(const Group& group) const {
    auto* const wrong = reinterpret_cast<unsigned long long*>(gpu_.host_memory(sizeof(*count_)));
    detail::check_cuda(cudaMemcpyAsync(wrong, count_, sizeof(*wrong), cudaMemcpyDeviceToHost, gpu_.stream()),
                       "download");
    gpu_.synchronize();
    group.check();
    ensure(*wrong == 0, fmt::format("{} bytes are not as they should be", *wrong));
  }

 private:
  GpuRank& gpu_;
  unsigned long long* count_;
};

// Many calls back to back, of ranks that are late by chance. Calls of one kind have contents in turn.
inline void make_back_to_back(const GpuWorld& world, Communicator& communicator, GpuRank& gpu, int turns,
                              const std::vector<ComparedCalls>& calls) {
  const WrongBytes wrong(gpu);
  std::mt19937 delays(static_cast<unsigned>(communicator.rank())), choices(7);
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      dawdle_somewhere(delays, gpu);
      calls[choices() % calls.size()].enqueue(communicator, static_cast<std::size_t>(turn), wrong.count());
      if (world.shared()) gpu.synchronize();  // a call is several launches: see kMostAhead
    }
  }
  wrong.expect_none(communicator);
}

}  // namespace weft::test
