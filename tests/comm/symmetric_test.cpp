// Symmetric memory: every rank reaches every other rank's part, in each of its lives. All ranks alike reject impossible
// calls.
#include "weft/symmetric.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <vector>

#include "support/mapped.hpp"
#include "support/moving_windows.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/symmetric_cases.hpp"
#include "support/world.hpp"
#include "symmetric/symmetric_state.hpp"
#include "weft/collectives.hpp"
#include "weft/moe.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

std::byte mark(int from, int to, int seed) {
  return static_cast<std::byte>(from * 31 + to * 7 + seed * 101 + 1);
}

// Every rank writes a share of every peer's part of all memories, and then each checks its own. Accesses are relaxed:
// the barrier orders them, by fences on CPU ranks, which ThreadSanitizer does not see.
void write_to_all(Communicator& communicator, const std::vector<SymmetricMemory>& memories, int seed) {
  const int rank = communicator.rank(), size = communicator.size();
  const auto share = [&](const SymmetricMemory& memory, int from) {
    return memory.bytes() * index(from) / index(size);
  };
  barrier(communicator, {});
  for (std::size_t i = 0; i < memories.size(); ++i) {
    const SymmetricMemory& memory = memories[i];
    const std::size_t begin = share(memory, rank), end = share(memory, rank + 1);
    for (int peer = 0; peer < size; ++peer) {
      auto* const part = static_cast<std::byte*>(memory.peer(peer));
      for (std::size_t at = begin; at < end; ++at) {
        std::atomic_ref(part[at]).store(mark(rank, peer, seed + static_cast<int>(i)), std::memory_order_relaxed);
      }
    }
  }
  barrier(communicator, {});
  for (std::size_t i = 0; i < memories.size(); ++i) {
    auto* const mine = static_cast<std::byte*>(memories[i].data());
    for (int from = 0; from < size; ++from) {
      for (std::size_t at = share(memories[i], from); at < share(memories[i], from + 1); ++at) {
        const std::byte found = std::atomic_ref(mine[at]).load(std::memory_order_relaxed);
        ensure(found == mark(from, rank, seed + static_cast<int>(i)), "memory " + std::to_string(i) + ", byte " +
                                                                          std::to_string(at) + " is not rank " +
                                                                          std::to_string(from) + "'s");
      }
    }
  }
}

const detail::CommunicatorState& state_of(const Communicator& communicator) {
  return communicator.world().state().communicator();
}

// Calls find this memory, with the addresses that peer() gives.
void expect_found(const Communicator& communicator, const SymmetricMemory& memory) {
  const detail::SymmetricState* const found =
      detail::symmetric_at(state_of(communicator), memory.data(), memory.bytes());
  ensure(found != nullptr, "not found");
  EXPECT_EQ(found->bytes(), memory.bytes());
  EXPECT_EQ(memory.peer(communicator.rank()), memory.data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0u);
  for (int rank = 0; rank < static_cast<int>(detail::kMaxRanks); ++rank) {
    const void* const wanted = rank < communicator.size() ? memory.peer(rank) : nullptr;
    EXPECT_EQ(found->table()[rank], wanted) << rank;
    if (rank < communicator.size()) {
      EXPECT_EQ(found->part(rank), wanted) << rank;
    }
  }
}

// Sizes around pages. The smallest leave some ranks without a share.
void live(Communicator& communicator) {
  std::vector<SymmetricMemory> memories;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{3000}, std::size_t{4096}, std::size_t{100'001}}) {
    memories.push_back(SymmetricMemory::allocate(communicator, bytes));
    EXPECT_EQ(memories.back().bytes(), bytes);
  }
  const auto use = [&](int seed) {
    for (const SymmetricMemory& memory : memories) expect_found(communicator, memory);
    write_to_all(communicator, memories, seed);
    for (const SymmetricMemory& memory : memories) expect_found(communicator, memory);  // no table was overwritten
  };
  use(1);
  memories[1].free();
  memories.erase(memories.begin() + 1);
  use(2);
  communicator.release();
  communicator.acquire();
  use(3);
  memories.push_back(SymmetricMemory::allocate(communicator, 5000));
  use(4);
  for (SymmetricMemory& memory : memories) memory.free();
}

