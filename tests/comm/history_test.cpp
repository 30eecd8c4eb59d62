// The flight recorder in faults: the calls that it lists, and their numbers.
#include <gtest/gtest.h>

#include "support/cases.hpp"
#include "support/first_epoch.hpp"
#include "support/moe_cases.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

// A call without a check of its result.
void call(const Group& group, std::uint32_t tag) {
  Tensors tensors({.count = 60, .tag = tag}, input_of({.count = 60}, group.rank()));
  all_reduce(group,
             arguments({.count = 60, .tag = tag}, tensors.input.content().data(), tensors.output.content().data()));
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(History, IsThatOfTheGroupThatFailedWhicheverIsAsked) {
  run_world(2, cpu_config(short_deadline), [](Communicator& communicator, int rank) {
    const Group a = communicator.split(0), b = communicator.split(0);
    call(b, 200);
    call(a, 100);
    const std::string seen_by_a = error_of([&] { call(a, 101 + static_cast<std::uint32_t>(rank)); });
    expect_says(seen_by_a, "last calls of this rank on this group:\n  0 all_reduce");
    for (const Group* asked : {&b, &communicator.world()}) {
      const std::string seen = error_of([&] { asked->check(); });
      expect_says(seen, "last calls of this rank on the group that failed:\n  0 all_reduce");
      expect_says(seen, "tag 100\n");
      expect_says(seen, "tag " + std::to_string(101 + rank));
      EXPECT_FALSE(says(seen, "tag 200")) << seen;
    }
  });
}

MoeExchangeArgs small_args() {
  return {.tokens = 4, .hidden = 64, .experts = 4, .top_k = 2};
}

TEST(History, OfAnExchangeHasDispatchAndCombine) {
  const PreparedMoe p = prepare({.args = small_args(), .tokens = {4}}, 2, 5);
  const auto endings = run_world(2, cpu_config(short_deadline), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, small_args());
    exchange_and_check(exchange, p, rank);
    const DispatchHandle handle = dispatch_and_check(exchange, p, rank);
    if (rank == 0) combine_and_check(exchange, p, rank, handle);
  });
  expect_fault(endings[0], {Errc::timeout}, "the rank that combines alone");
  expect_says(endings[0].what, "on the group that failed:\n  0 dispatch");
  expect_says(endings[0].what, "\n  0 combine");
  expect_says(endings[0].what, "\n  1 dispatch");
  expect_says(endings[0].what, "\n  1 combine");
}

// The repeated calls of a decoding loop are one line, and do not push out others.
TEST(History, CallsThatAreAlikeAreALine) {
  auto communicators = Communicator::local(1, cpu_config());
  Communicator& communicator = communicators[0];
  for (const std::uint32_t tag : {1u, 2u, 2u, 2u, 3u, 3u}) call(communicator, tag);
  communicator.release();
  const std::string seen = error_of([&] { barrier(communicator, {}); });
  const std::size_t begin = seen.find("last calls");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(std::count(seen.begin() + static_cast<std::ptrdiff_t>(begin), seen.end(), '\n'), 3) << seen;
  expect_says(seen, ":\n  0 all_reduce");
  expect_says(seen, "tag 1\n  1 … 3 all_reduce");
  expect_says(seen, "tag 2 (× 3)\n  4 … 5 all_reduce");
  EXPECT_EQ(seen.substr(seen.size() - 12), "tag 3 (× 2)") << seen;
}

// If a program calls too early, the message lists its last calls.
TEST(History, IsInCallsWhileTheMemoryIsReleased) {
  auto communicators = Communicator::local(1, cpu_config());
  Communicator& communicator = communicators[0];
  const MoeExchange exchange = MoeExchange::create(communicator, small_args());
  const PreparedMoe p = prepare({.args = small_args(), .tokens = {4}}, 1, 5);
  call(communicator, 7);
  dispatch_and_check(exchange, p, 0);
  communicator.release();
  const std::string last = "released; call acquire() first\nlast calls of this rank on this group:\n  0 ";
  for (const auto& early :
       std::vector<std::function<void()>>{[&] { call(communicator, 8); }, [&] { barrier(communicator, {}); }}) {
    const std::string seen = error_of(early);
    expect_says(seen, last + "all_reduce");
    expect_says(seen, "tag 7");
    EXPECT_FALSE(says(seen, "tag 8")) << seen;
  }
  expect_says(error_of([&] { dispatch_and_check(exchange, p, 0); }), last + "dispatch");
}

// A rejected call is not recorded: its message stands alone.
TEST(History, IsNotInRejections) {
  run_world(2, cpu_config(), [](Communicator& communicator, int) {
    call(communicator, 1);
    const std::string rejected = error_of([&] { all_reduce(communicator, {.count = 3}); });
    expect_says(rejected, "input: null");
    EXPECT_FALSE(says(rejected, "last calls")) << rejected;
  });
}

// Epoch 0 is an ordinary number, no default.
TEST(FirstEpoch, IsTheNumberOfTheFirstCall) {
  for (const std::uint32_t first : {0u, 1u, 7u, 0xffffffffu}) {
    Config config = cpu_config(short_deadline);
    const FirstEpoch epoch(first);
    for (const bool in_group : {false, true}) {
      const auto endings = run_world(2, config, [&](Communicator& communicator, int rank) {
        const Group group = in_group ? communicator.split(0) : communicator.world();
        call(group, static_cast<std::uint32_t>(rank));
      });
      int mismatches = 0;
      for (const Ending& ending : endings) {
        ASSERT_TRUE(ending.error) << ending.what;
        EXPECT_EQ(ending.error->fault().epoch_wanted, first) << ending.what;
        mismatches += ending.error->code() == Errc::mismatch;
      }
      EXPECT_GE(mismatches, 1);
    }
  }
}

TEST(FirstEpoch, GoesOnOverReleaseAndAcquire) {
  Config config = cpu_config(short_deadline);
  const FirstEpoch epoch(0);
  const auto endings = run_world(2, config, [](Communicator& communicator, int rank) {
    communicator.release();
    communicator.acquire();
    call(communicator, 3);
    communicator.release();
    communicator.acquire();
    call(communicator, static_cast<std::uint32_t>(rank));
  });
  for (const Ending& ending : endings) {
    ASSERT_TRUE(ending.error) << ending.what;
    EXPECT_EQ(ending.error->fault().epoch_wanted, 1u) << ending.what;
  }
}

}  // namespace
}  // namespace weft::test
