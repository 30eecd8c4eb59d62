// Calls that put columns together, on CPU ranks: every place, pad and change of elements, in slots, in chunks and in
// symmetric memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "numeric/element_map.hpp"
#include "support/columns.hpp"
#include "support/move_recordings.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/turn_cases.hpp"
#include "support/verdicts.hpp"
#include "support/world.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

class Columns : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Columns, testing::ValuesIn(world_sizes({1, 2, 3, 4, 8})));

TEST_P(Columns, ComeToTheirPlaces) {
  for (const Config& config : {cpu_config(), small_slots()}) {
    expect_all_well(run_world(GetParam(), config, [](Communicator& communicator, int) {
      for (const ColumnCase& c : column_cases(communicator.size())) run_on_cpu_rank(communicator, c);
    }));
  }
}

TEST_P(Columns, ComeToTheirGroups) {
  for (const Config& config : {cpu_config(), small_slots()}) {
    expect_all_well(run_world(GetParam(), config, [](Communicator& communicator, int rank) {
      std::mt19937 delays(static_cast<unsigned>(rank));
      for (const ColumnCase& c : group_column_cases(communicator.size())) {
        if (delays() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 200));
        run_on_cpu_rank(communicator, c);
      }
    }));
  }
}

TEST_P(Columns, ComeToSymmetricMemory) {
  expect_all_well(run_world(GetParam(), small_slots(), [](Communicator& communicator, int rank) {
    const auto memory = SymmetricMemory::allocate(communicator, kColumnBytes);
    std::mt19937 delays(static_cast<unsigned>(rank));
    for (int turn = 0; turn < 3; ++turn) {
      for (const ColumnCase& c : column_cases(communicator.size())) {
        if (delays() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 200));
        run_on_cpu_rank(communicator, c, static_cast<std::byte*>(memory.data()));
      }
    }
  }));
}

// Two recordings and eager calls take turns, with new logits and counts each time. Capacities are each rank's own.
TEST_P(Columns, TwoRecordingsForEveryBatch) {
  const int ranks = GetParam();
  for (const int group_ranks : std::set{1, ranks % 2 == 0 ? 2 : 1, ranks}) {
    expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
      take_turns_with_columns(HostSide(communicator), ranks, rank, group_ranks,
                              [](const PreparedColumns& largest) { return HostColumns(largest); });
    }));
  }
}

// The call is rejected with these words once `change` has been made to good arguments.
template <class Args, class Change>
void expect_rejection(void (*call)(const Group&, const Args&), const Group& group, Args args, Change change,
                      const std::string& says) {
  change(args);
  try {
    call(group, args);
    ADD_FAILURE() << "not rejected: " << says;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  }
}

TEST(ColumnArguments, ErrorsNameTheValueAndTheRange) {
  auto communicators = Communicator::local(1, cpu_config());
  std::vector<std::byte> memory(4096);
  const AllGatherColumnsArgs good{
      .input = memory.data(), .output = memory.data() + 2048, .rows = 2, .shard_columns = 16, .type = DataType::f32};
  const auto expect_rejected = [&](auto change, const std::string& says) {
    expect_rejection(all_gather_columns, communicators[0], good, change, says);
  };
  using Args = AllGatherColumnsArgs;
  all_gather_columns(communicators[0], good);
  expect_rejected([](Args& a) { a.columns = 17; }, "columns: 17 is not between 0 and 16");
  expect_rejected([](Args& a) { a.scale = NAN; }, "scale: nan is not finite");
  for (const auto& pair : {std::pair(3e38f, 0.1f), std::pair(1e-30f, 1e20f)})
    expect_rejected([=](Args& a) { a.scale = pair.first, a.soft_cap = pair.second; }, "is beyond the range of f32");
  expect_rejected([](Args& a) { a.soft_cap = -1; }, "soft_cap: -1 is not finite, 0 or above");
  expect_rejected([](Args& a) { a.soft_cap = INFINITY; }, "soft_cap: inf is not");
  expect_rejected(
      [](Args& a) {
        a.type = DataType::i32;
        a.scale = 2;
      },
      "type: i32 is not bf16, f16 or f32");
  expect_rejected([](Args& a) { a.input = nullptr; }, "input");
  expect_rejected([](Args& a) { a.output = static_cast<std::byte*>(const_cast<void*>(a.input)) + 64; }, "overlap");
  // In place only if elements keep their bits.
  expect_rejected(
      [](Args& a) {
        a.output = const_cast<void*>(a.input);
        a.scale = 2;
      },
      "overlap");
}

