// Copies with outputs in symmetric memory, on CPU ranks. They give the same bytes as other copies for any inputs, and
// no rank writes before the output's rank has asked for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "support/first_epoch.hpp"
#include "support/move_recordings.hpp"
#include "support/ranks.hpp"
#include "support/symmetric_cases.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

class SymmetricGather : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SymmetricGather, testing::ValuesIn(world_sizes({1, 2, 3, 4, 5, 8})));

TEST_P(SymmetricGather, GivesTheBytesOfAnyOtherOutput) {
  const int ranks = GetParam();
  const auto moves = symmetric_moves(ranks);
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int) {
    const auto memory = SymmetricMemory::allocate(communicator, kSymmetricBytes);
    for (const Move& move : moves) {
      run_on_cpu_rank(communicator, move, static_cast<std::byte*>(memory.data()));
    }
  }));
}

// The outputs of all calls begin at the same place. A rank compares them while its peers are at the next call.
TEST_P(SymmetricGather, NobodyWritesBeforeTheRankIsThere) {
  const int ranks = GetParam();
  const auto moves = symmetric_moves(ranks);
  Config config = small_slots();
  const FirstEpoch epoch(0xffffff00u);
  expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int rank) {
    const auto memory = SymmetricMemory::allocate(communicator, kSymmetricBytes);
    std::mt19937 delays(static_cast<unsigned>(rank)), choices(6);
    for (int call = 0; call < repeated(ranks == 3 ? 1000 : 200); ++call) {
      if (delays() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 200));
      const auto choice = choices();
      const bool elsewhere = choice % 5 == 0;
      run_on_cpu_rank(communicator, moves[choice / 5 % moves.size()],
                      elsewhere ? nullptr : static_cast<std::byte*>(memory.data()));
    }
  }));
}

class SymmetricRecordings : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SymmetricRecordings, testing::Values(1, 2, 3, 4));

// One recording serves every batch, though ranks have captured different capacities. Two recordings and eager calls
// take turns, all with the same output.
TEST_P(SymmetricRecordings, ServeEveryBatch) {
  const int ranks = GetParam();
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    const auto memory = SymmetricMemory::allocate(communicator, kSymmetricBytes);
    gather_every_batch_to_one_place(HostSide(communicator, static_cast<std::byte*>(memory.data())), ranks, rank);
  }));
}

// One rank has less room than its peers. They learn it by its poison, and none has written to it.
TEST(SymmetricGatherCapacity, OfOneRankIsNotExceeded) {
  constexpr int ranks = 3, small = 1;
  constexpr std::size_t bytes = 65536;
  const auto endings = run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    const auto memory = SymmetricMemory::allocate(communicator, 2 * ranks * bytes);
    auto* const begin = static_cast<std::byte*>(memory.data());
    std::fill(begin, begin + memory.bytes(), std::byte{0x11});
    const Bytes input(2 * bytes);
    const std::vector<std::int32_t> counts(ranks, 2);
    const GatheredTensor tensor{.input = input.data(), .output = begin, .row_bytes = bytes};
    try {
      all_gather_v(communicator, {.tensors = {&tensor, 1},
                                  .counts = {.rows = counts.data()},
                                  .input_rows = 2,
                                  .output_rows = rank == small ? 5u : 6u});
    } catch (const Error&) {
      const bool untouched =
          std::all_of(begin, begin + memory.bytes(), [](std::byte byte) { return byte == std::byte{0x11}; });
      if (rank == small) ensure(untouched, "a peer wrote to a rank that has no room");
      throw;
    }
  });
  for (int rank = 0; rank < ranks; ++rank)
    expect_fault(endings[index(rank)], {rank == small ? Errc::capacity : Errc::peer_failed}, "capacity");
}

// Groups share a memory, and each has a part of it.
TEST(SymmetricGatherGroups, GatherSideBySide) {
  constexpr int ranks = 6;
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    const Group attention = communicator.split(rank / 2), across = communicator.split(rank % 2);
    const auto memory = SymmetricMemory::allocate(communicator, 2 * kSymmetricBytes);
    auto* const half = static_cast<std::byte*>(memory.data()) + kSymmetricBytes;
    const auto pairs = symmetric_moves(2), triples = symmetric_moves(3);
    for (std::size_t i = 0; i < 30; ++i) {
      run_on_cpu_rank(attention, pairs[(i * 5 + static_cast<std::size_t>(rank / 2)) % pairs.size()],
                      static_cast<std::byte*>(memory.data()));
      run_on_cpu_rank(across, triples[(i * 3 + static_cast<std::size_t>(rank % 2)) % triples.size()], half);
    }
  }));
}

