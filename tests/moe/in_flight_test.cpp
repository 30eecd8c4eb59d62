// The host's state of an exchange: which dispatch a handle names, calls of two threads at the same time, and the number
// of exchanges.
#include <gtest/gtest.h>

#include <semaphore>
#include <thread>

#include "support/moe_batches.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

// A later dispatch has taken the handle's slot: the combine would sum the later dispatch's rows.
TEST(MoeHandles, AStaleOneIsRejected) {
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    const DispatchHandle first = dispatch_and_check(exchange, p, rank), second = dispatch_and_check(exchange, p, rank);
    combine_and_check(exchange, p, rank, first);
    const DispatchHandle third = dispatch_and_check(exchange, p, rank);
    ASSERT_EQ(first.slot, third.slot);
    CpuMoe moe(exchange, p, rank);
    const std::string stale = "handle: a later dispatch has taken its slot";
    expect_says(error_of([&] { exchange.combine(moe.combine(first)); }), stale);
    expect_says(error_of([&] { exchange.combine_send(moe.combine(first)); }), stale);
    combine_and_check(exchange, p, rank, second);
    combine_and_check(exchange, p, rank, third);
    // A handle with the right handle slot and the wrong number does not wait for a dispatch, either.
    const DispatchHandle fourth = dispatch_and_check(exchange, p, rank);
    combine_and_check(exchange, p, rank, fourth);
    const DispatchHandle fifth = exchange.dispatch_send(moe.dispatch());
    ASSERT_EQ(third.slot, fifth.slot);
    expect_says(error_of([&] { exchange.dispatch_wait(third, moe.dispatch()); }), "not the one that was sent");
    exchange.dispatch_wait(fifth, moe.dispatch());
    moe.check_dispatch();
  }));
}

// Exchanges count alike, so one exchange's handle would name a dispatch of another.
TEST(MoeHandles, OneOfAnotherExchangeIsRejected) {
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange x = MoeExchange::create(communicator, p.call.args),
                      y = MoeExchange::create(communicator, p.call.args);
    const DispatchHandle of_x = dispatch_and_check(x, p, rank), of_y = dispatch_and_check(y, p, rank);
    CpuMoe moe(y, p, rank);
    const std::string other = "handle: another exchange has given it";
    expect_says(error_of([&] { y.combine(moe.combine(of_x)); }), other);
    expect_says(error_of([&] { y.combine_send(moe.combine(of_x)); }), other);
    expect_says(error_of([&] { y.combine(moe.combine({})); }), "handle: no dispatch has given it");
    DispatchHandle not_yet = of_y;
    ++not_yet.number;
    expect_says(error_of([&] { y.combine(moe.combine(not_yet)); }), "handle: no dispatch has given it");
    DispatchHandle recorded;
    const Recording dispatch = Recording::capture(communicator, [&] { recorded = x.dispatch(moe.dispatch()); });
    expect_says(error_of([&] { y.combine(moe.combine(recorded)); }), other);
    const DispatchHandle sent_to_x = x.dispatch_send(moe.dispatch(true)),
                         sent_to_y = y.dispatch_send(moe.dispatch(true));
    expect_says(error_of([&] { y.dispatch_wait(sent_to_x, moe.dispatch()); }), "not the one that was sent");
    x.dispatch_wait(sent_to_x, moe.dispatch());
    y.dispatch_wait(sent_to_y, moe.dispatch());
    combine_and_check(x, p, rank, sent_to_x);
    combine_and_check(y, p, rank, sent_to_y);
    combine_and_check(y, p, rank, of_y);
  }));
}

