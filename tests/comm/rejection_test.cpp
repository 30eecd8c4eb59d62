// One rank rejects a call: the ranks that wait for it learn that at once. If all ranks reject a call, the communicator
// works on.
#include <gtest/gtest.h>

#include <latch>

#include "support/cases.hpp"
#include "support/moe_batches.hpp"
#include "support/moe_cases.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/collectives.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

const Launch no_grid{.blocks = 99};

// A call of each kind, with a good or an impossible grid.
struct CallKind {
  std::string name;
  std::function<void(const Group& group, const Launch& launch)> call;
};
std::vector<CallKind> kinds() {
  return {
      {"all_reduce",
       [](const Group& group, const Launch& launch) {
         std::vector<float> data(8);
         all_reduce(group,
                    {.input = data.data(), .output = data.data(), .count = 8, .type = DataType::f32, .launch = launch});
       }},
      {"all_gather_into_tensor",
       [](const Group& group, const Launch& launch) {
         std::vector<float> input(4), output(4 * index(group.size()));
         all_gather_into_tensor(
             group, {.input = input.data(), .output = output.data(), .rows = 1, .row_bytes = 16, .launch = launch});
       }},
      {"reduce_scatter_tensor",
       [](const Group& group, const Launch& launch) {
         std::vector<float> input(4 * index(group.size())), output(4);
         reduce_scatter_tensor(group, {.input = input.data(),
                                       .output = output.data(),
                                       .rows = 1,
                                       .width = 4,
                                       .type = DataType::f32,
                                       .launch = launch});
       }},
      {"reduce",
       [](const Group& group, const Launch& launch) {
         std::vector<float> data(4);
         reduce(group,
                {.input = data.data(), .output = data.data(), .count = 4, .type = DataType::f32, .launch = launch});
       }},
  };
}

// There is no deadline: a rank that is not told waits for ever.
TEST(Rejection, EndsThoseThatWaitForTheCallAndSaysWhy) {
  constexpr int ranks = 3, odd = 1;
  for (const CallKind& kind : kinds()) {
    auto communicators = Communicator::local(ranks, cpu_config(0ns));
    std::latch ended(ranks - 1);
    const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
      const auto leave = [&] {
        if (rank != odd) ended.count_down();
      };
      try {
        kind.call(communicator, {});  // fails on a slow rank, if another one ends the communicator meanwhile
        if (rank == odd) {
          expect_code([&] { kind.call(communicator, no_grid); }, Errc::invalid_argument, "launch.blocks: 99");
          ended.wait();
        }
        kind.call(communicator, {});
      } catch (...) {
        leave();
        throw;
      }
      leave();
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string where = kind.name + ", rank " + std::to_string(rank);
      expect_fault(endings[index(rank)],
                   rank == odd ? std::vector{Errc::peer_failed} : std::vector{Errc::mismatch, Errc::peer_failed},
                   where);
      if (!endings[index(rank)].error) continue;
      const Fault& fault = endings[index(rank)].error->fault();
      EXPECT_EQ(fault.peer, odd) << where;
      if (fault.code == Errc::mismatch)
        expect_says(fault.theirs, "a call that it rejected (launch.blocks: 99 is not 0 or 2)");
    }
  }
}

TEST(Rejection, ByAllRanksLeavesNoTrace) {
  expect_all_well(run_world(3, cpu_config(0ns), [](Communicator& communicator, int rank) {
    const Prepared prepared = prepare({.count = 70}, 3);
    for (const CallKind& kind : kinds()) {
      for (int times = 0; times < 3; ++times) {
        for (int again = 0; again < times; ++again) {
          expect_code([&] { kind.call(communicator, no_grid); }, Errc::invalid_argument, "launch.blocks: 99");
        }
        kind.call(communicator, {});
        run_on_cpu_rank(communicator, prepared, rank);
      }
    }
    EXPECT_FALSE(communicator.status().has_value());
  }));
}

// No rank waits for the rejected call, and the next caller does not wait long.
TEST(Rejection, OfACallThatNobodyMakesIsToldToTheFirstThatDoes) {
  auto communicators = Communicator::local(2, cpu_config(5s));
  const CallKind kind = kinds()[0];
  const Group group = communicators[1].world();
  expect_code([&] { kind.call(group, no_grid); }, Errc::invalid_argument, "launch.blocks: 99");
  EXPECT_FALSE(communicators[0].status().has_value());
  expect_code([&] { kind.call(communicators[0].world(), {}); }, Errc::mismatch,
              "peer 1 called a call that it rejected");
}

TEST(Rejection, OfADispatchEndsThoseThatWaitForIt) {
  const auto endings = run_world(2, cpu_config(0ns), [](Communicator& communicator, int rank) {
    const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, 2, 5);
    const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    CpuMoe moe(exchange, p, static_cast<std::uint32_t>(rank));
    DispatchArgs args = moe.dispatch();
    if (rank == 1) args.tokens = 1 << 20;
    exchange.dispatch(args);
  });
  expect_fault(endings[0], {Errc::mismatch}, "the rank that waits");
  ASSERT_TRUE(endings[0].error);
  expect_says(endings[0].error->fault().theirs, "a call that it rejected (tokens: 1048576 is not between");
  expect_says(endings[1].what, "tokens: 1048576");
}

// A binding looks at its user's arguments before Weft does.
TEST(Rejection, ByCodeInFrontOfWeftIsToldToo) {
  const auto endings = run_world(3, cpu_config(0ns), [](Communicator& communicator, int rank) {
    const CallKind kind = kinds()[0];
    communicator.world().refuse("input: a list", nullptr);  // all ranks have refused the same
    kind.call(communicator, {});
    if (rank == 2) return communicator.world().refuse("input: a number", nullptr);
    kind.call(communicator, {});
  });
  for (const int rank : {0, 1}) {
    expect_fault(endings[index(rank)], {Errc::mismatch, Errc::peer_failed}, "a rank that waits");
    ASSERT_TRUE(endings[index(rank)].error);
    const Fault& fault = endings[index(rank)].error->fault();
    EXPECT_EQ(fault.peer, 2);
    if (fault.code == Errc::mismatch) expect_says(fault.theirs, "a call that it rejected (input: a number)");
  }
  Group().refuse("nobody is there to be told", nullptr);
}

TEST(Rejection, OfAnExchangesCallByCodeInFrontOfWeft) {
  for (const bool combines : {false, true}) {
    const auto endings = run_world(2, cpu_config(0ns), [&](Communicator& communicator, int rank) {
      const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, 2, 5);
      const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
      CpuMoe moe(exchange, p, static_cast<std::uint32_t>(rank));
      if (rank == 1 && !combines) return exchange.refuse_dispatch("ids: a list");
      const DispatchHandle handle = exchange.dispatch(moe.dispatch());
      if (rank == 1) return exchange.refuse_combine("ids: a list");
      exchange.combine(moe.combine(handle));
    });
    expect_fault(endings[0], {Errc::mismatch}, combines ? "combine" : "dispatch");
    ASSERT_TRUE(endings[0].error);
    expect_says(endings[0].error->fault().theirs, "a call that it rejected (ids: a list)");
  }
}

}  // namespace
}  // namespace weft::test
