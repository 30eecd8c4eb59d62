// Faults of gathers and scatters on GPU ranks: every wait of a kernel ends, and every rank names the rank and the
// cause.
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <optional>
#include <thread>
#include <vector>

#include "gpu/support/gpu_move.hpp"
#include "gpu/support/gpu_way.hpp"
#include "gpu/support/graph.hpp"
#include "support/move_faults.hpp"
#include "support/ranks.hpp"
#include "support/verdicts.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

RankMove ready_for(const GpuWorld& world, Move move, int rank) {
  move.launch = world.launch(1);
  return prepare(move, world.size(), rank);
}

Config slots_for(bool small, std::chrono::nanoseconds deadline) {
  Config config = small ? small_gpu_slots() : gpu_config();
  config.deadline = deadline * slowness();
  return config;
}

// CPU ranks wait in all kinds of moves. On GPUs each move takes a world and NCCL's start, so there is one move for each
// kernel and each kind of wait.
struct Waiting {
  const char* name;
  Move move;
  Way way;
  bool small_slots = false;
  bool symmetric = false;  // outputs lie in symmetric memory
};
const Waiting kGatherInChunks{"GatherInChunks", {.kind = Kind::all_gather, .widths = {200'000}}, Way::chunks, true};
const Waiting kScatterOfABusyRank{"ScatterOfABusyRank",
                                  {.kind = Kind::reduce_scatter_v, .widths = {4096}, .counts = {1000, 0, 1}},
                                  Way::detour_in_chunks,
                                  true};
std::vector<Waiting> waiting() {
  Waiting symmetric = kGatherInChunks;
  symmetric.name = "GatherToSymmetricMemory";
  symmetric.symmetric = true;
  return {
      {"GatherInLines", {.kind = Kind::all_gather, .widths = {1000}}, Way::at_once},
      {"RaggedGather", {.kind = Kind::all_gather_v, .widths = {1000}, .counts = {3, 0, 1}}, Way::at_once},
      {"BroadcastOverAllLinks", {.kind = Kind::broadcast, .rows = 300, .widths = {4096}}, Way::relayed_lines},
      {"LinesOfABusyRank", {.kind = Kind::all_gather_v, .widths = {4096}, .counts = {300, 0, 1}}, Way::relayed_lines},
      kGatherInChunks,
      {"ScatterInChunks", {.kind = Kind::reduce_scatter, .widths = {200'000}}, Way::chunks, true},
      {"ChunksOfABusyRank",
       {.kind = Kind::all_gather_v, .widths = {4096}, .counts = {1000, 0, 1}},
       Way::detour_in_chunks,
       true},
      kScatterOfABusyRank,
      symmetric};
}

struct NameOf {
  std::string operator()(const testing::TestParamInfo<Waiting>& info) const { return info.param.name; }
};

class GpuGatherFaults : public testing::TestWithParam<Waiting> {};
INSTANTIATE_TEST_SUITE_P(Moves, GpuGatherFaults, testing::ValuesIn(waiting()), NameOf());
class GpuGatherAborts : public testing::TestWithParam<Waiting> {};
INSTANTIATE_TEST_SUITE_P(Moves, GpuGatherAborts, testing::Values(kGatherInChunks, kScatterOfABusyRank), NameOf());

// The outputs of one rank. Collective.
class Outputs {
 public:
  Outputs(Communicator& communicator, const Waiting& waiting) {
    if (!waiting.symmetric) return;
    memory_ = SymmetricMemory::allocate(communicator, std::size_t{4} << 20);
  }
  std::byte* data() const { return memory_ ? static_cast<std::byte*>(memory_->data()) : nullptr; }

 private:
  std::optional<SymmetricMemory> memory_;
};

// Also in a graph, whose fault the host sees only at its end. Later replays end at once.
TEST_P(GpuGatherFaults, ALateRankIsNamedByTheOthersAndLearnsItToo) {
  constexpr int late = 1;
  const Waiting& waiting = GetParam();
  GpuWorld world = make_gpu_world(kWaitingRanks, slots_for(waiting.small_slots, 500ms));
  ASSERT_EQ(way_of(world.communicators[0], waiting.move), waiting.way);
  std::latch others_ended(kWaitingRanks - 1);
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const RankMove prepared = ready_for(world, waiting.move, rank);
    const Outputs outputs(communicator, waiting);
    GpuMove move(gpu, prepared, outputs.data());
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
  expect_late_rank_named(endings, late, 4, {});
}

TEST_P(GpuGatherAborts, EndKernelsThatWait) {
  const Waiting& kind = GetParam();
  GpuWorld world = make_gpu_world(kWaitingRanks, slots_for(kind.small_slots, 20s));  // far longer than an abort takes
  ASSERT_EQ(way_of(world.communicators[0], kind.move), kind.way);
  std::latch waiting(kWaitingRanks - 1);
  std::jthread other([&] {
    waiting.wait();
    std::this_thread::sleep_for(20ms);
    world.communicators[2].abort();
  });
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const RankMove prepared = ready_for(world, kind.move, rank);
    GpuMove move(gpu, prepared);
    move.call(communicator);
    gpu.synchronize();
    if (rank == 1) {
      other.join();
      // abort() waits for a second at most, so the fault may still be on its way. A call before it would end well, and
      // be the last.
      for (int look = 0; look < 100 && !communicator.status(); ++look) std::this_thread::sleep_for(10ms);
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
  for (const Ending& ending : endings) expect_fault(ending, {Errc::aborted}, kind.name);
}

// If two ranks share a GPU, a world is made without NCCL's start, the slowest step here.
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
