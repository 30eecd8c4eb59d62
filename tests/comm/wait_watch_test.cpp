// Warnings of waits that take long come while they go on, though the rank that waits cannot give them.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "support/cases.hpp"
#include "support/log_listener.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/spawned.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr int ranks = 2, late = 1;

// As a call of `waiting` does that waits for `peer` for long.
void note_slow_wait(const Communicator& waiting, std::uint32_t epoch, std::uint32_t peer) {
  detail::FaultRecord& record = waiting.world().state().communicator().fabric().control().record[detail::kEnding];
  std::atomic_ref(record.slow_peer).store(peer, std::memory_order_relaxed);
  std::atomic_ref(record.slow_epoch).store(epoch, std::memory_order_relaxed);
}

std::string warning(int rank, int call, int peer) {
  return "rank " + std::to_string(rank) + ": call " + std::to_string(call) + " has waited for rank " +
         std::to_string(peer) + " for more than ";
}

// The kernel's words on the threads of this process that watch.
std::vector<std::string> watching_threads() {
  std::vector<std::string> all;
  std::error_code ended;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", ended)) {
    std::ostringstream status;
    status << std::ifstream(thread.path() / "status").rdbuf();
    if (status.str().find("Name:\tweft-watch\n") != std::string::npos) all.push_back(status.str());
  }
  return all;
}

// A thread that was joined is still listed for a moment.
bool nobody_watches() {
  for (const auto end = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < end;) {
    if (watching_threads().empty()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

// After a tenth of the deadline. A call in time causes none, and neither does status().
TEST(WaitWatch, WarnsOnceWhileACallWaits) {
  const Prepared prepared = prepare({.count = 100}, ranks);
  const LogListener log;
  {
    auto communicators = Communicator::local(ranks, cpu_config(10s));
    expect_all_well(run_world(communicators, [&](Communicator& communicator, int rank) {
      for (int call = 1; call <= 3; ++call) {
        if (call == 2 && rank == late) {
          EXPECT_TRUE(log.hears(warning(0, 2, late) + "a tenth of the deadline"));
          EXPECT_FALSE(communicators.front().status().has_value());
        }
        run_on_cpu_rank(communicator, prepared, rank);
      }
    }));
  }
  EXPECT_EQ(log.times(warning(0, 2, late)), 1) << log.text();
  EXPECT_EQ(log.times("has waited"), 1) << log.text();
}

// Two ranks, of which one waits for the other until a warning says so.
void warn_without_a_deadline() {
  const Prepared prepared = prepare({.count = 100}, ranks);
  const LogListener log;
  bool warned = false;
  {
    auto communicators = Communicator::local(ranks, cpu_config(0s));
    const Communicator& waiting = communicators.front();
    const std::vector<Ending> endings = run_world(communicators, [&](Communicator& communicator, int rank) {
      if (rank == late) {
        while (waiting.world().recent_calls().empty()) std::this_thread::sleep_for(1ms);
        note_slow_wait(waiting, 1, late);  // the call would in half a minute
        warned = log.hears(warning(0, 1, late) + "30 s; there is no deadline");
      }
      run_on_cpu_rank(communicator, prepared, rank);
    });
    for (const Ending& ending : endings) ensure(ending.what.empty(), ending.what);
  }
  ensure(warned && log.times("has waited") == 1, "logged: " + log.text());
}

TEST(WaitWatch, WarnsWithoutADeadline) {
  EXPECT_EQ(error_of(warn_without_a_deadline), "");
}

TEST(WaitWatch, AChildOfForkWatchesItsOwn) {
  std::vector<Communicator> own = Communicator::local(1, cpu_config());
  ASSERT_EQ(watching_threads().size(), 1u);
  Processes child(1, [&](const Child&) {
    ensure(watching_threads().empty(), "a thread was inherited");
    own.clear();
    warn_without_a_deadline();
    ensure(nobody_watches(), "a thread watches nothing");
  });
  expect_all_well(child.wait());
  EXPECT_EQ(watching_threads().size(), 1u);
}

// Each is told once, also if it is noted again behind the other one.
TEST(WaitWatch, CallsOfTwoGroupsMayWaitAtOnce) {
  const LogListener log;
  {
    const auto communicators = Communicator::local(ranks, cpu_config());
    for (const int epoch : {5, 9}) {
      note_slow_wait(communicators.front(), static_cast<std::uint32_t>(epoch), late);
      EXPECT_TRUE(log.hears(warning(0, epoch, late)));
    }
    note_slow_wait(communicators.front(), 5, late);
  }
  EXPECT_EQ(log.times("has waited"), 2) << log.text();
}

// A short-lived communicator's wait is told at its end, at the latest.
TEST(WaitWatch, TheEndOfACommunicatorLosesNoWarning) {
  for (int again = 0; again < 3; ++again) {
    const LogListener log;
    note_slow_wait(Communicator::local(ranks, cpu_config()).front(), 7, late);
    ASSERT_EQ(log.times(warning(0, 7, late)), 1) << log.text();
  }
}

// It reads no window: those are gone.
TEST(WaitWatch, GoesOnWhileMemoryIsReleased) {
  const LogListener log;
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    communicator.release();
    if (rank == late) {
      note_slow_wait(communicator, 3, 0);
      EXPECT_TRUE(log.hears(warning(late, 3, 0)));
    }
    communicator.acquire();
  }));
}

