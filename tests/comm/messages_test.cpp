// Messages between two CPU ranks: of every length, at every address, in any order of calls, beside collectives, in
// groups and in recordings.
#include "support/messages.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/processes.hpp"
#include "support/sanitized.hpp"
#include "support/verdicts.hpp"
#include "support/world.hpp"
#include "weft/messages.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLongest = kSanitized ? 300'000 : 3u << 20;  // slots of a pair hold 16 KiB
constexpr std::size_t kMoreThanTheBuffers = 100'000;

class Messages : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Messages, testing::ValuesIn(world_sizes({1, 2, 3, 4, 14})));

TEST_P(Messages, RingsOfEveryLengthAtEveryAddress) {
  expect_right(GetParam(), cpu_config(), rings(GetParam(), GetParam() <= 4 ? kLongest : 300'000));
}

// More peers than one kernel serves.
TEST_P(Messages, EveryoneToEveryone) {
  std::vector<Move> moves;
  for (std::uint32_t seed = 0; seed < 5; ++seed) moves.push_back(everyone(GetParam(), seed));
  expect_right(GetParam(), cpu_config(), moves);
}

TEST_P(Messages, SeveralToOnePeerKeepTheirOrder) {
  const int ranks = GetParam();
  expect_right(ranks, cpu_config(),
               {several_to_one_peer(ranks, 10, 1), several_to_one_peer(ranks, kMoreThanTheBuffers, 2)});
}

TEST_P(Messages, BetweenCollectives) {
  const int ranks = GetParam();
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int) {
    messages_between_collectives(HostSide(communicator), ranks, repeated(300));
  }));
}

TEST_P(Messages, ManySmallOnesBackToBack) {
  const int ranks = GetParam();
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    many_small_messages(HostSide(communicator), ranks, rank, 50, kSanitized ? 4 : 40);
  }));
}

TEST_P(Messages, RecordedAndReplayed) {
  const int ranks = GetParam();
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    replay_messages(HostSide(communicator), ranks, rank, repeated(150));
  }));
}

TEST(MessagesOfThree, AnsweredOneByOneInAnyOrder) {
  for (const std::size_t bytes : {std::size_t{50}, kMoreThanTheBuffers}) {
    expect_all_well(run_world(3, cpu_config(10s), [&](Communicator& communicator, int rank) {
      for (const Move& move : answered_one_by_one(rank, bytes)) run_on_cpu_rank(communicator, move);
    }));
  }
}

TEST(MessagesOfFour, OfTwoRanksBesideAllReducesOfTheOthers) {
  expect_all_well(run_world(4, cpu_config(), [](Communicator& communicator, int rank) {
    const Group half = communicator.split(rank / 2);
    pair_beside_all_reduces(HostSide(communicator), half, rank, repeated(100));
  }));
}

TEST(MessagesOfFour, OfGroupsInTurnsWithTheWorld) {
  expect_all_well(run_world(4, cpu_config(), [](Communicator& communicator, int rank) {
    const Group half = communicator.split(rank % 2);
    messages_of_groups(HostSide(communicator), half, 4, repeated(60));
  }));
}

TEST(MessagesOfFour, ACallWithoutMessagesIsNoCallOfOthers) {
  expect_all_well(run_world(4, cpu_config(), [](Communicator& communicator, int rank) {
    if (rank == 2) send_receive(communicator, {});
    run_on_cpu_rank(communicator, ring(4, 100, 1));
  }));
}

// ------------------------------------------------------------------------------------------------------- rejections

TEST(MessageArguments, MistakesAreRejectedByNameAndLeaveNoTrace) {
  alignas(64) static std::byte memory[8192];
  const std::vector<RejectedMove> all = rejected_messages(memory, Device::cpu);
  expect_all_well(run_world(3, cpu_config(), [&](Communicator& communicator, int) {
    for (const RejectedMove& one : all) {
      expect_code([&] { one.call(communicator); }, Errc::invalid_argument, one.part);
      ensure(!communicator.status().has_value(), one.part);
    }
    EXPECT_TRUE(communicator.world().recent_calls().empty());  // rejected calls are not recorded
    run_on_cpu_rank(communicator, everyone(3, 1));
  }));
}

