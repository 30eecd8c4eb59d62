// Groups: parts of the world that work side by side, and take turns with the world.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "support/cases.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

Case group_case(std::size_t call, int group) {
  return {.count = call * 37 % 400,
          .type = kTypes[call % std::size(kTypes)],
          .algorithm = kAlgorithms[call / 4 % 3],
          .seed = static_cast<std::uint32_t>(call * 8) + static_cast<std::uint32_t>(group)};
}

TEST(Groups, MembersAreOrderedByWorldRankAndColorMinusOneIsInNone) {
  expect_all_well(run_world(5, cpu_config(), [](Communicator& communicator, int rank) {
    const Group group = communicator.split(rank == 2 ? -1 : rank % 2);
    if (rank == 2) {
      expect_says(error_of([&] { all_reduce(group, {}); }), "group: empty");
      return;
    }
    const std::vector<int> wanted = rank % 2 == 0 ? std::vector<int>{0, 4} : std::vector<int>{1, 3};
    EXPECT_EQ(std::vector<int>(group.members().begin(), group.members().end()), wanted);
    EXPECT_EQ(group.size(), 2);
    EXPECT_EQ(wanted[static_cast<std::size_t>(group.rank())], rank);
    EXPECT_EQ(group.device(), Device::cpu);
  }));
}

// Engines make many groups of the same ranks.
TEST(Groups, TakeNoMoreMemory) {
  expect_all_well(run_world(2, cpu_config(), [](Communicator& communicator, int) {
    const MemoryUse before = communicator.memory();
    const Group first = communicator.split(0), second = communicator.split(0);
    EXPECT_EQ(communicator.memory().window, before.window);
    EXPECT_EQ(communicator.memory().control, before.control);
  }));
}

// Rounding makes the region of three ranks larger than that of four ranks. It must not reach into the next group's
// region.
TEST(Groups, RegionsOfSmallerGroupsFit) {
  constexpr std::size_t bytes = std::size_t{4} << 20, count = bytes / 4;
  Config config = cpu_config();
  config.max_groups = 2;
  config.group_one_shot_bytes = 16;
  config.group_two_shot_bytes = bytes;
  expect_all_well(run_world(4, config, [&](Communicator& communicator, int rank) {
    const int color = rank < 3 ? 0 : -1;
    const Group first = communicator.split(color), second = communicator.split(color);
    if (rank == 3) return;
    std::vector<float> data(count, 1.0f);
    for (int call = 0; call < 2; ++call) {  // both banks
      for (const Group* group : {&first, &second}) {
        std::vector<float> sum(count);
        all_reduce(*group, {.input = data.data(),
                            .output = sum.data(),
                            .count = count,
                            .type = DataType::f32,
                            .algorithm = Algorithm::two_shot});
        EXPECT_EQ(std::count(sum.begin(), sum.end(), 3.0f), static_cast<std::ptrdiff_t>(count));
      }
    }
  }));
}

// Each part has its own pace, data and number of calls.
TEST(Groups, WorkSideBySide) {
  constexpr int ranks = 7;
  constexpr int colors[ranks] = {0, 1, 0, 2, 1, 0, 2};
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    const int color = colors[rank];
    const Group group = communicator.split(color);
    for (std::size_t call = 0; call < static_cast<std::size_t>(repeated(200 + color * 100)); ++call) {
      run_on_cpu_rank(group, prepare(group_case(call, color), group.size()), group.rank());
    }
  }));
}

TEST(Groups, TakeTurnsWithTheWorldAndWithEachOther) {
  constexpr int ranks = 6;
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    const Group halves = communicator.split(rank / 3);
    const Group pairs = communicator.split(rank % 3);
    for (std::size_t call = 0; call < static_cast<std::size_t>(repeated(150)); ++call) {
      run_on_cpu_rank(halves, prepare(group_case(call, rank / 3), 3), halves.rank());
      if (call % 3 == 0) run_on_cpu_rank(communicator, prepare(group_case(call, 7), ranks), rank);
      run_on_cpu_rank(pairs, prepare(group_case(call + 1, rank % 3), 2), pairs.rank());
    }
  }));
}

TEST(Groups, DifferentGroupsMayBeUsedFromDifferentThreads) {
  constexpr int ranks = 3;
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    const Group other = communicator.split(0);
    const auto errors = run_ranks(2, [&](int thread) {
      const Group& group = thread == 0 ? communicator.world() : other;
      for (std::size_t call = 0; call < static_cast<std::size_t>(repeated(300)); ++call) {
        run_on_cpu_rank(group, prepare(group_case(call, thread), ranks), rank);
      }
    });
    expect_no_errors(errors);
  }));
}

TEST(Groups, NoMoreThanPromised) {
  Config config = cpu_config();
  config.max_groups = 2;
  expect_all_well(run_world(3, config, [](Communicator& communicator, int rank) {
    communicator.split(0);
    const Group second = communicator.split(rank == 0 ? -1 : 0);
    expect_says(error_of([&] { communicator.split(0); }), "Config::max_groups is 2");
    if (rank != 0) run_on_cpu_rank(second, prepare(group_case(5, 0), 2), second.rank());
  }));
}

TEST(Groups, ABadColorOnOneRankIsAnErrorOnAllAndChangesNothing) {
  expect_all_well(run_world(3, cpu_config(), [](Communicator& communicator, int rank) {
    expect_says(error_of([&] { communicator.split(rank == 1 ? -2 : 0); }), "color: -2");
    const Group group = communicator.split(0);
    run_on_cpu_rank(group, prepare(group_case(5, 0), 3), rank);
    run_on_cpu_rank(communicator, prepare(group_case(6, 0), 3), rank);
  }));
}

TEST(Groups, OutliveTheCommunicatorTheyCameFrom) {
  std::vector<Communicator> communicators = Communicator::local(2, cpu_config());
  std::vector<Group> groups(2);
  run_world(communicators, [&](Communicator& communicator, int rank) {
    groups[static_cast<std::size_t>(rank)] = communicator.split(0);
  });
  communicators.clear();
  expect_no_errors(run_ranks(2, [&](int rank) {
    run_on_cpu_rank(groups[static_cast<std::size_t>(rank)], prepare(group_case(5, 0), 2), rank);
  }));
}

// A rank that is done may leave while others, who do not need it, work on.
TEST(Groups, ARankMayLeaveWhileOthersWorkOn) {
  std::vector<Communicator> communicators = Communicator::local(3, cpu_config());
  std::vector<std::optional<Communicator>> owned;
  for (Communicator& communicator : communicators) owned.emplace_back(std::move(communicator));
  communicators.clear();
  expect_no_errors(run_ranks(3, [&](int rank) {
    std::optional<Communicator>& mine = owned[static_cast<std::size_t>(rank)];
    Group group = mine->split(rank == 2 ? -1 : 0);
    run_on_cpu_rank(*mine, prepare(group_case(3, 0), 3), rank);
    mine.reset();
    if (rank == 2) return;
    for (std::size_t call = 0; call < 50; ++call) run_on_cpu_rank(group, prepare(group_case(call, 0), 2), rank);
  }));
}

}  // namespace
}  // namespace weft::test
