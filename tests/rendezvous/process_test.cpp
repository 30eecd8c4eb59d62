// Meetings of processes, some of which die.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>

#include "rendezvous/bootstrap.hpp"
#include "rendezvous/descriptor_passing.hpp"
#include "rendezvous/unique_id.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"

namespace weft::detail {
namespace {

using namespace std::chrono_literals;
using namespace test;

void expect_all_ended_well(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 0) << "signal " << outcome.signal << ", too slow " << outcome.too_slow;
    EXPECT_EQ(outcome.error, "");
  }
}

class ProcessWorld : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ProcessWorld, testing::Range(1, 9));

TEST_P(ProcessWorld, MeetsAndSharesMemory) {
  const int size = GetParam(), root = size - 1;
  const UniqueId id = UniqueId::create();
  Processes processes(size, [&](const Child& self) {
    const auto mine = make_id_bootstrap(id, self.rank(), size, long_deadline);
    const auto ranks = mine->all_gather_value("ranks", self.rank());
    for (int r = 0; r < size; ++r) ensure(ranks[static_cast<std::size_t>(r)] == r, "wrong rank");

    UniqueFd own;
    if (self.rank() == root) own = UniqueFd(::memfd_create("test", MFD_CLOEXEC));
    if (own) ensure(::ftruncate(own.get(), 4096) == 0, "ftruncate");
    const UniqueFd shared = mine->share_fd("memory", root, own.get());
    const char byte = static_cast<char>('a' + self.rank());
    ensure(::pwrite(shared.get(), &byte, 1, self.rank()) == 1, "pwrite");
    mine->barrier("written");
    std::string all(static_cast<std::size_t>(size), ' ');
    ensure(::pread(shared.get(), all.data(), all.size(), 0) == size, "pread");
    ensure(all == std::string("abcdefgh").substr(0, all.size()), "the memory is not shared: " + all);
  });
  expect_all_ended_well(processes.wait());
}

// Two processes with three threads each: one descriptor goes by dup and by message.
TEST(Processes, WithSeveralRanksEach) {
  const UniqueId id = UniqueId::create();
  Processes processes(2, [&](const Child& self) {
    const auto errors = test::run_ranks(3, [&](int thread) {
      const int rank = self.rank() * 3 + thread;
      const auto mine = make_id_bootstrap(id, rank, 6, long_deadline);
      UniqueFd own;
      if (rank == 4) own = UniqueFd(::memfd_create("test", MFD_CLOEXEC));
      const UniqueFd shared = mine->share_fd("memory", 4, own.get());
      ensure(::pwrite(shared.get(), "x", 1, rank) == 1, "pwrite");
      mine->barrier("written");
      char all[6] = {};
      ensure(::pread(shared.get(), all, 6, 0) == 6 && std::string(all, 6) == "xxxxxx", "not shared");
    });
    for (const std::string& error : errors) ensure(error.empty(), error);
  });
  expect_all_ended_well(processes.wait());
}

class Killed : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Killed, testing::Range(0, 4));

// There is no deadline: the others must detect that the process is gone.
TEST_P(Killed, InAMeetingIsNamedByAllOthers) {
  const int victim = GetParam();
  const UniqueId id = UniqueId::create();
  Processes processes(4, [&](const Child& self) {
    const auto mine = make_id_bootstrap(id, self.rank(), 4, for_ever);
    self.say("met");
    if (self.rank() == victim) ::pause();
    mine->barrier("window");
  });
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(processes.wait_until_said(rank, "met"));
  processes.signal(victim, SIGKILL);
  const std::vector<Outcome> outcomes = processes.wait();
  for (int rank = 0; rank < 4; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    if (rank == victim) {
      EXPECT_EQ(outcome.signal, SIGKILL);
    } else {
      expect_says(outcome.error, "'window': rank " + std::to_string(victim) + " disconnected");
    }
  }
}

// A stopped process keeps its connections, so only the deadline reveals it.
TEST_P(Killed, OrStoppedIsNamedAfterTheDeadline) {
  const int victim = GetParam();
  const UniqueId id = UniqueId::create();
  Processes processes(4, [&](const Child& self) {
    const auto mine = make_id_bootstrap(id, self.rank(), 4, 2s);
    mine->barrier("before");
    self.say("met");
    if (self.rank() == victim) ::raise(SIGSTOP);
    mine->barrier("window");
  });
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(processes.wait_until_said(rank, "met"));
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    const std::string message = "'window': rank " + std::to_string(victim) + " did not come within 2 s";
    EXPECT_TRUE(processes.wait_until_said(rank, message));
  }
  processes.signal(victim, SIGKILL);
  processes.wait();
}

// Every process can write to an abstract socket. Only a descriptor from the right process counts.
TEST(Processes, DescriptorsOfStrangersAreIgnored) {
  const UniqueFd mailbox = bind_unix(SOCK_DGRAM);
  const SocketAddress address = local_address(mailbox.get());
  Processes stranger(1, [&](const Child&) { send_descriptor(bind_unix(SOCK_DGRAM).get(), address, 0); });
  expect_all_ended_well(stranger.wait());
  const ProcessIdentity own = ProcessIdentity::current();
  expect_says(test::error_of([&] { receive_descriptor(mailbox.get(), own); }), "no descriptor came");

  const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(memory.get(), 777), 0);
  Processes second(1, [&](const Child&) { send_descriptor(bind_unix(SOCK_DGRAM).get(), address, 0); });
  expect_all_ended_well(second.wait());
  send_descriptor(bind_unix(SOCK_DGRAM).get(), address, memory.get());
  const UniqueFd received = receive_descriptor(mailbox.get(), own);
  EXPECT_EQ(::lseek(received.get(), 0, SEEK_END), 777);
}

// The test support: children end at the time limit, and with the test.
TEST(Processes, AreEndedAtTheLimit) {
  Processes processes(
      2,
      [](const Child& self) {
        if (self.rank() == 0) ::pause();
      },
      1s);
  const std::vector<Outcome> outcomes = processes.wait();
  EXPECT_TRUE(outcomes[0].too_slow);
  EXPECT_EQ(outcomes[0].signal, SIGKILL);
  EXPECT_EQ(outcomes[1].exit_code, 0);
}

TEST(Processes, EndWithTheirParent) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  Processes parent(1, [&](const Child& self) {
    Processes grandchild(1, [](const Child&) { ::pause(); });
    self.say("started");
    ::raise(SIGKILL);
  });
  ASSERT_TRUE(parent.wait_until_said(0, "started"));
  parent.wait();
  writer.reset();
  // The grandchild holds the only other copy of the write end.
  pollfd entry{.fd = reader.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&entry, 1, 30'000), 1);
}

}  // namespace
}  // namespace weft::detail