TEST(ColumnArguments, OfGroupsNameTheValueAndTheRange) {
  auto communicators = Communicator::local(1, cpu_config());
  std::vector<std::byte> memory(4096);
  const std::int32_t rows[] = {2};
  const AllToAllColumnsArgs good{.input = memory.data(),
                                 .output = memory.data() + 2048,
                                 .shard_columns = 16,
                                 .type = DataType::f32,
                                 .counts = {.rows = rows},
                                 .input_rows = 2,
                                 .output_rows = 2};
  const auto expect_rejected = [&](auto change, const std::string& says) {
    expect_rejection(all_to_all_columns, communicators[0], good, change, says);
  };
  using Args = AllToAllColumnsArgs;
  all_to_all_columns(communicators[0], good);
  expect_rejected([](Args& a) { a.columns = 17; }, "columns: 17 is not between 0 and 16");
  expect_rejected([](Args& a) { a.group_ranks = 0; }, "group_ranks: 0 is no divisor of the group's 1");
  expect_rejected([](Args& a) { a.group_ranks = 2; }, "group_ranks: 2 is no divisor of the group's 1");
  expect_rejected([](Args& a) { a.counts.rows = nullptr; }, "counts.rows: null");
  expect_rejected([](Args& a) { a.soft_cap = -1; }, "soft_cap: -1 is not finite, 0 or above");
  expect_rejected([](Args& a) { a.output = const_cast<void*>(a.input); }, "overlap");
}

// Rows of a group that do not fit end the call on every rank, before anything is written.
TEST(ColumnArguments, RowsThatDoNotFitEndTheCall) {
  for (const bool input : {false, true}) {
    const auto endings = run_world(4, cpu_config(), [&](Communicator& communicator, int rank) {
      const std::int32_t counts[] = {1, 3};
      std::vector<float> shard(4 * 8), all(3 * 32, -1);
      const bool small = rank == 3;
      try {
        all_to_all_columns(communicator, {.input = shard.data(),
                                          .output = all.data(),
                                          .shard_columns = 8,
                                          .type = DataType::f32,
                                          .group_ranks = 2,
                                          .counts = {.rows = counts},
                                          .input_rows = small && input ? 3u : 4u,
                                          .output_rows = small && !input ? 2u : 3u});
      } catch (const Error&) {
        if (small) ensure(all == std::vector<float>(3 * 32, -1), "something was written");
        throw;
      }
    });
    for (std::size_t rank = 0; rank < endings.size(); ++rank) {
      ASSERT_TRUE(endings[rank].error.has_value());
      EXPECT_EQ(endings[rank].error->code(), rank == 3 ? Errc::capacity : Errc::peer_failed) << endings[rank].what;
    }
    const char* const says = input ? "all slots together have 4 rows, and the tensor that holds them 3"
                                   : "the part of rank 3 has 3 rows, and its tensor 2";
    EXPECT_NE(endings[3].what.find(says), std::string::npos) << endings[3].what;
  }
}

// A count of a group is told by the group's first rank.
TEST(ColumnArguments, ANegativeCountIsNamed) {
  const auto endings = run_world(4, cpu_config(), [&](Communicator& communicator, int) {
    const std::int32_t counts[] = {1, -3};
    std::vector<float> shard(4 * 8), all(3 * 32);
    all_to_all_columns(communicator, {.input = shard.data(),
                                      .output = all.data(),
                                      .shard_columns = 8,
                                      .type = DataType::f32,
                                      .group_ranks = 2,
                                      .counts = {.rows = counts},
                                      .input_rows = 4,
                                      .output_rows = 3});
  });
  for (const Ending& ending : endings) {
    ASSERT_TRUE(ending.error.has_value());
    EXPECT_EQ(ending.error->code(), Errc::capacity) << ending.what;
    EXPECT_NE(ending.what.find("the count of rank 2 is -3"), std::string::npos) << ending.what;
  }
}

