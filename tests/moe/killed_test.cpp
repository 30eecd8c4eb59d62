// A process that is killed inside a dispatch or a combine: the others name it, by slots and in the middle of a ring.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <string>

#include "support/moe_batches.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

// Memory that processes share with the test that forks them.
class SharedFlag {
 public:
  SharedFlag()
      : memory_(::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::runtime_error("no memory");
    new (memory_) std::atomic(false);
  }
  SharedFlag(const SharedFlag&) = delete;
  SharedFlag& operator=(const SharedFlag&) = delete;
  ~SharedFlag() { ::munmap(memory_, sizeof(std::atomic<bool>)); }
  void set() { flag() = true; }
  void await() {
    while (!flag()) ::usleep(1000);
  }

 private:
  std::atomic<bool>& flag() { return *static_cast<std::atomic<bool>*>(memory_); }
  void* memory_;
};

struct KilledCall {
  const char* name;
  MoeCase call;
  bool in_combine;
};

// By the ring, tokens of the victim wait for credits of the rank that does not call.
std::vector<KilledCall> killed_calls() {
  MoeCase by_slots{.args = small_exchange(), .tokens = {6}};
  MoeCase by_ring = on_ring({{by_slots}}).front().front();
  by_ring.args.tokens = 100;
  by_ring.tokens = {100};
  return {{"dispatch by slots", by_slots, false},
          {"combine by slots", by_slots, true},
          {"dispatch by the ring", by_ring, false},
          {"combine by the ring", by_ring, true}};
}

// Rank 2 calls only once the victim is dead: so the victim was in the call, and rank 0 still is. There is no deadline,
// so the others must find the death itself.
TEST(MoeKilled, InsideACallIsNamedByTheOthers) {
  constexpr int kSize = 3, kVictim = 1, kLate = 2;
  for (const KilledCall& killed : killed_calls()) {
    const PreparedMoe p = prepare(killed.call, kSize, 5);
    SharedFlag dead;
    const UniqueId id = UniqueId::create();
    Config config = smallest_buffers();
    config.deadline = 0ns;
    Processes processes(kSize, [&](const Child& self) {
      Communicator communicator = Communicator::from_id(id, self.rank(), kSize, config);
      const MoeExchange exchange = MoeExchange::create(communicator, killed.call.args);
      CpuMoe moe(exchange, p, static_cast<std::uint32_t>(self.rank()));
      exchange_and_check(exchange, moe);
      moe.fill();
      DispatchHandle handle{};
      if (killed.in_combine) handle = exchange.dispatch(moe.dispatch());
      self.say("calling ");
      if (self.rank() == kLate) dead.await();
      try {
        // By slots the victim may have sent all that the others need in this call.
        for (bool has_handle = killed.in_combine;; has_handle = false) {
          if (!has_handle) handle = exchange.dispatch(moe.dispatch());
          exchange.combine(moe.combine(handle));
        }
      } catch (const Error& error) {
        self.say(fmt::format("[{} {}]", name(error.code()), error.fault().peer));
        moe.check_neighbours();
      }
    });
    for (int rank = 0; rank < kSize; ++rank) ASSERT_TRUE(processes.wait_until_said(rank, "calling"));
    ::usleep(20'000);
    processes.signal(kVictim, SIGKILL);
    dead.set();
    const std::vector<Outcome> outcomes = processes.wait();
    EXPECT_EQ(outcomes[kVictim].signal, SIGKILL) << killed.name;
    int first_hand = 0;
    for (const int rank : {0, kLate}) {
      const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      EXPECT_EQ(outcome.error, "") << killed.name;
      EXPECT_EQ(outcome.exit_code, 0) << killed.name << ", rank " << rank << ", too slow " << outcome.too_slow;
      const bool direct = outcome.said.find("[peer died 1]") != std::string::npos;
      first_hand += direct;
      if (!direct) expect_says(outcome.said, "[peer failed 1]");
    }
    EXPECT_GE(first_hand, 1) << killed.name;
  }
}

}  // namespace
}  // namespace weft::test