// More ranks than a kernel's arguments have addresses for, and a group whose members are not the world's first ranks.
TEST(SymmetricGatherGroups, OfMoreRanksThanArgumentsHold) {
  constexpr int ranks = 10;
  const std::vector<Move> together{{.kind = Kind::all_gather, .widths = {4096}, .fill = Fill::bits, .seed = 1},
                                   {.kind = Kind::broadcast, .widths = {40'000}, .fill = Fill::bits, .root = 9},
                                   {.kind = Kind::all_to_all, .widths = {2048}, .fill = Fill::bits, .seed = 2}};
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    const Group nine = communicator.split(rank == 0 ? -1 : 1);
    const auto memory = SymmetricMemory::allocate(communicator, std::size_t{2} << 20);
    auto* const outputs = static_cast<std::byte*>(memory.data());
    for (const Move& move : together) {
      run_on_cpu_rank(communicator, move, outputs);
      Move fewer = move;
      fewer.root = 8;
      if (rank != 0) run_on_cpu_rank(nine, fewer, outputs);
    }
  }));
}

// Ranks pass different counts: none writes by counts that the receiver has not confirmed.
TEST(SymmetricGatherMismatch, OtherCountsAreAnError) {
  constexpr int ranks = 2;
  constexpr std::size_t bytes = 65536;
  const auto endings = run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    const auto memory = SymmetricMemory::allocate(communicator, 8 * bytes);
    auto* const begin = static_cast<std::byte*>(memory.data());
    const Bytes input(3 * bytes);
    std::fill(begin, begin + memory.bytes(), std::byte{0x11});
    const std::vector<std::int32_t> counts{rank == 0 ? 3 : 1, 2};
    const GatheredTensor tensor{.input = input.data(), .output = begin, .row_bytes = bytes};
    try {
      all_gather_v(communicator, {.tensors = {&tensor, 1},
                                  .counts = {.rows = counts.data()},
                                  .input_rows = 3,
                                  .output_rows = rank == 0 ? 5u : 3u});
    } catch (const Error&) {
      const bool untouched =
          std::all_of(begin, begin + memory.bytes(), [](std::byte byte) { return byte == std::byte{0x11}; });
      ensure(untouched, "a peer wrote by its own counts");
      throw;
    }
  });
  for (const Ending& ending : endings) expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "counts");
}

// If a rank's output has another place than its peers' outputs, no rank writes to it.
TEST(SymmetricGatherMismatch, OutputsAtDifferentPlacesAreAnError) {
  constexpr int ranks = 3;
  constexpr std::size_t bytes = 65536;
  for (const bool none : {false, true}) {
    const auto endings = run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
      const auto memory = SymmetricMemory::allocate(communicator, 2 * ranks * bytes);
      auto* const begin = static_cast<std::byte*>(memory.data());
      Bytes input(bytes), own(ranks * bytes);
      std::fill(begin, begin + memory.bytes(), std::byte{0x11});
      std::byte* const output = rank != 1 ? begin : none ? own.data() : begin + 256;
      try {
        all_gather_into_tensor(communicator, {.input = input.data(), .output = output, .row_bytes = bytes});
      } catch (const Error&) {
        const bool untouched =
            std::all_of(begin, begin + memory.bytes(), [](std::byte byte) { return byte == std::byte{0x11}; });
        if (rank == 1) ensure(untouched, "a peer wrote to the symmetric memory of rank 1");
        throw;
      }
    });
    for (const Ending& ending : endings) expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "place");
    if (HasFailure()) return;  // the next ranks would wait for each other
  }
}

// Tensors of one call in two memories take the ordinary way. The memories differ in size, so their distance differs
// between ranks.
TEST(SymmetricGatherMemories, OutputsOfACallLieInOne) {
  constexpr int ranks = 2;
  constexpr std::size_t bytes = 65536;
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    const auto first = SymmetricMemory::allocate(communicator, ranks * bytes);
    const auto second = SymmetricMemory::allocate(communicator, 3 * ranks * bytes);
    const Bytes input(bytes, static_cast<std::byte>(rank + 1));
    const std::vector<std::int32_t> counts(ranks, 1);
    const GatheredTensor tensors[] = {{.input = input.data(), .output = first.data(), .row_bytes = bytes},
                                      {.input = input.data(), .output = second.data(), .row_bytes = bytes}};
    all_gather_v(communicator,
                 {.tensors = tensors, .counts = {.rows = counts.data()}, .input_rows = 1, .output_rows = ranks});
    for (const SymmetricMemory* memory : {&first, &second}) {
      const auto* const output = static_cast<const std::byte*>(memory->data());
      for (int from = 0; from < ranks; ++from) {
        const std::byte* const rows = output + index(from) * bytes;
        const bool right =
            std::all_of(rows, rows + bytes, [&](std::byte byte) { return byte == static_cast<std::byte>(from + 1); });
        ensure(right, fmt::format("rank {}: rows of rank {} are not there", rank, from));
      }
    }
  }));
}

TEST(SymmetricGatherNames, SayWhereOutputsLie) {
  expect_all_well(run_world(2, cpu_config(), [&](Communicator& communicator, int) {
    const auto memory = SymmetricMemory::allocate(communicator, 4096);
    Bytes input(16);
    all_gather_into_tensor(communicator, {.input = input.data(), .output = memory.data(), .row_bytes = 16});
    expect_says(communicator.world().recent_calls().back().operation, "of 16 bytes to symmetric memory 0 place ");
  }));
}

}  // namespace
}  // namespace weft::test