class Symmetric : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Symmetric, testing::Values(1, 2, 3, 5));

TEST_P(Symmetric, PeersReachEveryPart) {
  expect_all_well(run_world(GetParam(), cpu_config(), [](Communicator& communicator, int) { live(communicator); }));
}

TEST(SymmetricMemory, BetweenProcesses) {
  constexpr int kSize = 3;
  const UniqueId id = UniqueId::create();
  Processes processes(kSize, [&](const Child& self) {
    Communicator communicator = Communicator::from_id(id, self.rank(), kSize, small_slots());
    live(communicator);
    // Peers' memory has another address in every process. Checks writes in one hop and in two.
    const auto memory = SymmetricMemory::allocate(communicator, kSymmetricBytes);
    const Group pair = communicator.split(self.rank() == 0 ? -1 : 0);
    for (int round = 0; round < 2; ++round) {
      const std::vector<Move> moves = symmetric_moves(kSize), of_two = symmetric_moves(2);
      for (std::size_t i = static_cast<std::size_t>(round); i < moves.size(); i += 3) {
        run_on_cpu_rank(communicator, moves[i], static_cast<std::byte*>(memory.data()));
        run_on_cpu_rank(communicator, moves[i]);  // in lines and chunks
      }
      if (self.rank() != 0) run_on_cpu_rank(pair, of_two[3], static_cast<std::byte*>(memory.data()));
      communicator.release();
      communicator.acquire();
    }
    ensure(!testing::Test::HasFailure(), "an expectation failed");
  });
  for (const Outcome& outcome : processes.wait()) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.exit_code, 0) << "signal " << outcome.signal << ", too slow " << outcome.too_slow;
  }
}

// A tensor that sticks out at either end, spans two memories, or lies in none is not symmetric.
TEST(SymmetricMemory, CallsFindWhatLiesInItAsAWhole) {
  expect_all_well(run_world(2, cpu_config(), [](Communicator& communicator, int) {
    const detail::CommunicatorState& state = state_of(communicator);
    std::byte elsewhere[64];
    EXPECT_EQ(detail::symmetric_at(state, elsewhere, 1), nullptr);
    SymmetricMemory first = SymmetricMemory::allocate(communicator, 1000);
    SymmetricMemory second = SymmetricMemory::allocate(communicator, 1000);
    auto* const data = static_cast<std::byte*>(first.data());
    const detail::SymmetricState* const found = detail::symmetric_at(state, data, 1000);
    ensure(found != nullptr, "not found");
    EXPECT_EQ(found->number(), 0u);
    EXPECT_EQ(detail::symmetric_at(state, data + 999, 1), found);
    EXPECT_EQ(detail::symmetric_at(state, data + 10, 990), found);
    EXPECT_EQ(detail::symmetric_at(state, data + 10, 991), nullptr);
    EXPECT_EQ(detail::symmetric_at(state, data + 1000, 1), nullptr);
    EXPECT_EQ(detail::symmetric_at(state, data - 1, 2), nullptr);
    EXPECT_EQ(detail::symmetric_at(state, data + 1, ~std::size_t{0}), nullptr);
    EXPECT_EQ(detail::symmetric_at(state, elsewhere, 1), nullptr);
    EXPECT_EQ(detail::symmetric_at(state, nullptr, 0), nullptr);
    const detail::SymmetricState* const other = detail::symmetric_at(state, second.data(), 1000);
    ensure(other != nullptr, "the second is not found");
    EXPECT_EQ(other->number(), 1u);
    first.free();
    EXPECT_EQ(detail::symmetric_at(state, data, 1), nullptr);
    const SymmetricMemory third = SymmetricMemory::allocate(communicator, 1000);
    EXPECT_EQ(detail::symmetric_at(state, third.data(), 1000)->number(), 2u);
    void* const before = third.data();
    communicator.release();
    EXPECT_EQ(detail::symmetric_at(state, before, 1), nullptr);
    communicator.acquire();
    EXPECT_EQ(detail::symmetric_at(state, third.data(), 1000)->number(), 2u);
  }));
}

