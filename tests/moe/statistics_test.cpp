// The times that dispatches and combines on CPU ranks wait for each source.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "support/moe_batches.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

constexpr std::uint32_t kRanks = 3;
constexpr std::uint64_t kUnwritten = std::numeric_limits<std::uint64_t>::max();

// The call whose waits are measured, and whether its wait is a separate call.
struct Asked {
  bool combine, apart;
};

// By slots and through a ring.
std::vector<PreparedMoe> small_calls() {
  std::vector<PreparedMoe> calls;
  for (const RowPath path : {RowPath::slots, RowPath::ring}) {
    MoeExchangeArgs args = small_exchange();
    args.path = path;
    calls.push_back(prepare({.args = args, .tokens = {6, 3}}, kRanks, 5));
  }
  return calls;
}

class MoeStatistics : public testing::TestWithParam<Asked> {
 protected:
  // Makes a dispatch and its combine, with `before` in front of the measured call. Returns that call's waits.
  static std::vector<std::uint64_t> waits(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t rank,
                                          const std::function<void()>& before) {
    const auto [of_combine, apart] = GetParam();
    std::vector<std::uint64_t> waits(kRanks, kUnwritten);
    CpuMoe moe(exchange, p, rank);
    if (!of_combine) before();
    DispatchArgs dispatch = moe.dispatch();
    DispatchHandle handle;
    if (apart) handle = exchange.dispatch_send(dispatch);
    if (!of_combine) dispatch.source_wait_ns = waits.data();
    if (apart) {
      exchange.dispatch_wait(handle, dispatch);
    } else {
      handle = exchange.dispatch(dispatch);
    }
    moe.check_dispatch();
    if (of_combine) before();
    CombineArgs combine = moe.combine(handle);
    if (apart) exchange.combine_send(combine);
    if (of_combine) combine.source_wait_ns = waits.data();
    apart ? exchange.combine_wait(combine) : exchange.combine(combine);
    moe.check_combine();
    return waits;
  }
};
INSTANTIATE_TEST_SUITE_P(Calls, MoeStatistics,
                         testing::Values(Asked{false, false}, Asked{false, true}, Asked{true, false},
                                         Asked{true, true}),
                         [](const auto& info) {
                           return std::string(info.param.combine ? "Combine" : "Dispatch") +
                                  (info.param.apart ? "Apart" : "");
                         });

// A rank begins late, when the others are about to wait: it has the longest wait.
TEST_P(MoeStatistics, NamesALateRank) {
  for (const PreparedMoe& p : small_calls()) {
    std::atomic<int> waiting = 0;  // ranks that are about to wait
    expect_all_well(run_world(kRanks, smallest_buffers(), [&](Communicator& communicator, int rank) {
      const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
      const std::vector<std::uint64_t> seen = waits(exchange, p, static_cast<std::uint32_t>(rank), [&] {
        if (rank == 1) {
          while (waiting < 2) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
        }
        ++waiting;
      });
      if (rank != 1) {
        EXPECT_NE(seen[1], kUnwritten);
        EXPECT_GE(seen[1], 1'000'000u);
      }
    }));
  }
}

// Every source has a time, and the own rank's is zero.
TEST_P(MoeStatistics, SaysHowLongSourcesWereWaitedFor) {
  for (const PreparedMoe& p : small_calls()) {
    expect_all_well(run_world(kRanks, smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
      const std::vector<std::uint64_t> seen = waits(exchange, p, rank, [] {});
      EXPECT_EQ(seen[rank], 0u);
      for (const std::uint64_t wait : seen) EXPECT_LT(wait, 60'000'000'000u);
      if (rank == 0) {
        EXPECT_GE(seen[2], seen[1]);  // sources are checked in turn
      }
    }));
  }
}

}  // namespace
}  // namespace weft::test