TEST(WaitWatch, AProcessHasOneThreadAsLongAsItHasCommunicators) {
  Processes process(1, [](const Child&) {
    const auto expect = [](std::size_t threads) {
      ensure(watching_threads().size() == threads, std::to_string(watching_threads().size()) + " threads watch");
    };
    const auto make_alone = [] { return Communicator::from_id(UniqueId::create(), 0, 1, cpu_config()); };
    expect(0);
    std::vector<Communicator> many = Communicator::local(3, cpu_config());
    std::optional<Communicator> one = make_alone();
    expect(1);
    many.clear();
    expect(1);
    one.reset();
    ensure(nobody_watches(), "a thread watches nothing");
    one = make_alone();
    expect(1);
  });
  expect_all_well(process.wait());
}

// The program's signals reach the program's threads.
TEST(WaitWatch, TheThreadTakesNoSignal) {
  Processes process(1, [](const Child&) {
    const auto blocked = [](const std::string& status) {
      return std::stoull(status.substr(status.find("SigBlk:") + 7), nullptr, 16);
    };
    const auto own = [&] {
      std::ostringstream status;
      status << std::ifstream("/proc/thread-self/status").rdbuf();
      return blocked(status.str());
    };
    const auto before = own();
    const LogListener log;
    const Communicator one = Communicator::from_id(UniqueId::create(), 0, 1, cpu_config());
    ensure(own() == before, "the caller's signals are blocked");
    note_slow_wait(one, 1, 0);
    ensure(log.hears(warning(0, 1, 0)), "no warning");  // every thread blocks them until it runs
    for (const int number : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGALRM})
      ensure((blocked(watching_threads().at(0)) >> (number - 1) & 1) != 0, "signal " + std::to_string(number));
  });
  expect_all_well(process.wait());
}

// Destroyed when the log has gone: it is made before the first communicator.
struct Last {
  ~Last() {
    if (!nobody_watches()) std::_Exit(3);
    note_slow_wait(*communicator, 1, 0);
    communicator.reset();
  }
  std::optional<Communicator> communicator;
};

// Disabled, since it is no test: the test below starts it.
TEST(WaitWatch, DISABLED_Program) {
  answer_where();
  static Last last;
  last.communicator = Communicator::from_id(UniqueId::create(), 0, 1, cpu_config());
  if (watching_threads().size() != 1) std::_Exit(2);
  std::exit(7);
}

TEST(WaitWatch, EndsBeforeTheLogAtExit) {
  const Outcome outcome = Spawned("WaitWatch.DISABLED_Program", {}).wait(60s);
  EXPECT_EQ(outcome.exit_code, 7) << "signal " << outcome.signal << ": " << outcome.said;
  EXPECT_EQ(outcome.said.find("has waited"), std::string::npos) << outcome.said;
}

}  // namespace
}  // namespace weft::test
