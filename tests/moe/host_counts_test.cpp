// Counts of dispatches on CPU ranks that the host reads beside the call (DispatchArgs::host_counts).
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "support/first_epoch.hpp"
#include "support/host_counts.hpp"
#include "support/moe_batches.hpp"
#include "support/moving_windows.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

class MoeHostCounts : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeHostCounts, testing::Values(1, 2, 3));

// The words, with one more on each side that no call may write.
class Words {
 public:
  explicit Words(std::size_t size) : words_(size + 2) {}
  std::uint64_t* data() { return words_.data() + 1; }
  std::uint32_t stamp() { return read_host_count(data()).stamp; }
  void check(const std::vector<std::uint32_t>& counts, std::uint32_t before) {
    expect_host_counts(data(), counts, before);
    ensure(words_.front() == 0 && words_.back() == 0, "a word beside the counts was written");
  }

 private:
  std::vector<std::uint64_t> words_;
};

std::vector<Batch> calls_in_every_layout(std::uint32_t ranks) {
  MoeExchangeArgs args = small_exchange();
  args.capacity = ranks * args.tokens * args.top_k;
  std::vector<Batch> batches = in_every_layout({{{.args = args, .tokens = {6, 0, 3}},
                                                 {.args = args, .tokens = {2, 5}, .choice = Choice::holes},
                                                 {.args = args, .tokens = {4}, .choice = Choice::one_expert},
                                                 {.args = args, .tokens = {0}}}},
                                               ranks);
  const std::vector<Batch> by_ring = on_ring(batches);
  batches.insert(batches.end(), by_ring.begin(), by_ring.end());
  return batches;
}

// Joined calls and halves, where the wait writes. All words of a call have one stamp, and the next call another.
TEST_P(MoeHostCounts, AreThoseOfTheCall) {
  for (const Batch& batch : calls_in_every_layout(GetParam())) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, GetParam());
    expect_all_well(
        run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
          const auto rank = static_cast<std::uint32_t>(number);
          const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
          Words words(host_words(exchange, GetParam()));
          for (const bool apart : {false, true}) {
            for (const PreparedMoe& p : prepared) {
              CpuMoe moe(exchange, p, rank);
              DispatchArgs args = moe.dispatch(true);
              args.host_counts = words.data();
              const std::uint32_t before = words.stamp();
              if (apart) {
                const DispatchHandle handle = exchange.dispatch_send(args);
                ensure(words.stamp() == before, "the send has told counts");
                exchange.dispatch_wait(handle, args);
              } else {
                exchange.dispatch(args);
              }
              moe.check_dispatch();
              words.check(host_counts(exchange, p), before);
            }
          }
        }));
  }
}

// Every replay has a new stamp, though it has the arguments of its recording. So have eager calls in between, and calls
// after the memory was given away.
TEST_P(MoeHostCounts, ReplaysHaveNewStamps) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, GetParam(), 5);
  const WindowsStay stay;  // so the recording stays valid
  expect_all_well(
      run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
        const auto rank = static_cast<std::uint32_t>(number);
        const MoeExchange exchange = MoeExchange::create(communicator, args);
        Words words(host_words(exchange, GetParam()));
        CpuMoe moe(exchange, p, rank);
        DispatchArgs to = moe.dispatch(true);
        to.host_counts = words.data();
        const Recording recording = Recording::capture(communicator, [&] { exchange.dispatch(to); });
        ensure(words.stamp() == 0, "a recording has told counts");
        std::set<std::uint32_t> stamps{0};
        for (int turn = 0; turn < 9; ++turn) {
          const std::uint32_t before = words.stamp();
          if (turn == 6) {
            communicator.release();
            communicator.acquire();
          }
          turn % 3 == 2 ? static_cast<void>(exchange.dispatch(to)) : recording.replay();
          words.check(host_counts(exchange, p), before);
          ensure(stamps.insert(words.stamp()).second, "a stamp has come again");
        }
      }));
}

// Stamps of neighbouring epochs differ where epochs wrap, and none is 0.
TEST(MoeHostCountsEpochs, StampsDifferWhereEpochsWrap) {
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, 2, 5);
  for (const std::uint32_t first : {0u, 0x7ffffffdu, 0xfffffffdu}) {
    const FirstEpoch epoch(first);
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
      const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
      Words words(host_words(exchange, 2));
      CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
      DispatchArgs to = moe.dispatch(true);
      to.host_counts = words.data();
      for (int call = 0; call < 6; ++call) {
        const std::uint32_t before = words.stamp();
        exchange.dispatch(to);
        words.check(host_counts(exchange, p), before);
      }
    }));
  }
}

// Another thread sees the counts of every call, without a word from the calling thread.
TEST(MoeHostCountsThreads, AnotherThreadPolls) {
  const std::vector<PreparedMoe> prepared = prepare_all(calls_in_every_layout(2).front(), 2);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const MoeExchange exchange = MoeExchange::create(communicator, prepared.front().call.args);
    for (const PreparedMoe& p : prepared) {
      Words words(host_words(exchange, 2));
      const std::vector<std::uint32_t> wanted = host_counts(exchange, p);
      CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
      DispatchArgs args = moe.dispatch(true);
      args.host_counts = words.data();
      std::vector<std::uint32_t> got;
      std::jthread reader([&] { got = poll_host_counts(words.data(), wanted.size(), 0, [] {}); });
      exchange.dispatch(args);
      reader.join();
      EXPECT_EQ(got, wanted);
    }
  }));
}

// A rank without experts has only words of sources. The others' experts are no words of its own.
TEST(MoeHostCountsIdle, ARankWithoutExpertsHasSources) {
  MoeExchangeArgs args = small_exchange();
  args.rank_of_expert.assign(args.experts, 1);
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    ASSERT_EQ(host_counts(exchange, p).size(), number == 0 ? 2u : 10u);
    Words words(host_words(exchange, 2));
    CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
    DispatchArgs to = moe.dispatch();
    to.host_counts = words.data();
    exchange.dispatch(to);
    words.check(host_counts(exchange, p), 0);
  }));
}

// Rows without room end the call, and the host still learns how many came.
TEST(MoeHostCountsFaults, AreToldBeforeAnOverflow) {
  MoeExchangeArgs args = small_exchange();
  args.top_k = 1;
  args.capacity = 2;
  args.rank_of_expert.assign(args.experts, 1);
  const MoeCase by_slots{.args = args, .tokens = {6}, .choice = Choice::one_expert};
  for (const MoeCase& c : {by_slots, on_ring({{by_slots}}).front().front()}) {
    const PreparedMoe p = prepare(c, 2, 5);
    const auto endings = run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
      const MoeExchange exchange = MoeExchange::create(communicator, c.args);
      Words words(host_words(exchange, 2));
      CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
      DispatchArgs to = moe.dispatch();
      to.host_counts = words.data();
      try {
        exchange.combine(moe.combine(exchange.dispatch(to)));
      } catch (const Error&) {
        if (number == 1) words.check(host_counts(exchange, p), 0);
        throw;
      }
    });
    expect_fault(endings[0], {Errc::peer_failed}, "the rank that only sends");
    expect_fault(endings[1], {Errc::overflow}, "the experts' rank");
  }
}

}  // namespace
}  // namespace weft::test
