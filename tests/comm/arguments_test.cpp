// A hundred calls that cannot be: each is rejected with the argument's name before anything is sent, so that the
// communicator works on as if they had never been made.
#include <gtest/gtest.h>

#include "support/cases.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

struct Rejection {
  std::string part;  // of the message: the argument's name, or what else tells it
  AllReduceArgs args;
};

std::vector<Rejection> rejections(std::byte* memory) {
  std::vector<Rejection> all;
  const AllReduceArgs good{.input = memory, .output = memory + 4096, .count = 64};
  const auto add = [&](const std::string& part, auto&& spoil) {
    AllReduceArgs args = good;
    spoil(args);
    all.push_back({part, args});
  };
  for (const DataType type : kTypes) {
    for (const Algorithm algorithm :
         {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot, Algorithm::bulk}) {
      const auto base = [&](AllReduceArgs& a) {
        a.type = type;
        a.algorithm = algorithm;
      };
      add("input: null, with count 64", [&](auto& a) { base(a), a.input = nullptr; });
      add("output: null, with count 1", [&](auto& a) { base(a), a.output = nullptr, a.count = 1; });
      add("output: overlaps input", [&](auto& a) { base(a), a.output = memory + size_of(type); });
      add("output: overlaps input",
          [&](auto& a) { base(a), a.input = memory + 63 * size_of(type), a.output = memory; });
    }
    add("count: ", [&](auto& a) { a.type = type, a.count = SIZE_MAX; });
    add("count: ", [&](auto& a) { a.type = type, a.count = SIZE_MAX / 8 / size_of(type) + 1; });
    for (std::size_t shift = 1; shift < size_of(type); ++shift) {
      add("input: ", [&](auto& a) { a.type = type, a.input = memory + shift; });
      add("output: ", [&](auto& a) { a.type = type, a.output = memory + 4096 + shift; });
    }
  }
  for (const int value : {5, 6, 100, 255}) {
    add("type: " + std::to_string(value) + " is not", [&](auto& a) { a.type = static_cast<DataType>(value); });
    add("algorithm: " + std::to_string(value) + " is not",
        [&](auto& a) { a.algorithm = static_cast<Algorithm>(value); });
  }
  for (const int value : {2, 3, 255}) {
    add("op: " + std::to_string(value) + " is not", [&](auto& a) { a.op = static_cast<ReduceOp>(value); });
  }
  for (const int blocks : {-1000, -1, 1, 3, 100000}) {
    add("launch.blocks: " + std::to_string(blocks), [&](auto& a) { a.launch.blocks = blocks; });
  }
  for (const int threads : {-32, 1, 31, 33, 63, 1056, 2048, 100000}) {
    add("launch.threads: " + std::to_string(threads), [&](auto& a) { a.launch.threads = threads; });
  }
  add("stream: ", [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory); });
  add("stream: ", [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory), a.count = 0; });
  // A mistake counts with nothing to do, too.
  add("launch.threads: 7", [&](auto& a) { a.launch.threads = 7, a.count = 0; });
  add("type: 9", [&](auto& a) { a.type = static_cast<DataType>(9), a.count = 0; });
  return all;
}

TEST(Arguments, AHundredMistakesAreRejectedByNameAndLeaveNoTrace) {
  constexpr int ranks = 3;
  alignas(64) static std::byte memory[8192];
  const std::vector<Rejection> all = rejections(memory);
  EXPECT_GE(all.size(), 100u);
  const Prepared good = prepare({.count = 100, .seed = 3}, ranks);
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      try {
        all_reduce(communicator, all[i].args);
        ADD_FAILURE() << "not rejected: " << all[i].part;
        return;  // the others would wait
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument) << error.what();
        expect_says(error.what(), all[i].part);
      }
      ASSERT_FALSE(communicator.status().has_value());
      if (i % 10 == 0) run_on_cpu_rank(communicator, good, rank);
    }
    EXPECT_EQ(communicator.world().recent_calls().size(), (all.size() + 9) / 10);  // rejected calls are no calls
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