// One number for all: groups share its rows.
TEST(ColumnShares, ComeToTheirGroups) {
  expect_all_well(run_world(4, small_slots(), [](Communicator& communicator, int rank) {
    const std::int32_t all_rows = 5;
    std::vector<float> shard(5 * 8), all(3 * 32, -1);
    for (std::size_t i = 0; i < shard.size(); ++i) shard[i] = static_cast<float>(rank * 100) + static_cast<float>(i);
    all_to_all_columns(communicator, {.input = shard.data(),
                                      .output = all.data(),
                                      .shard_columns = 8,
                                      .type = DataType::f32,
                                      .group_ranks = 2,
                                      .counts = {.rows = &all_rows, .sharding = Sharding::balanced},
                                      .input_rows = 5,
                                      .output_rows = 3});
    const std::size_t begin = rank < 2 ? 0 : 3, rows = rank < 2 ? 3 : 2;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t row = i / 32, from = i % 32 / 8, column = i % 8;
      const float sent = 100 * static_cast<float>(from) + static_cast<float>((begin + row) * 8 + column);
      ensure(all[i] == (row < rows ? sent : -1), "element " + std::to_string(i) + " is not its own");
    }
  }));
}

TEST(ColumnArguments, RanksThatDifferAreTold) {
  const auto endings = run_world(2, cpu_config(), [](Communicator& communicator, int rank) {
    std::vector<float> shard(8), all(16);
    all_gather_columns(communicator, {.input = shard.data(),
                                      .output = all.data(),
                                      .rows = 1,
                                      .shard_columns = 8,
                                      .type = DataType::f32,
                                      .soft_cap = rank == 0 ? 30.0f : 50.0f});
  });
  for (const Ending& ending : endings) {
    ASSERT_TRUE(ending.error.has_value());
    EXPECT_NE(std::ranges::find(kEndsOfAMismatch, ending.error->code()), kEndsOfAMismatch.end()) << ending.what;
  }
}

TEST(ColumnArguments, GroupsThatDifferAreTold) {
  const auto endings = run_world(2, cpu_config(), [](Communicator& communicator, int rank) {
    std::vector<float> shard(2 * 8), all(2 * 16);
    const std::int32_t counts[] = {1, 1};
    all_to_all_columns(communicator, {.input = shard.data(),
                                      .output = all.data(),
                                      .shard_columns = 8,
                                      .type = DataType::f32,
                                      .group_ranks = rank == 0 ? 1u : 2u,
                                      .counts = {.rows = counts},
                                      .input_rows = 2,
                                      .output_rows = 2});
  });
  for (const Ending& ending : endings) {
    ASSERT_TRUE(ending.error.has_value());
    EXPECT_NE(std::ranges::find(kEndsOfAMismatch, ending.error->code()), kEndsOfAMismatch.end()) << ending.what;
  }
}

// Every bf16, and f32 between them, against the C library in double precision.
TEST(HyperbolicTangent, IsWithinTwoUnitsAndAHalf) {
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    const float x = detail::bits_of<float>(high << 16 | (high * 2654435761u >> 16));
    if (std::isnan(x)) continue;
    const float got = detail::hyperbolic_tangent(x);
    const double exact = std::tanh(static_cast<double>(x));
    const double unit = std::abs(std::nextafter(static_cast<float>(exact), 2.0f) - static_cast<float>(exact));
    ASSERT_LE(std::abs(got - exact), 2.5 * unit) << x;
    ASSERT_EQ(std::signbit(got), std::signbit(x)) << x;
    ASSERT_LE(std::abs(got), 1.0f) << x;
  }
}

}  // namespace
}  // namespace weft::test