// A combine writes as many tokens as its own dispatch had. A recorded dispatch and a later one with another number of
// tokens have used the handle slot since.
TEST(MoeHandles, KnowTheirTokens) {
  MoeExchangeArgs args = small_exchange();
  args.handles = 1;
  const PreparedMoe some = prepare({.args = args, .tokens = {6, 3}}, 2, 5),
                    none = prepare({.args = args, .tokens = {0}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuMoe moe(exchange, some, rank), idle(exchange, none, rank);
    const auto without_output = [&](DispatchHandle handle) {
      CombineArgs combine = moe.combine(handle);
      combine.output = nullptr;
      return combine;
    };
    DispatchHandle of_some, of_none;
    const Recording one = Recording::capture(communicator, [&] { of_some = exchange.dispatch(moe.dispatch()); });
    exchange_and_check(exchange, none, rank);
    expect_says(error_of([&] { exchange.combine(without_output(of_some)); }), "output: null");
    one.replay();
    exchange.combine(moe.combine(of_some));
    moe.check_combine();

    const Recording other = Recording::capture(communicator, [&] { of_none = exchange.dispatch(idle.dispatch()); });
    exchange_and_check(exchange, some, rank);
    other.replay();
    exchange.combine(without_output(of_none));
  }));
}

// The host does not see when a recording's dispatch runs. Its handle names the latest replay, also after other calls. A
// recorded combine uses the tables that its handle's slot has at that time.
TEST(MoeHandles, OfRecordingsStandForEveryReplay) {
  MoeExchangeArgs args = small_exchange();
  args.handles = 1;
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuMoe moe(exchange, p, rank);
    DispatchHandle recorded;
    const Recording dispatch = Recording::capture(communicator, [&] { recorded = exchange.dispatch(moe.dispatch()); });
    const DispatchHandle before = dispatch_and_check(exchange, p, rank);
    combine_and_check(exchange, p, rank, before);
    dispatch.replay();
    moe.check_dispatch();
    combine_and_check(exchange, p, rank, recorded);
    const DispatchHandle after = dispatch_and_check(exchange, p, rank);
    const Recording combine = Recording::capture(communicator, [&] { exchange.combine(moe.combine(before)); });
    combine.replay();
    moe.check_combine();
    combine_and_check(exchange, p, rank, after);
  }));
}

// One thread dispatches and another combines, at most two handle slots apart. ThreadSanitizer checks the state that
// they share.
TEST(MoeHandles, DispatchAndCombineHaveAThreadEach) {
  constexpr int kRounds = 200;
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    std::counting_semaphore<2> free(2), ready(0);
    DispatchHandle handles[2];
    std::string error;
    std::jthread combines([&] {
      error = error_of([&] {
        CpuMoe moe(exchange, p, rank);
        for (int round = 0; round < kRounds; ++round) {
          ready.acquire();
          const CombineArgs call = moe.combine(handles[round % 2]);
          if (round % 3 == 0) {
            exchange.combine(call);
          } else {
            exchange.combine_send(call);
            exchange.combine_wait(call);
          }
          moe.check_combine();
          free.release();
        }
      });
      free.release();  // so that no thread waits for one that has ended
    });
    CpuMoe moe(exchange, p, rank);
    for (int round = 0; round < kRounds; ++round) {
      free.acquire();
      DispatchHandle& handle = handles[round % 2];
      if (round % 2 == 0) {
        handle = exchange.dispatch(moe.dispatch());
      } else {
        handle = exchange.dispatch_send(moe.dispatch());
        exchange.dispatch_wait(handle, moe.dispatch());
      }
      moe.check_dispatch();
      ready.release();
    }
    combines.join();
    EXPECT_EQ(error, "");
  }));
}

// Each exchange takes two of a communicator's channels, which groups take from the other end.
TEST(MoeLimits, ExchangesAndGroupsShareChannels) {
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, 2, 5);
  Config config = smallest_buffers();
  config.max_groups = 60;
  expect_all_well(run_world(2, config, [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    expect_says(error_of([&] { MoeExchange::create(communicator, p.call.args); }),
                "MoeExchange::create: 1 exchanges exist, and with Config::max_groups 60 there is room for 1");
    for (int split = 0; split < config.max_groups; ++split) communicator.split(0);
    exchange_and_check(exchange, p, rank);
  }));
}

}  // namespace
}  // namespace weft::test
