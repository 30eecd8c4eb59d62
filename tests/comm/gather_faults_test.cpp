// A rank is late for a gather or scatter, omits it, or gives up: every rank ends, and names the rank and the cause.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <optional>
#include <string>
#include <thread>

#include "support/move_faults.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/symmetric_cases.hpp"
#include "support/verdicts.hpp"
#include "support/world.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

struct Waiting {
  std::string name;
  Move move;
  bool symmetric = false;  // outputs lie in symmetric memory
};
std::vector<Waiting> waiting() {
  std::vector<Waiting> all;
  for (const NamedMove& named : waiting_moves()) {
    all.push_back({named.name, named.move});
    const std::string name = named.name;
    if (name == "GatherInChunks" || name == "BroadcastOverAllLinks" || name == "GatherOfABusyRank")
      all.push_back({name + "ToSymmetricMemory", named.move, true});
  }
  return all;
}

class GatherFaults : public testing::TestWithParam<Waiting> {
 protected:
  // The memory and calls of one rank. Collective.
  class Caller {
   public:
    explicit Caller(Communicator& communicator) : communicator_(communicator) {
      if (GetParam().symmetric) memory_ = SymmetricMemory::allocate(communicator, kSymmetricBytes);
    }
    void call() const {
      std::byte* const outputs = memory_ ? static_cast<std::byte*>(memory_->data()) : nullptr;
      run_on_cpu_rank(communicator_, GetParam().move, outputs);
    }

   private:
    Communicator& communicator_;
    std::optional<SymmetricMemory> memory_;
  };
};
INSTANTIATE_TEST_SUITE_P(Moves, GatherFaults, testing::ValuesIn(waiting()),
                         [](const auto& info) { return info.param.name; });

// Short messages go in lines or by sentinels, and with small slots all go in chunks. Each test waits for deadlines,
// which are long under sanitizers. So these run only chunks: the faults of all-reduces cover lines and sentinels.
std::vector<Config> configs(std::chrono::nanoseconds deadline) {
  std::vector<Config> all{small_slots()};
  if (!kSanitized) all.push_back(cpu_config());
  for (Config& config : all) config.deadline = deadline;
  return all;
}

void expect_stays_dead(Communicator& communicator, const Move& move, const Fault& fault) {
  const std::string again = error_of([&] { run_on_cpu_rank(communicator, move); });
  expect_says(again, std::string(name(fault.code)));
  ASSERT_TRUE(communicator.status().has_value());
  EXPECT_EQ(communicator.status()->epoch_wanted, fault.epoch_wanted);
}

TEST_P(GatherFaults, ALateRankIsNamedByTheOthersAndLearnsItToo) {
  constexpr int late = 1;
  const Move& move = GetParam().move;
  for (const Config& config : configs(short_deadline)) {
    auto communicators = Communicator::local(kWaitingRanks, config);
    std::latch others_ended(kWaitingRanks - 1);
    const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
      const Caller caller(communicator);
      for (int call = 0; call < 3; ++call) caller.call();
      if (rank == late) {
        others_ended.wait();
        caller.call();
        return;
      }
      const std::string error = error_of([&] { caller.call(); });
      others_ended.count_down();
      ensure(!error.empty(), "nobody missed the late rank");
      communicator.check();
    });
    expect_late_rank_named(endings, late, 4, [&](int rank, const Error& error, const std::string&) {
      expect_stays_dead(communicators[index(rank)], move, error.fault());
    });
  }
}

TEST_P(GatherFaults, AbortEndsRanksThatWait) {
  for (const Config& config : configs(for_ever)) {
    auto communicators = Communicator::local(kWaitingRanks, config);
    std::atomic<int> called = 0;
    std::jthread other([&] {
      while (called < kWaitingRanks - 1) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      communicators[2].abort();
    });
    const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
      const Caller caller(communicator);
      caller.call();
      if (rank == 1) {
        other.join();
      } else {
        ++called;
      }
      caller.call();
    });
    for (const Ending& ending : endings) expect_fault(ending, {Errc::aborted}, GetParam().name);
  }
}

// A rank that sends and receives nothing must still make the call: an omitted call is found at once.
TEST(GatherFaultsOfIdleRanks, ACallThatARankWithoutRowsLeavesOutIsFound) {
  for (const Kind kind : {Kind::all_gather_v, Kind::reduce_scatter_v}) {
    const Move idle{.kind = kind, .widths = {40}, .counts = {2, 0, 3}};
    const auto endings = run_world(3, cpu_config(short_deadline), [&](Communicator& communicator, int rank) {
      run_on_cpu_rank(communicator, idle);
      if (rank != 1) run_on_cpu_rank(communicator, idle);
      run_on_cpu_rank(communicator, {.widths = {8}});
    });
    for (const Ending& ending : endings)
      expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "a rank has left out a call");
  }
}

}  // namespace
}  // namespace weft::test