TEST(MessageArguments, AreInTheFlightRecorder) {
  expect_all_well(run_world(2, cpu_config(), [](Communicator& communicator, int rank) {
    std::byte data[8]{};
    if (rank == 0) send(communicator, {.peer = 1, .data = data, .bytes = 8, .tag = 3});
    if (rank == 1) receive(communicator, {.peer = 0, .data = data, .bytes = 8, .tag = 3});
    run_on_cpu_rank(communicator, pair_of(0, 1, 100, 1));
    std::vector<std::string> names;
    for (const CallRecord& call : communicator.world().recent_calls()) names.push_back(call.operation);
    ASSERT_EQ(names.size(), 2u);
    EXPECT_EQ(names[0], rank == 0 ? "send 8 bytes to rank 1 tag 3" : "receive 8 bytes from rank 0 tag 3");
    expect_says(names[1], "send_receive 1 sends and 1 receives of 203 bytes");
  }));
}

// ----------------------------------------------------------------------------------------------------------- faults

TEST(MessageFaults, UnequalMessagesAreFoundByBothAndNameThePeer) {
  for (const UnequalLetters& unequal : unequal_letters()) {
    const auto endings = run_world(2, cpu_config(short_deadline), [&](Communicator& communicator, int rank) {
      run_on_cpu_rank(communicator, pair_of(0, 1, 60, 5));
      run_on_cpu_rank(communicator, rank == 0 ? unequal.first : unequal.second);
    });
    expect_unequal_found(endings, unequal.name);
  }
}

TEST(MessageFaults, MessagesOfAnotherGroupAreUnequal) {
  const auto endings = run_world(2, cpu_config(short_deadline), [](Communicator& communicator, int rank) {
    const Group same = communicator.split(0);
    run_on_cpu_rank(rank == 0 ? communicator.world() : same, pair_of(0, 1, 60, 5));
  });
  expect_unequal_found(endings, "another group");
}

// They are longer than the buffers, so both ranks wait.
TEST(MessageFaults, RowsOfAnotherTagOrCallAreUnequal) {
  const auto gathers = [](int root, std::uint32_t tag) {
    return [=](Communicator& communicator, std::byte* own) {
      gather(
          communicator,
          {.input = own, .output = own + kMoreThanTheBuffers, .bytes = kMoreThanTheBuffers, .root = root, .tag = tag});
    };
  };
  const auto scatters = [](int root, std::uint32_t tag) {
    return [=](Communicator& communicator, std::byte* own) {
      scatter(communicator, {.input = own,
                             .output = own + 2 * kMoreThanTheBuffers,
                             .bytes = kMoreThanTheBuffers,
                             .root = root,
                             .tag = tag});
    };
  };
  const auto expect_unequal = [&](const std::string& what, auto first, auto second) {
    const auto endings = run_world(2, cpu_config(short_deadline), [&](Communicator& communicator, int rank) {
      std::vector<std::byte> memory(3 * kMoreThanTheBuffers);
      if (rank == 0) first(communicator, memory.data());
      if (rank == 1) second(communicator, memory.data());
    });
    expect_unequal_found(endings, what);
  };
  expect_unequal("gathers", gathers(0, 1), gathers(0, 2));
  expect_unequal("scatters", scatters(1, 1), scatters(1, 2));
  expect_unequal("a gather and a scatter", gathers(1, 3), scatters(0, 3));
}