TEST(SymmetricMemory, WhatCannotBeAllocatedIsRejectedOnAllRanks) {
  expect_all_well(run_world(3, cpu_config(), [](Communicator& communicator, int rank) {
    const std::size_t before = communicator.memory().window;
    const auto rejected = [&](std::size_t bytes, const std::string& part) {
      expect_code([&] { SymmetricMemory::allocate(communicator, bytes); }, Errc::invalid_argument, part);
    };
    rejected(0, "SymmetricMemory::allocate: bytes: 0 is not between 1 and 2^46");
    rejected((std::size_t{1} << 46) + 1, "SymmetricMemory::allocate: bytes: 70368744177665 is not between 1 and 2^46");
    rejected(rank == 1 ? 100 : 200, "ranks disagree about bytes: rank 0 asks for 200, rank 1 for 100");
    rejected(rank == 2 ? 0 : 200, "ranks disagree about bytes: rank 0 asks for 200, rank 2 for 0");
    EXPECT_EQ(communicator.memory().window, before);
    communicator.release();
    expect_code([&] { SymmetricMemory::allocate(communicator, 1); }, Errc::released,
                "SymmetricMemory::allocate: the communicator's memory is released");
    communicator.acquire();
    const SymmetricMemory memory = SymmetricMemory::allocate(communicator, 3000);
    for (const int none : {-1, 3}) {
      expect_code([&] { static_cast<void>(memory.peer(none)); }, Errc::invalid_argument,
                  "SymmetricMemory::peer: rank: " + std::to_string(none) + " is not between 0 and 2");
    }
    write_to_all(communicator, {memory}, 5);
    EXPECT_FALSE(communicator.status().has_value());
  }));
}

TEST(SymmetricMemory, ThereIsRoomFor64) {
  expect_all_well(run_world(2, cpu_config(), [](Communicator& communicator, int) {
    std::vector<SymmetricMemory> memories;
    for (int i = 0; i < 64; ++i) memories.push_back(SymmetricMemory::allocate(communicator, 16));
    expect_code([&] { SymmetricMemory::allocate(communicator, 16); }, Errc::invalid_argument,
                "SymmetricMemory::allocate: 64 exist, and there is room for no more");
    memories[40].free();
    memories[40] = SymmetricMemory::allocate(communicator, 48);
    write_to_all(communicator, memories, 2);
  }));
}

TEST(SymmetricMemory, RanksAgreeOnWhichOrNoneIsFreed) {
  expect_all_well(run_world(3, cpu_config(), [](Communicator& communicator, int rank) {
    SymmetricMemory gone = SymmetricMemory::allocate(communicator, 300);
    SymmetricMemory handle = gone;
    handle.free();
    const std::string freed = "SymmetricMemory::free: it has been freed";
    expect_code([&] { gone.free(); }, Errc::released, freed);
    expect_code([&] { static_cast<void>(gone.data()); }, Errc::released, "the memory has been freed");
    expect_code([&] { static_cast<void>(gone.peer(0)); }, Errc::released, "the memory has been freed");
    SymmetricMemory first = SymmetricMemory::allocate(communicator, 300);  // at the place of the freed memory
    SymmetricMemory second = SymmetricMemory::allocate(communicator, 300);
    expect_code([&] { (rank == 2 ? gone : first).free(); }, Errc::released, freed + " (rank 2 frees number 0");
    expect_code([&] { (rank == 1 ? second : first).free(); }, Errc::invalid_argument,
                "of those that were ever allocated, rank 0 frees number 1, rank 1 number 2");
    write_to_all(communicator, {first, second}, 3);
    communicator.release();
    expect_code([&] { first.free(); }, Errc::released, "SymmetricMemory::free: the communicator's memory is released");
    expect_code([&] { static_cast<void>(first.data()); }, Errc::released, "the communicator's memory is released");
    expect_code([&] { static_cast<void>(first.peer(0)); }, Errc::released, "the communicator's memory is released");
    communicator.acquire();
    first.free();
    write_to_all(communicator, {second}, 4);
  }));
}

// A size that no other mapping has.
constexpr std::size_t kOddBytes = 37 * 4096 - 1000;
constexpr std::size_t kOddPages = std::size_t{37} * 4096;

