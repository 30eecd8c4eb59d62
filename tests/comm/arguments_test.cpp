// A hundred impossible calls. Each is rejected with the argument's name before anything is sent, and the communicator
// works on as before.
#include <gtest/gtest.h>

#include "support/cases.hpp"
#include "support/ranks.hpp"
#include "support/rejections.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

TEST(Arguments, AHundredMistakesAreRejectedByNameAndLeaveNoTrace) {
  constexpr int ranks = 3;
  alignas(64) static std::byte memory[8192];
  const std::vector<RejectedAllReduce> all = rejected_all_reduces(memory, Device::cpu);
  EXPECT_GE(all.size(), 100u);
  const Prepared good = prepare({.count = 100, .seed = 3}, ranks);
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      try {
        all_reduce(communicator, all[i].args);
        ADD_FAILURE() << "not rejected: " << all[i].part;
        return;  // the other ranks would wait
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument) << error.what();
        expect_says(error.what(), all[i].part);
      }
      ASSERT_FALSE(communicator.status().has_value());
      if (i % 10 == 0) run_on_cpu_rank(communicator, good, rank);
    }
    EXPECT_EQ(communicator.world().recent_calls().size(), (all.size() + 9) / 10);  // rejected calls are not recorded
    run_on_cpu_rank(communicator, good, rank);
  }));
}

TEST(Arguments, WhatTheCpuCannotDoIsUnsupported) {
  static std::byte memory[256];
  expect_all_well(run_world(2, cpu_config(), [](Communicator& communicator, int) {
    try {
      all_reduce(communicator,
                 {.input = memory, .output = memory, .count = 4, .type = DataType::f32, .algorithm = Algorithm::nccl});
      ADD_FAILURE() << "NCCL on the CPU";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::unsupported);
      expect_says(error.what(), "algorithm: nccl");
    }
  }));
}

TEST(Arguments, EmptyHandlesSaySo) {
  const Group empty;
  for (const auto& use : std::vector<std::function<void()>>{[&] { empty.rank(); }, [&] { empty.size(); },
                                                            [&] { empty.members(); }, [&] { empty.status(); },
                                                            [&] { empty.check(); }, [&] { all_reduce(empty, {}); }}) {
    expect_says(error_of(use), "group: empty");
  }
}

}  // namespace
}  // namespace weft::test
