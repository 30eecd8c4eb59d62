// Faults of gathers and scatters on GPU ranks: whatever a kernel waits for, it ends, and every rank says who and what.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <latch>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "gpu/support/gpu_move.hpp"
#include "gpu/support/graph.hpp"
#include "support/move_faults.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

RankMove ready_for(const GpuWorld& world, Move move, int rank) {
  move.launch = world.launch();
  return prepare(move, world.size(), rank);
}

// CPU ranks run all of the moves; here each takes a world and NCCL's start, so one of each kernel and each kind of wait
// has to do.
std::vector<NamedMove> moves_named(std::initializer_list<std::string_view> names) {
  std::vector<NamedMove> moves = waiting_moves();
  std::erase_if(moves, [&](const NamedMove& move) { return std::ranges::find(names, move.name) == names.end(); });
  return moves;
}

struct NameOf {
  std::string operator()(const testing::TestParamInfo<NamedMove>& info) const { return std::string(info.param.name); }
};

class GpuGatherFaults : public testing::TestWithParam<NamedMove> {};
INSTANTIATE_TEST_SUITE_P(Moves, GpuGatherFaults,
                         testing::ValuesIn(moves_named({"GatherInLines", "GatherInChunks", "BroadcastOverAllLinks",
                                                        "ScatterInChunks", "RaggedGather", "GatherOfABusyRank",
                                                        "ScatterOfABusyRank"})),
                         NameOf());
class GpuGatherAborts : public testing::TestWithParam<NamedMove> {};
INSTANTIATE_TEST_SUITE_P(Moves, GpuGatherAborts,
                         testing::ValuesIn(moves_named({"GatherInChunks", "ScatterOfABusyRank"})), NameOf());

// In a graph, too, where nobody looks until it has ended; replays behind it end at once.
TEST_P(GpuGatherFaults, ALateRankIsNamedByTheOthersAndLearnsItToo) {
  constexpr int late = 1;
  GpuWorld world = make_gpu_world(kWaitingRanks, gpu_config(500ms));
  std::latch others_ended(kWaitingRanks - 1);
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const RankMove prepared = ready_for(world, GetParam().move, rank);
    GpuMove move(gpu, prepared);
    const Graph graph(gpu, [&] { move.call(communicator); });
    for (int call = 0; call < 3; ++call) graph.launch(gpu.stream());
    gpu.synchronize();
    communicator.check();
    move.check(prepared);
    std::optional<CountDown> arrival;
    if (rank == late) {
      others_ended.wait();
    } else {
      arrival.emplace(others_ended);
    }
    const int replays = world.shared() ? kMostAhead : 100;
    for (int replay = 0; replay < replays; ++replay) graph.launch(gpu.stream());
    gpu.synchronize();
    communicator.check();
  });
  int timeouts = 0;
  for (int rank = 0; rank < kWaitingRanks; ++rank) {
    const Ending& ending = endings[index(rank)];
    const std::string where = "rank " + std::to_string(rank);
    expect_fault(ending, rank == late ? std::vector{Errc::peer_failed} : std::vector{Errc::timeout, Errc::peer_failed},
                 where);
    if (!ending.error) continue;
    EXPECT_EQ(ending.error->fault().epoch_wanted, 4u) << where;
    if (ending.error->code() != Errc::timeout) continue;
    ++timeouts;
    EXPECT_EQ(ending.error->fault().peer, late) << where;
  }
  EXPECT_GE(timeouts, 1);
}

TEST_P(GpuGatherAborts, EndKernelsThatWait) {
  GpuWorld world = make_gpu_world(kWaitingRanks, gpu_config(20s));  // far longer than an abort takes
  std::latch waiting(kWaitingRanks - 1);
  std::jthread other([&] {
    waiting.wait();
    std::this_thread::sleep_for(20ms);
    world.communicators[2].abort();
  });
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const RankMove prepared = ready_for(world, GetParam().move, rank);
    GpuMove move(gpu, prepared);
    move.call(communicator);
    gpu.synchronize();
    if (rank == 1) {
      other.join();
    } else {
      const CountDown arrival{waiting};
      move.call(communicator);
    }
    gpu.synchronize();
    communicator.check();
    move.call(communicator);
    gpu.synchronize();
    communicator.check();
  });
  for (const Ending& ending : endings) expect_fault(ending, {Errc::aborted}, GetParam().name);
}

// Where two ranks share a GPU, a world is made without NCCL's start, which takes longer than all else here.
TEST(GpuGatherMismatches, DifferentCallsAreFound) {
  const int sharing = gpu_count() + 1;
  for (const auto& [first, second] : differing_moves(sharing)) {
    GpuWorld world = make_gpu_world(sharing, gpu_config(1s));
    const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      const RankMove prepared = ready_for(world, rank == sharing - 1 ? second : first, rank);
      GpuMove move(gpu, prepared);
      move.call(communicator);
      gpu.synchronize();
      communicator.check();
    });
    const std::string where = describe(first) + " beside " + describe(second);
    int mismatches = 0;
    for (const Ending& ending : endings) {
      expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, where);
      mismatches += ending.error && ending.error->code() == Errc::mismatch;
    }
    EXPECT_GE(mismatches, 1) << where;
  }
}

}  // namespace
}  // namespace weft::test