TEST(SymmetricMemory, IsCountedAndGivenBack) {
  expect_all_well(run_world(2, cpu_config(), [](Communicator& communicator, int) {
    const std::size_t before = communicator.memory().window;
    for (int round = 0; round < 70; ++round) {
      SymmetricMemory memory = SymmetricMemory::allocate(communicator, kOddBytes);
      const std::size_t taken = communicator.memory().window - before;
      EXPECT_TRUE(taken >= kOddBytes && taken <= kOddBytes + 1024) << taken;
      EXPECT_NE(mapped_windows(kOddPages), 0u);
      communicator.release();
      EXPECT_EQ(communicator.memory().window, 0u);
      EXPECT_EQ(mapped_windows(kOddPages), 0u);
      communicator.acquire();
      EXPECT_EQ(communicator.memory().window - before, taken);
      memory.free();
      EXPECT_EQ(communicator.memory().window, before);
      EXPECT_EQ(mapped_windows(kOddPages), 0u);
    }
  }));
}

// The last handle keeps the communicator, and so the memory that peers may still write to.
TEST(SymmetricMemory, GoesWithTheCommunicator) {
  std::vector<std::optional<SymmetricMemory>> kept(2);
  expect_all_well(run_world(2, cpu_config(), [&](Communicator& communicator, int rank) {
    static_cast<void>(SymmetricMemory::allocate(communicator, 300));
    kept[index(rank)] = SymmetricMemory::allocate(communicator, kOddBytes);
  }));
  EXPECT_NE(mapped_windows(kOddPages), 0u);
  std::memset(kept[0]->peer(1), 7, kOddBytes);
  EXPECT_EQ(static_cast<const char*>(kept[1]->data())[kOddBytes - 1], 7);
  kept.clear();
  EXPECT_EQ(mapped_windows(kOddPages), 0u);
}

// Exchanges have windows with numbers of their own.
TEST(SymmetricMemory, LivesBesideExchanges) {
  expect_all_well(run_world(2, cpu_config(), [](Communicator& communicator, int) {
    const MoeExchangeArgs args{.tokens = 4, .hidden = 64, .experts = 2, .top_k = 1};
    MoeExchange before = MoeExchange::create(communicator, args);
    const std::size_t bytes = communicator.memory().window;
    SymmetricMemory memory = SymmetricMemory::allocate(communicator, 5000);
    MoeExchange after = MoeExchange::create(communicator, args);
    write_to_all(communicator, {memory}, 1);
    before.free();
    write_to_all(communicator, {memory}, 2);
    communicator.release();
    communicator.acquire();
    write_to_all(communicator, {memory}, 3);
    memory.free();
    EXPECT_EQ(communicator.memory().window, bytes);
    communicator.release();
    communicator.acquire();
    after.free();
  }));
}

// Another mapping takes the memory's place, and the communicator's own window stays.
TEST(SymmetricMemory, RecordingsAreStaleWhenItHasMoved) {
  const WindowsStay stay;
  expect_all_well(run_world(2, cpu_config(), [](Communicator& communicator, int rank) {
    const SymmetricMemory memory = SymmetricMemory::allocate(communicator, kOddBytes);
    const detail::Fabric& fabric = state_of(communicator).fabric();
    const Recording recording = Recording::capture(communicator, [&] { barrier(communicator, {}); });
    recording.replay();
    const std::byte* const window = fabric.window(0, rank);
    std::byte* const place = static_cast<std::byte*>(memory.data());
    communicator.release();
    if (rank == 0) WindowsStay::take(place);  // ranks of one process share the mapping
    communicator.acquire();
    ASSERT_EQ(fabric.window(0, rank), window);
    ASSERT_NE(memory.data(), place);
    write_to_all(communicator, {memory}, 1);
    barrier(communicator, {});
    expect_code([&] { recording.replay(); }, Errc::released, "released");
  }));
}

TEST(SymmetricMemory, ARankThatDoesNotCallIsMissed) {
  Config config = cpu_config();
  config.rendezvous_deadline = 2s;
  expect_all_well(run_world(3, config, [](Communicator& communicator, int rank) {
    SymmetricMemory memory = SymmetricMemory::allocate(communicator, 300);
    if (rank != 1) {
      expect_code([&] { memory.free(); }, Errc::rendezvous, "free symmetric memory");
    }
    write_to_all(communicator, {memory}, 6);
  }));
}

}  // namespace
}  // namespace weft::test
