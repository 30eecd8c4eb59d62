// Gathers and scatters of every kind, equal and ragged, one after the other on GPUs without a wait between: eager and
// in graphs, in one group and in several. Results are compared on the GPU.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "gpu/support/dawdle.hpp"
#include "gpu/support/gpu_world.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/kernels.hpp"
#include "kernel/cuda_error.hpp"
#include "support/first_epoch.hpp"
#include "support/move_mixes.hpp"
#include "support/ranks.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

// A call that first restores its memory and then compares all of it, including canaries, gaps and inputs.
class ComparedMove {
 public:
  // `outputs`: the place for a copy's outputs, advanced to the next one's; null: memory of its own.
  ComparedMove(GpuRank& gpu, const RankMove& move, std::byte*& outputs) : move_(move), stream_(gpu.stream()) {
    for (std::size_t i = 0; i < move.memory.size(); ++i) {
      const bool apart = outputs != nullptr && is_output(move, i) && may_be_symmetric(move.move.kind);
      take(gpu, move.memory[i], apart ? outputs : gpu.device_memory(move.memory[i].before.size()));
      if (apart) outputs += move.memory[i].before.size();
    }
    take(gpu, move.counts, gpu.device_memory(move.counts.before.size()));
    gpu.synchronize();
  }

  void enqueue(const Group& group, unsigned long long* wrong) const {
    for (const Block& block : blocks_)
      check_cuda(cudaMemcpyAsync(block.used, block.before, block.bytes, cudaMemcpyDeviceToDevice, stream_), "restore");
    const auto address = [&](const Memory& memory) {
      if (&memory == &move_.counts) return blocks_.back().used;
      return blocks_[static_cast<std::size_t>(&memory - move_.memory.data())].used;
    };
    issue(group, move_, address, stream_);
    for (const Block& block : blocks_) count_differences(block.used, block.after, block.bytes, wrong, stream_);
  }

 private:
  struct Block {
    std::byte* before;
    std::byte* after;
    std::byte* used;
    std::size_t bytes;
  };
  void take(GpuRank& gpu, const Memory& memory, std::byte* used) {
    const std::size_t bytes = memory.before.size();
    const Block block{gpu.device_memory(bytes), gpu.device_memory(bytes), used, bytes};
    check_cuda(cudaMemcpyAsync(block.before, memory.before.data(), bytes, cudaMemcpyHostToDevice, stream_), "upload");
    check_cuda(cudaMemcpyAsync(block.after, memory.after.data(), bytes, cudaMemcpyHostToDevice, stream_), "upload");
    blocks_.push_back(block);
  }

  const RankMove& move_;
  cudaStream_t stream_;
  std::vector<Block> blocks_;
};

// Moves of one group, ready to be called in any order.
class Mix {
 public:
  // `outputs`: symmetric memory for every other copy's outputs, or null.
  Mix(const GpuWorld& world, GpuRank& gpu, const Group& group, int count, std::uint32_t seed,
      std::byte* outputs = nullptr)
      : group_(group), wrong_(reinterpret_cast<unsigned long long*>(gpu.device_memory(sizeof(*wrong_)))) {
    check_cuda(cudaMemsetAsync(wrong_, 0, sizeof(*wrong_), gpu.stream()), "cudaMemsetAsync");
    for (Move& move : random_moves(count, group.size(), seed)) {
      move.launch = world.launch(move.seed);
      prepared_.push_back(prepare(move, group.size(), group.rank()));
      std::byte* own = nullptr;
      moves_.emplace_back(gpu, prepared_.back(), prepared_.size() % 2 == 0 ? outputs : own);
    }
  }

  void call(std::size_t choice) const { moves_[choice % moves_.size()].enqueue(group_, wrong_); }

  // Waits for the stream.
  void expect_right(GpuRank& gpu) const {
    auto* const wrong = reinterpret_cast<unsigned long long*>(gpu.host_memory(sizeof(*wrong_)));
    check_cuda(cudaMemcpyAsync(wrong, wrong_, sizeof(*wrong), cudaMemcpyDeviceToHost, gpu.stream()), "download");
    gpu.synchronize();
    group_.check();
    ensure(*wrong == 0, fmt::format("{} bytes are not as they should be", *wrong));
  }

 private:
  Group group_;
  unsigned long long* wrong_;
  std::deque<RankMove> prepared_;  // moves_ refer to them
  std::vector<ComparedMove> moves_;
};

// Messages longer than 256 bytes flow in chunks.
Config mixed_config() {
  Config config = gpu_config();
  config.two_shot_bytes = 256;
  return config;
}

class GpuGatherMixes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuGatherMixes, testing::Values(4));

TEST_P(GpuGatherMixes, AThousandCallsOfEveryKindWithRandomDelays) {
  const FirstEpoch epoch(0xffffff00u);  // epochs wrap on the way
  GpuWorld world = make_gpu_world(GetParam(), mixed_config());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const auto memory = SymmetricMemory::allocate(communicator, std::size_t{16} << 20);
    const Mix mix(world, gpu, communicator, 30, 21, static_cast<std::byte*>(memory.data()));
    std::mt19937 delays(static_cast<unsigned>(rank)), choices(4);
    for (int call = 0; call < 1000; ++call) {
      dawdle_somewhere(delays, gpu);
      mix.call(choices());
      if (world.shared()) gpu.synchronize();  // a call is several launches: see kMostAhead
    }
    mix.expect_right(gpu);
  }));
}

TEST_P(GpuGatherMixes, TwoGraphsBetweenEagerCalls) {
  GpuWorld& world = lasting_gpu_world(GetParam());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    const Mix mix(world, gpu, communicator, 24, 33);
    const std::size_t calls = world.shared() ? 1 : 4;
    const auto graph_of = [&](std::size_t first) {
      return Graph(gpu, [&] {
        for (std::size_t move = first; move < first + calls; ++move) mix.call(move);
      });
    };
    const Graph odd = graph_of(3), even = graph_of(5);  // of four calls each; they share two moves
    std::mt19937 delays(static_cast<unsigned>(rank)), choices(8);
    for (int turn = 0; turn < 300; ++turn) {
      dawdle_somewhere(delays, gpu);
      const auto choice = choices();
      if (choice % 3 == 0) odd.launch(gpu.stream());
      if (choice % 3 == 1) even.launch(gpu.stream());
      if (choice % 3 == 2) mix.call(choice / 3);
      if (world.shared()) gpu.synchronize();
    }
    mix.expect_right(gpu);
  }));
}

// Every attention group makes its own calls while others make different ones, and sometimes all make one together.
TEST_P(GpuGatherMixes, AttentionGroupsAtTheSameTime) {
  constexpr int group_ranks = 2;
  const FirstEpoch epoch(0xffffff00u);  // epochs wrap on the way
  GpuWorld world = make_gpu_world(GetParam(), mixed_config());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const int group = rank / group_ranks;  // the last of three ranks is alone
    const Mix together(world, gpu, communicator, 10, 5);
    const Mix apart(world, gpu, communicator.split(group), 20, 100 + static_cast<std::uint32_t>(group));
    std::mt19937 delays(static_cast<unsigned>(rank)), choices(9);
    for (int call = 0; call < 500; ++call) {
      dawdle_somewhere(delays, gpu);
      const auto choice = choices();
      (choice % 8 == 0 ? together : apart).call(choice / 8);
      if (world.shared()) gpu.synchronize();  // a call is several launches: see kMostAhead
    }
    together.expect_right(gpu);
    apart.expect_right(gpu);
  }));
}

}  // namespace
}  // namespace weft::test
