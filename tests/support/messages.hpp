// Messages between ranks, the same for CPU ranks and GPU ranks: lists of them, and test bodies. `Side` is how either of
// them does it (support/move_recordings.hpp).
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/move_recordings.hpp"
#include "support/moves.hpp"
#include "support/ranks.hpp"
#include "support/rejections.hpp"
#include "support/world.hpp"

namespace weft::test {

// Every rank sends to the next one and receives from the one before, in one call. One rank alone writes to itself.
Move ring(int ranks, std::size_t bytes, std::uint32_t seed);
// Lengths of one byte, of packs, of chunks, and far more than the buffers hold (`most`); at every kind of address.
std::vector<Move> rings(int ranks, std::size_t most);

// Every rank to every rank, itself included, each with its own length, or none.
Move everyone(int ranks, std::uint32_t seed);
// The first rank sends the last one several messages in one call, some of them alike, and gets fewer back.
Move several_to_one_peer(int ranks, std::size_t longest, std::uint32_t seed);
// Two ranks of a group write to each other; the others make no call.
Move pair_of(int one, int other, std::size_t bytes, std::uint32_t seed);
// Rank 0 makes one call of two messages each way. Rank 1 sends and receives them by calls of their own, in any order
// that keeps each direction's. Likewise three ranks, in a chain.
std::vector<Move> answered_one_by_one(int rank, std::size_t bytes);

// Moves of two ranks that do not fit: by length or tag. Both would send and receive.
struct UnequalLetters {
  const char* name;
  Move first, second;
};
std::vector<UnequalLetters> unequal_letters();

// One of the two ranks found the difference, or both, and named the other one, which was told at least.
void expect_unequal_found(const std::vector<Ending>& endings, const std::string& what);

// A message that rank 0 sends to rank 1, or receives from it, which makes no call.
Move lonely_letter(std::size_t bytes, bool sends);
// Rank 0 alone ended with the deadline, and named the peer and the message.
void expect_lonely_found(const std::vector<Ending>& endings, const Move& lonely);

// Impossible messages, of three ranks. `memory`: 8192 bytes that a call could use.
std::vector<RejectedMove> rejected_messages(std::byte* memory, Device device);

// Two of four ranks exchange messages of the world, while the others reduce in a group of their own. Then all meet.
template <class Side>
void pair_beside_all_reduces(const Side& side, const Group& half, int rank, int rounds) {
  const Prepared sum = prepare({.count = 700, .fill = Fill::random, .seed = 3}, half.size());
  for (int round = 0; round < rounds; ++round) {
    const auto seed = static_cast<std::uint32_t>(round);
    const int pair = round % 2;
    if (rank / 2 == pair) {
      side.make(side.communicator(), pair_of(2 * pair, 2 * pair + 1, round % 3 == 0 ? 70'000 : 40, seed));
    } else {
      side.make(half, sum);
    }
    if (round % 5 == 4) side.make(side.communicator(), {.rows = 2, .widths = {40}, .seed = seed});
  }
}

// Messages and collectives of one group in any order, and now and then messages between two ranks alone.
template <class Side>
void messages_between_collectives(const Side& side, int ranks, int turns) {
  const Prepared sum = prepare({.count = 300, .fill = Fill::random, .seed = 3}, ranks);
  const auto random_kind = [](std::uint32_t choice) { return kEqual[choice % std::size(kEqual)]; };
  std::mt19937 random(6);  // the same choices on every rank
  for (int turn = 0; turn < turns; ++turn) {
    const auto seed = static_cast<std::uint32_t>(turn);
    const std::uint32_t choice = random() % 6, length = random() % 3 == 0 ? random() % 60'000 : random() % 200;
    const int one = static_cast<int>(random() % static_cast<std::uint32_t>(ranks)), other = (one + 1) % ranks;
    if (choice == 0) side.make(side.communicator(), ring(ranks, length, seed));
    if (choice == 1) side.make(side.communicator(), pair_of(one, other, length, seed));
    if (choice == 2) side.make(side.communicator(), everyone(ranks, seed));
    if (choice == 3) side.make(side.communicator(), sum);
    if (choice == 4) side.make(side.communicator(), several_to_one_peer(ranks, length, seed));
    if (choice == 5)
      side.make(side.communicator(), {.kind = random_kind(seed), .widths = {1 + length / 8}, .seed = seed});
  }
}

// World and group take turns with messages: groups are halves, and the peers their own ranks.
template <class Side>
void messages_of_groups(const Side& side, const Group& group, int ranks, int turns) {
  for (int turn = 0; turn < turns; ++turn) {
    const auto seed = static_cast<std::uint32_t>(turn);
    side.make(group, ring(group.size(), turn % 4 == 0 ? 40'000 : 24, seed));
    if (turn % 2 == 0) side.make(side.communicator(), ring(ranks, 100, seed));
    if (turn % 3 == 0) side.make(group, everyone(group.size(), seed));
  }
}

// Rounds of so many small messages each, in memory of their own, without a wait between them.
template <class Side>
void many_small_messages(const Side& side, int ranks, int rank, std::uint32_t at_once, std::uint32_t rounds) {
  std::vector<RankMove> moves;
  std::deque<typename Side::Moved> memory;
  const auto make = [&](std::uint32_t i, std::uint32_t seed) {
    Move move = ring(ranks, 1 + i * 13 % 90, seed);
    move.launch = side.launch(0);
    return prepare(move, ranks, rank);
  };
  for (std::uint32_t i = 0; i < at_once; ++i) moves.push_back(make(i, i));
  for (const RankMove& move : moves) memory.push_back(side.moved(move));
  for (std::uint32_t round = 0; round < rounds; ++round) {
    std::vector<RankMove> now;
    for (std::uint32_t i = 0; i < at_once; ++i) now.push_back(make(i, round * at_once + i));
    for (std::uint32_t i = 0; i < at_once; ++i) memory[i].fill(now[i]);
    for (auto& one : memory) one.call(side.communicator());
    for (std::uint32_t i = 0; i < at_once; ++i) memory[i].check(now[i]);
    side.check();
  }
}

// Recorded messages, replayed with new contents between eager ones.
template <class Side>
void replay_messages(const Side& side, int ranks, int rank, int turns) {
  const auto contents = [&](std::size_t which, std::uint32_t seed) {
    Move move = which == 0   ? ring(ranks, 30'011, seed)
                : which == 1 ? everyone(ranks, seed)
                             : several_to_one_peer(ranks, 20'000, seed);
    move.launch = side.launch(0);
    return prepare(move, ranks, rank);
  };
  // Graphs do not move.
  struct Recorded {
    Recorded(const Side& side, RankMove move)
        : captured(std::move(move)),
          memory(side.moved(captured)),
          recording(side.record([&] { memory.call(side.communicator()); })) {}
    RankMove captured;
    typename Side::Moved memory;
    decltype(std::declval<const Side&>().record([] {})) recording;
  };
  std::deque<Recorded> all;
  for (std::size_t which = 0; which < 3; ++which) all.emplace_back(side, contents(which, 1));
  std::mt19937 random(8);  // the same choices on every rank
  for (int turn = 0; turn < turns; ++turn) {
    const std::size_t which = random() % all.size();
    const RankMove now = contents(which, 2 + static_cast<std::uint32_t>(turn));
    Recorded& one = all[which];
    if (random() % 4 == 0) {
      side.run(now, one.memory);
    } else {
      one.memory.fill(now);
      side.replay(one.recording);
      one.memory.check(now);
    }
    side.check();
  }
}

}  // namespace weft::test
