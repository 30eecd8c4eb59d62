// Gathers and scatters of every kind, equal and ragged, one after the other on GPUs without a wait between: eager and
// in graphs, in one group and in several. Results are compared on the GPU.
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <utility>

#include "gpu/support/compared.hpp"
#include "gpu/support/dawdle.hpp"
#include "gpu/support/gpu_world.hpp"
#include "gpu/support/graph.hpp"
#include "support/first_epoch.hpp"
#include "support/move_mixes.hpp"
#include "support/ranks.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

// Moves of one group, ready to be called in any order.
class Mix {
 public:
  // `outputs`: symmetric memory for every other copy's outputs, or null.
  Mix(const GpuWorld& world, GpuRank& gpu, const Group& group, int count, std::uint32_t seed,
      std::byte* outputs = nullptr)
      : group_(group), wrong_(gpu) {
    for (Move& move : random_moves(count, group.size(), seed)) {
      move.launch = world.launch(move.seed);
      const RankMove& made = prepared_.emplace_back(prepare(move, group.size(), group.rank()));
      std::vector<std::byte*> places(made.memory.size());
      for (std::size_t i = 0; i < places.size(); ++i) {
        if (outputs == nullptr || prepared_.size() % 2 != 0) continue;
        if (!is_output(made, i) || !may_be_symmetric(made.move.kind)) continue;
        places[i] = std::exchange(outputs, outputs + made.memory[i].before.size());
      }
      const auto call = [&made, stream = gpu.stream()](const Group& of, const ComparedCalls::At& at) {
        const auto address = [&](const Memory& memory) {
          const bool counts = &memory == &made.counts;
          return at(counts ? made.memory.size() : static_cast<std::size_t>(&memory - made.memory.data()));
        };
        issue(of, made, address, stream);
      };
      moves_.emplace_back(gpu, std::vector<Stretches>{stretches_of(made)}, call, places);
    }
  }

  void call(std::size_t choice) const { moves_[choice % moves_.size()].enqueue(group_, 0, wrong_.count()); }

  // Waits for the stream.
  void expect_right() const { wrong_.expect_none(group_); }

 private:
  Group group_;
  WrongBytes wrong_;
  std::deque<RankMove> prepared_;  // moves_ refer to them
  std::vector<ComparedCalls> moves_;
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
    mix.expect_right();
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
    mix.expect_right();
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
    together.expect_right();
    apart.expect_right();
  }));
}

}  // namespace
}  // namespace weft::test
