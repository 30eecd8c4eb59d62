// The call board: the words in which ranks describe their calls to each other.
#include "comm/call_board.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/state.hpp"
#include "support/cases.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using detail::CallBoard;

std::vector<std::unique_ptr<CallBoard>> boards_of(int ranks) {
  auto bootstraps = detail::make_thread_bootstraps(ranks, long_deadline);
  std::vector<std::unique_ptr<CallBoard>> boards(index(ranks));
  expect_no_errors(
      run_ranks(ranks, [&](int rank) { boards[index(rank)] = CallBoard::create(*bootstraps[index(rank)]); }));
  return boards;
}

detail::CallName named(std::uint32_t fingerprint, const std::string& text, bool counted = false) {
  return {.fingerprint = fingerprint, .words = detail::CallWords(text), .counted = counted};
}
// The words that `board` finds, or "nothing".
std::string found(const CallBoard& board, int rank, std::uint32_t channel, std::uint32_t fingerprint) {
  const auto match = board.find(rank, channel, fingerprint);
  return match ? match->words.text() + (match->other_counts ? ", other counts" : "") : "nothing";
}

TEST(CallBoard, ARankFindsWhatAnotherHasCalledOnAChannel) {
  const auto boards = boards_of(3);
  boards[1]->note(4, named(77, "barrier tag 1"));
  boards[1]->note(5, named(77, "barrier tag 2"));
  boards[2]->note(4, named(0x12340077, "all_gather_v", true));
  EXPECT_EQ(found(*boards[0], 1, 4, 77), "barrier tag 1");
  EXPECT_EQ(found(*boards[0], 1, 5, 77), "barrier tag 2");
  EXPECT_EQ(found(*boards[0], 1, 6, 77), "nothing");
  EXPECT_EQ(found(*boards[0], 2, 4, 77), "nothing");
  EXPECT_EQ(found(*boards[0], 0, 4, 77), "nothing");
  // Other counts: the upper half of the number differs.
  EXPECT_EQ(found(*boards[0], 2, 4, 0x99990077), "all_gather_v, other counts");
  EXPECT_EQ(found(*boards[0], 2, 4, 0x12340077), "all_gather_v");
}

// Rejected calls, each for a reason of its own, would fill the board like this.
TEST(CallBoard, WordsThatAreNotedAnewTakeThePlaceOfOthers) {
  const auto boards = boards_of(2);
  for (std::uint32_t i = 0; i < 1500; ++i) {
    boards[0]->note_anew(0, named(7, "reason " + std::to_string(i)));
    if (i % 100 != 0) continue;
    EXPECT_EQ(found(*boards[1], 0, 0, 7), "reason " + std::to_string(i));
  }
}

TEST(CallBoard, FindsTheNewestCallOfAChannel) {
  const auto boards = boards_of(2);
  const auto newest = [&](std::uint32_t channel) {
    const auto call = boards[1]->newest(0, channel);
    return call ? std::to_string(call->fingerprint) + " " + call->words.text() : "nothing";
  };
  EXPECT_EQ(newest(4), "nothing");
  boards[0]->note(4, named(7, "one"));
  boards[0]->note(4, named(8, "two"));
  boards[0]->note(5, named(9, "elsewhere"));
  EXPECT_EQ(newest(4), "8 two");
  boards[0]->note(4, named(7, "one"));
  EXPECT_EQ(newest(4), "7 one");
  boards[0]->note_anew(4, named(8, "three"));
  EXPECT_EQ(newest(4), "8 three");
  EXPECT_EQ(newest(5), "9 elsewhere");
}

TEST(CallBoard, HasRoomForTheNewestAndForLongWords) {
  const auto boards = boards_of(2);
  boards[0]->note(0, named(1, std::string(5000, 'x')));
  EXPECT_EQ(found(*boards[1], 0, 0, 1), std::string(detail::CallWords::kMostBytes, 'x'));
  // All words of one set. The first of them is the newest again.
  constexpr std::uint32_t sets = 512, places = 8;
  for (std::uint32_t i = 1; i <= places; ++i) {
    boards[0]->note(0, named(1 + i * sets, "call " + std::to_string(i)));
    boards[0]->note(0, named(1, "the first"));
  }
  EXPECT_EQ(found(*boards[1], 0, 0, 1).substr(0, 3), "xxx");
  EXPECT_EQ(found(*boards[1], 0, 0, 1 + sets), "nothing");
  for (std::uint32_t i = 2; i <= places; ++i) {
    EXPECT_EQ(found(*boards[1], 0, 0, 1 + i * sets), "call " + std::to_string(i));
  }
}

// A reader finds complete words or none.
TEST(CallBoard, IsReadWhileItIsWritten) {
  const auto boards = boards_of(2);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (std::uint32_t i = 0; i < 20'000; ++i) {
      boards[0]->note_anew(0, named(9, std::string(i % 200, static_cast<char>('a' + i % 26))));
    }
    done = true;
  });
  while (!done) {
    const auto match = boards[1]->find(0, 0, 9);
    const std::string text = match ? match->words.text() : "";
    if (text.empty()) continue;
    EXPECT_EQ(text, std::string(text.size(), text.front()));
  }
  writer.join();
}

