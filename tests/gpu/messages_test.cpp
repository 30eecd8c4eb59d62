// Messages between two GPU ranks: the CPU tests' checks for kernels and graphs.
#include "support/messages.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gpu/support/gpu_move.hpp"
#include "gpu/support/gpu_side.hpp"
#include "gpu/support/gpu_world.hpp"
#include "support/ranks.hpp"
#include "weft/messages.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLongest = std::size_t{8} << 20;  // slots of a pair hold 4 MiB
constexpr std::size_t kMoreThanTheBuffers = 6'000'000;

void expect_messages(GpuWorld& world, const std::vector<Move>& moves) {
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    for (const Move& move : moves) GpuSide(world, gpu, communicator).make(communicator, move);
  }));
}

class GpuMessages : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMessages, testing::Values(1, 2, 3, 4, 8));

TEST_P(GpuMessages, RingsOfEveryLengthAtEveryAddress) {
  const std::vector<Move> moves = rings(GetParam(), kLongest);
  expect_messages(lasting_gpu_world(GetParam()), moves);
  expect_messages(lasting_gpu_world(GetParam(), small_gpu_slots), moves);
}

// Ranks differ in grids: neither side knows the other's.
TEST_P(GpuMessages, RingsOnAnyGrid) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const std::vector<Move> moves = rings(ranks, 2'000'000);
    for (std::size_t i = 0; i < moves.size(); ++i) {
      Move move = moves[i];
      const auto own = static_cast<int>(i) + rank;
      move.launch = {.blocks = 2 + own * 3 % 5, .threads = 32 * (1 + own % 8)};
      run_on_gpu_rank(communicator, gpu, move);
    }
  }));
}

TEST_P(GpuMessages, EveryoneToEveryone) {
  std::vector<Move> moves;
  for (std::uint32_t seed = 0; seed < 5; ++seed) moves.push_back(everyone(GetParam(), seed));
  expect_messages(lasting_gpu_world(GetParam()), moves);
}

TEST_P(GpuMessages, SeveralToOnePeerKeepTheirOrder) {
  const int ranks = GetParam();
  expect_messages(lasting_gpu_world(ranks),
                  {several_to_one_peer(ranks, 10, 1), several_to_one_peer(ranks, kMoreThanTheBuffers, 2)});
}

TEST_P(GpuMessages, BetweenCollectives) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    messages_between_collectives(GpuSide(world, gpu, communicator), ranks, 300);
  }));
}

TEST_P(GpuMessages, ManySmallOnesBackToBack) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const std::uint32_t at_once = world.shared() ? kMostAhead : 60;
    many_small_messages(GpuSide(world, gpu, communicator), ranks, rank, at_once, 20);
  }));
}

TEST_P(GpuMessages, CapturedAndReplayed) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    replay_messages(GpuSide(world, gpu, communicator), ranks, rank, 60);
  }));
}

TEST(GpuMessagesOfThree, AnsweredOneByOneInAnyOrder) {
  GpuWorld& world = lasting_gpu_world(3);
  for (const std::size_t bytes : {std::size_t{50}, kMoreThanTheBuffers}) {
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      for (const Move& move : answered_one_by_one(rank, bytes))
        GpuSide(world, gpu, communicator).make(communicator, move);
    }));
  }
}

TEST(GpuMessagesOfFour, OfTwoRanksBesideAllReducesOfTheOthers) {
  GpuWorld world = make_gpu_world(4, gpu_config());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const Group half = communicator.split(rank / 2);
    pair_beside_all_reduces(GpuSide(world, gpu, communicator), half, rank, 60);
  }));
}

TEST(GpuMessagesOfFour, OfGroupsInTurnsWithTheWorld) {
  GpuWorld world = make_gpu_world(4, gpu_config());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const Group half = communicator.split(rank % 2);
    messages_of_groups(GpuSide(world, gpu, communicator), half, 4, 40);
  }));
}

TEST(GpuMessageArguments, MistakesAreRejectedByNameAndLeaveNoTrace) {
  GpuWorld& world = lasting_gpu_world(3);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    static std::byte pageable[256];
    std::vector<RejectedMove> all = rejected_messages(gpu.device_memory(8192), Device::cuda);
    all.push_back({"is host memory that the GPU cannot reach",
                   [](const Group& group) { send(group, {.peer = 0, .data = pageable, .bytes = 64}); }});
    for (const RejectedMove& one : all) {
      expect_code([&] { one.call(communicator); }, Errc::invalid_argument, one.part);
      EXPECT_EQ(cudaGetLastError(), cudaSuccess) << one.part;  // the host program's error state is unchanged
      ensure(!communicator.status().has_value(), one.part);
    }
    GpuSide(world, gpu, communicator).make(communicator, everyone(3, 1));
  }));
}

// If two ranks share a GPU, a world is made without NCCL's start, the slowest step here.
int sharing() {
  return gpu_count() + 1;
}

TEST(GpuMessageFaults, UnequalMessagesAreFoundByBothAndNameThePeer) {
  for (const UnequalLetters& unequal : unequal_letters()) {
    GpuWorld world = make_gpu_world(sharing(), gpu_config(1s));
    const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      const GpuSide side(world, gpu, communicator);
      side.make(communicator, pair_of(0, 1, 60, 5));
      side.make(communicator, rank == 0 ? unequal.first : unequal.second);
    });
    expect_unequal_found(endings, unequal.name);
  }
}

TEST(GpuMessageFaults, APeerThatNeverComesIsNamedAfterTheDeadline) {
  for (const bool sends : {false, true}) {
    GpuWorld world = make_gpu_world(sharing(), gpu_config(500ms));
    const Move lonely = lonely_letter(kMoreThanTheBuffers, sends);
    const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      if (rank == 0) GpuSide(world, gpu, communicator).make(communicator, lonely);
    });
    expect_lonely_found(endings, lonely);
  }
}

// Two streams without an order: the second call begins while the first one's blocks wait for its message.
TEST(GpuMessageFaults, OverlappingCallsAreFound) {
  GpuWorld world = make_gpu_world(sharing(), gpu_config(1s));
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    if (rank != 0) return;
    std::byte* const memory = gpu.device_memory(512);
    receive(communicator, {.peer = 1, .data = memory, .bytes = 8}, gpu.stream());
    receive(communicator, {.peer = 1, .data = memory + 256, .bytes = 8}, gpu.other_stream());
    gpu.synchronize();
    communicator.check();
  });
  expect_fault(endings[0], {Errc::overlap}, "the rank with two streams");
}

TEST(GpuMessageFaults, AbortEndsKernelsThatWait) {
  GpuWorld world = make_gpu_world(sharing(), gpu_config(20s));  // far longer than an abort takes
  std::atomic<bool> waits = false;
  std::jthread other([&] {
    while (!waits) std::this_thread::yield();
    std::this_thread::sleep_for(20ms);
    world.communicators[0].abort();
  });
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    if (rank != 0) return;
    waits = true;
    GpuSide(world, gpu, communicator)
        .make(communicator, {.kind = Kind::messages, .letters = {{.from = 1, .to = 0, .bytes = 8}}});
  });
  expect_fault(endings[0], {Errc::aborted}, "abort");
}

}  // namespace
}  // namespace weft::test
