// Searches for the largest numbers on CPU ranks: every kind of numbers, ties, pads, and many rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/move_recordings.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/top_k.hpp"
#include "support/turn_cases.hpp"
#include "support/verdicts.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

class TopK : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TopK, testing::ValuesIn(world_sizes({1, 2, 3, 4, 8})));

TEST_P(TopK, FindsTheLargest) {
  expect_all_well(run_world(GetParam(), cpu_config(), [](Communicator& communicator, int) {
    for (const TopKCase& c : top_k_cases(communicator.size())) run_on_cpu_rank(communicator, c);
  }));
}

// Rows that a slot has no room for make several launches.
TEST_P(TopK, ServesManyRows) {
  expect_all_well(run_world(GetParam(), small_slots(), [](Communicator& communicator, int) {
    for (const std::size_t k : {1u, 8u}) {
      run_on_cpu_rank(communicator, {.rows = 500, .shard = 24, .k = k, .numbers = Numbers::ties});
    }
  }));
}

// Two recordings and eager calls take turns, with new numbers each time.
TEST_P(TopK, TwoRecordingsForEveryBatch) {
  const int ranks = GetParam();
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    take_turns_with_top_k(HostSide(communicator), ranks, rank,
                          [](const PreparedTopK& largest) { return HostTopK(largest); });
  }));
}

TEST(TopKArguments, ErrorsNameTheValueAndTheRange) {
  auto communicators = Communicator::local(1, cpu_config());
  std::vector<std::byte> memory(4096);
  const TopKColumnsArgs good{.input = memory.data(),
                             .values = memory.data() + 1024,
                             .indices = reinterpret_cast<std::int32_t*>(memory.data() + 2048),
                             .rows = 2,
                             .k = 3,
                             .shard_columns = 16,
                             .type = DataType::f32};
  const auto expect_rejected = [&](auto change, const std::string& says) {
    TopKColumnsArgs args = good;
    change(args);
    try {
      top_k_columns(communicators[0], args);
      ADD_FAILURE() << "not rejected: " << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  using Args = TopKColumnsArgs;
  top_k_columns(communicators[0], good);
  expect_rejected([](Args& a) { a.k = 0; }, "k: 0 is not between 1 and 16");
  expect_rejected([](Args& a) { a.k = 17; }, "k: 17 is not between 1 and 16");
  expect_rejected([](Args& a) { a.k = 65, a.shard_columns = 100, a.rows = 1; }, "k: 65 is not between 1 and 64");
  expect_rejected([](Args& a) { a.columns = 2; }, "k: 3 is not between 1 and 2");
  expect_rejected([](Args& a) { a.columns = 17; }, "columns: 17 is not between 0 and 16");
  expect_rejected([](Args& a) { a.shard_columns = std::size_t{1} << 31, a.rows = 0; },
                  "shard_columns: 2147483648 is not");
  expect_rejected([](Args& a) { a.shard_columns = (std::size_t{1} << 32) + 8, a.columns = 12; },
                  "shard_columns: 4294967304 is not between 0 and 2147483647");
  expect_rejected([](Args& a) { a.type = DataType::i32; }, "type: 3 is not bf16, f16 or f32");
  expect_rejected([](Args& a) { a.input = nullptr; }, "input");
  expect_rejected([](Args& a) { a.indices = nullptr; }, "indices");
  expect_rejected([](Args& a) { a.values = reinterpret_cast<std::byte*>(a.indices) + 8; }, "overlap");
  expect_rejected([](Args& a) { a.indices = static_cast<std::int32_t*>(const_cast<void*>(a.input)) + 2; }, "overlap");
  expect_rejected([](Args& a) { a.input_stride = 3; }, "input_stride");
}

TEST(TopKArguments, RanksThatDifferAreTold) {
  const auto endings = run_world(2, cpu_config(), [](Communicator& communicator, int rank) {
    std::vector<float> shard(8);
    std::vector<std::int32_t> indices(2);
    top_k_columns(communicator, {.input = shard.data(),
                                 .indices = indices.data(),
                                 .rows = 1,
                                 .k = rank == 0 ? 1u : 2u,
                                 .shard_columns = 8,
                                 .type = DataType::f32});
  });
  for (const Ending& ending : endings) {
    ASSERT_TRUE(ending.error.has_value());
    EXPECT_NE(std::ranges::find(kEndsOfAMismatch, ending.error->code()), kEndsOfAMismatch.end()) << ending.what;
  }
}

}  // namespace
}  // namespace weft::test