struct TwoNumbers {
  static constexpr std::string_view kKind = "numbers of a test";
  int a, b;
  std::string text() const { return std::to_string(a) + " and " + std::to_string(b); }
};

TEST(CallWords, AreMadeOfNumbersAlsoOnAnotherRank) {
  const auto boards = boards_of(2);
  boards[0]->note(0, {.fingerprint = 3, .words = TwoNumbers{.a = 4, .b = 5}});
  EXPECT_EQ(found(*boards[1], 0, 0, 3), "4 and 5");
  // Words of a program that knows other kinds.
  const std::uint32_t kind = detail::CallWords(TwoNumbers{.a = 1, .b = 2}).kind();
  EXPECT_EQ(detail::CallWords(kind + 1, "12345678", 8).text(), "");
  EXPECT_EQ(detail::CallWords(kind, "12345678", 7).text(), "");
}

// More different calls than a group keeps names of and than the board has room for. Frequent calls and the last call
// still have their words.
TEST(CallNames, OutlastAnyNumberOfOtherCalls) {
  const auto endings = run_world(2, cpu_config(short_deadline), [](Communicator& communicator, int rank) {
    const auto call = [&](std::uint32_t tag) { barrier(communicator, {.tag = tag}); };
    for (std::uint32_t tag = 0; tag < 6000; ++tag) {
      call(tag);
      if (tag % 100 == 0) call(1'000'000);
    }
    call(rank == 0 ? 1'000'000 : 2'000'000);
  });
  for (int rank = 0; rank < 2; ++rank) {
    expect_fault(endings[index(rank)], {Errc::mismatch, Errc::peer_failed}, "another tag");
    const Fault& fault = endings[index(rank)].error->fault();
    expect_says(fault.operation, rank == 0 ? "barrier tag 1000000" : "barrier tag 2000000");
    if (fault.code == Errc::mismatch)
      expect_says(fault.theirs, rank == 0 ? "barrier tag 2000000" : "barrier tag 1000000");
  }
}

// ------------------------------------------------------------------------------------------------- between calls

// Polls until the state of a communicator that makes no call reports a fault, or until the longest allowed time is
// over.
std::optional<Fault> poll_status(const Communicator& communicator) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::optional<Fault> fault;
  while (!(fault = communicator.status()) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ensure(fault.has_value(), "the communicator believes that all is well");
  return fault;
}

TEST(IdleRanks, SeeThatAPeerHasDied) {
  const UniqueId id = UniqueId::create();
  Processes processes(3, [&](const Child& self) {
    const Communicator communicator = Communicator::from_id(id, self.rank(), 3, cpu_config());
    barrier(communicator, {});
    self.say("idle ");
    if (self.rank() == 1) return static_cast<void>(::pause());
    const std::optional<Fault> fault = poll_status(communicator);
    self.say(std::string(name(fault->code)) + " " + std::to_string(fault->peer));
    expect_says(error_of([&] { communicator.check(); }), "no call was under way; peer 1");
  });
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(processes.wait_until_said(rank, "idle"));
  processes.signal(1, SIGKILL);
  const std::vector<Outcome> outcomes = processes.wait();
  for (const int rank : {0, 2}) {
    EXPECT_EQ(outcomes[index(rank)].said, "idle peer died 1");
    EXPECT_EQ(outcomes[index(rank)].exit_code, 0) << outcomes[index(rank)].error;
  }
}

TEST(IdleRanks, DoNotTakeOneThatHasLeftForDead) {
  const UniqueId id = UniqueId::create();
  Processes processes(2, [&](const Child& self) {
    {
      const Communicator communicator = Communicator::from_id(id, self.rank(), 2, cpu_config());
      barrier(communicator, {});
      self.say("idle ");
      if (self.rank() == 0) {
        while (communicator.world().state().communicator().fabric().dead_peers().empty()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        ensure(!communicator.status().has_value(), "rank 1 has left in peace");
      }
    }
  });
  for (const Outcome& outcome : processes.wait()) EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
}

TEST(IdleRanks, SeeThatAPeerHasEndedTheCommunicator) {
  auto communicators = Communicator::local(3, cpu_config(short_deadline));
  expect_code([&] { barrier(communicators[1], {}); }, Errc::timeout, "peer 0");
  const std::optional<Fault> fault = poll_status(communicators[2]);
  EXPECT_EQ(fault->code, Errc::peer_failed);
  EXPECT_EQ(fault->reported, Errc::timeout);
  EXPECT_EQ(fault->reporter, 1);
  EXPECT_EQ(fault->peer, 0);
  communicators[0].abort();
  EXPECT_EQ(poll_status(communicators[2])->peer, 0);
}

}  // namespace
}  // namespace weft::test
