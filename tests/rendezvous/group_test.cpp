// Bootstraps of groups within a world.
#include <gtest/gtest.h>

#include <vector>

#include "rendezvous/bootstrap.hpp"
#include "rendezvous/unique_id.hpp"
#include "support/ranks.hpp"

namespace weft::detail {
namespace {

using namespace std::chrono_literals;
using namespace test;

// Checks that `group` has these members of a world of threads or processes.
void check_group(Bootstrap& group, const std::vector<int>& members, int world_rank) {
  EXPECT_EQ(group.size(), static_cast<int>(members.size()));
  EXPECT_EQ(members[index(group.rank())], world_rank);
  EXPECT_EQ(group.all_gather_value("world ranks", world_rank), members);
}

TEST(Groups, MeetSideBySide) {
  const std::vector<std::vector<int>> groups = {{0, 2, 5}, {1}, {3, 4, 6}, {}};
  const std::vector<int> group_of = {0, 1, 0, 2, 2, 0, 2, 3};
  auto worlds = make_thread_bootstraps(8, long_deadline);
  const auto errors = run_ranks(8, [&](int rank) {
    const std::vector<int>& members = groups[index(group_of[index(rank)])];
    const auto group = make_group_bootstrap(*worlds[index(rank)], members);
    EXPECT_EQ(group == nullptr, members.empty());
    if (group) check_group(*group, members, rank);
    worlds[index(rank)]->barrier("the world still meets");
    if (group) check_group(*group, members, rank);
  });
  expect_no_errors(errors);
}

TEST(Groups, OfAWorldThatMeetsOverTcp) {
  const UniqueId id = UniqueId::create();
  const auto errors = run_ranks(4, [&](int rank) {
    const auto world = make_id_bootstrap(id, rank, 4, long_deadline);
    EXPECT_EQ(world->address(), "127.0.0.1");
    const std::vector<int> members = rank % 2 == 0 ? std::vector{0, 2} : std::vector{1, 3};
    const auto group = make_group_bootstrap(*world, members);
    check_group(*group, members, rank);
    // A group within a group.
    const std::vector<int> all = {0, 1};
    check_group(*make_group_bootstrap(*group, all), {0, 1}, group->rank());
  });
  expect_no_errors(errors);
}

TEST(Groups, OutliveTheirWorld) {
  auto worlds = make_thread_bootstraps(4, long_deadline);
  const auto errors = run_ranks(4, [&](int rank) {
    const std::vector<int> members = {0, 1, 2, 3};
    const auto group = make_group_bootstrap(*worlds[index(rank)], members);
    worlds[index(rank)].reset();
    check_group(*group, members, rank);
  });
  expect_no_errors(errors);
}

TEST(Groups, FailAlone) {
  auto worlds = make_thread_bootstraps(4, for_ever);
  const auto errors = run_ranks(4, [&](int rank) {
    const std::vector<int> members = rank < 2 ? std::vector{0, 1} : std::vector{2, 3};
    auto group = make_group_bootstrap(*worlds[index(rank)], members);
    if (rank == 3) group.reset();
    if (group) group->barrier("in the group");
  });
  EXPECT_EQ(errors[0] + errors[1] + errors[3], "");
  expect_says(errors[2], "'in the group': rank 1 disconnected");
  expect_no_errors(run_ranks(4, [&](int rank) { worlds[index(rank)]->barrier("the world still meets"); }));
}

TEST(Groups, DisagreementsAreFoundOnAllRanks) {
  const std::vector<std::pair<std::vector<std::vector<int>>, std::string>> cases = {
      {{{0, 1}, {0, 1, 2}, {2}}, "disagree about its members"},
      {{{0, 1}, {1}, {2}}, "disagree about its members"},
      {{{0}, {0}, {2}}, "rank 1 names a group that it is no member of"},
      {{{0}, {1}, {2, 1}}, "members must ascend"},
      {{{0}, {1, 1}, {2}}, "members must ascend"},
      {{{0, 3}, {1}, {2}}, "members must be 0 … 2"},
      {{{-1, 0}, {1}, {2}}, "members must be 0 … 2"}};
  for (const auto& test_case : cases) {
    const std::vector<std::vector<int>>& lists = test_case.first;
    auto worlds = make_thread_bootstraps(3, for_ever);
    expect_all_say(run_ranks(3, [&](int rank) { make_group_bootstrap(*worlds[index(rank)], lists[index(rank)]); }),
                   test_case.second);
  }
}

}  // namespace
}  // namespace weft::detail