// One of three waits for a rank that makes no call, and the third one for the first.
TEST(MessageFaults, APeerThatNeverComesIsNamedAfterTheDeadline) {
  for (const std::size_t bytes : {std::size_t{8}, kMoreThanTheBuffers}) {
    for (const bool sends : {false, true}) {
      if (sends && bytes == 8) continue;  // the buffers take it
      const Move lonely = lonely_letter(bytes, sends);
      const auto endings = run_world(2, cpu_config(short_deadline), [&](Communicator& communicator, int rank) {
        if (rank == 0) run_on_cpu_rank(communicator, lonely);
      });
      expect_lonely_found(endings, lonely);
    }
  }
}

TEST(MessageFaults, WhoWaitsForARankThatGaveUpIsTold) {
  std::latch ended(1);
  const auto endings = run_world(3, cpu_config(short_deadline), [&](Communicator& communicator, int rank) {
    const Move first{.kind = Kind::messages, .letters = {{.from = 1, .to = 0, .bytes = 8}}};
    const Move second{.kind = Kind::messages, .letters = {{.from = 0, .to = 2, .bytes = 8}}};
    if (rank == 0) {
      const std::string error = error_of([&] { run_on_cpu_rank(communicator, first); });
      ended.count_down();
      ensure(!error.empty(), "nothing was missed");
      communicator.check();
    }
    if (rank == 1) return;
    ended.wait();
    run_on_cpu_rank(communicator, second);
  });
  expect_fault(endings[0], {Errc::timeout}, "rank 0");
  EXPECT_EQ(endings[1].what, "");
  expect_fault(endings[2], {Errc::peer_failed}, "rank 2");
}

// Each sends more than the buffers hold before it receives.
TEST(MessageFaults, ACircleEndsByTheDeadline) {
  const Move long_ones = pair_of(0, 1, kMoreThanTheBuffers, 1);
  const auto endings = run_world(2, cpu_config(short_deadline), [&](Communicator& communicator, int rank) {
    Move move = long_ones;
    move.one_by_one = true;
    if (rank == 1) std::swap(move.letters[0], move.letters[1]);
    run_on_cpu_rank(communicator, move);
  });
  for (const Ending& ending : endings) expect_fault(ending, {Errc::timeout, Errc::peer_failed}, "a circle");
}

TEST(MessageFaults, AbortEndsRanksThatWait) {
  auto communicators = Communicator::local(2, cpu_config(0ns));
  std::atomic<bool> waits = false;
  std::jthread other([&] {
    while (!waits) std::this_thread::yield();
    std::this_thread::sleep_for(5ms);
    communicators[0].abort();
  });
  const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
    if (rank == 1) return;
    waits = true;
    run_on_cpu_rank(communicator, {.kind = Kind::messages, .letters = {{.from = 1, .to = 0, .bytes = 8}}});
  });
  expect_fault(endings[0], {Errc::aborted}, "abort");
}

// There is no deadline: the receiver must detect the death itself.
TEST(MessageFaults, AKilledSenderIsNamed) {
  const UniqueId id = UniqueId::create();
  Processes processes(2, [&](const Child& self) {
    Communicator communicator = Communicator::from_id(id, self.rank(), 2, cpu_config(0ns));
    run_on_cpu_rank(communicator, ring(2, 40'000, 1));
    self.say("working ");
    if (self.rank() == 1) std::this_thread::sleep_for(60s);
    try {
      std::byte data[8]{};
      receive(communicator, {.peer = 1, .data = data, .bytes = 8});
    } catch (const Error& error) {
      self.say(fmt::format("[{} {}]", name(error.code()), error.fault().peer));
    }
  });
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(processes.wait_until_said(rank, "working"));
  processes.signal(1, SIGKILL);
  EXPECT_TRUE(processes.wait_until_said(0, "]"));
  const std::vector<Outcome> outcomes = processes.wait();
  expect_says(outcomes[0].said, "[peer died 1]");
  EXPECT_EQ(outcomes[0].exit_code, 0) << outcomes[0].error;
}

}  // namespace
}  // namespace weft::test
