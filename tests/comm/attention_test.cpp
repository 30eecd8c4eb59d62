// A layer with data-parallel attention in the groups of a ParallelLayout: the chain of docs/dp_attention.md, and ragged
// calls of several groups at the same time.
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <thread>

#include "support/attention.hpp"
#include "support/move_mixes.hpp"
#include "support/move_recordings.hpp"
#include "support/moves.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

class HostSpace final : public LayerSpace {
 public:
  std::byte* take(std::size_t bytes) override { return memory_.emplace_back(bytes).data(); }
  void write(std::byte* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void read(void* to, const std::byte* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }

 private:
  std::deque<std::vector<std::byte>> memory_;
};

class Attention : public testing::TestWithParam<ParallelLayout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, Attention, testing::ValuesIn(attention_layouts()),
                         [](const auto& info) { return test_name(info.param); });

TEST_P(Attention, ALayerFromPartialSumsToEachGroupsTokens) {
  const ParallelLayout layout = GetParam();
  const auto batches = attention_batches(layout.dp);
  for (const Layer& layer : attention_layers(layout)) {
    expect_all_well(run_world(layout.tp, small_slots(), [&](Communicator& communicator, int rank) {
      const LayerGroups groups(communicator, layout);
      HostSpace space;
      LayerRank mine(layer, groups, space);
      std::mt19937 delays(static_cast<unsigned>(rank));
      layer_for_every_batch(HostSide(communicator), mine, batches, [&](std::size_t batch) {
        if (delays() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 200));
        // Ranks with the same heads, of all groups: while others are at something else.
        run_on_cpu_rank(groups.across, {.widths = {3}, .seed = static_cast<std::uint32_t>(batch)});
      });
    }));
  }
}

// Groups of two kinds and the world. Each has its own calls, counts and sizes, and none waits for another.
TEST(AttentionGroups, RaggedCallsSideBySide) {
  constexpr int ranks = 6;
  constexpr Kind kinds[] = {Kind::all_gather_v, Kind::reduce_scatter_v};
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    const Group pair = communicator.split(rank / 2), across = communicator.split(rank % 2);
    std::mt19937 of_pair(static_cast<unsigned>(10 + rank / 2)), of_across(static_cast<unsigned>(20 + rank % 2));
    std::mt19937 of_all(30);
    const auto run = [&](const Group& group, std::mt19937& random, int turn) {
      const auto pick = [&](auto n) { return random() % static_cast<std::uint32_t>(n); };
      std::vector<std::int32_t> counts;
      for (int i = 0; i < group.size(); ++i) counts.push_back(static_cast<std::int32_t>(pick(3) == 0 ? 0 : pick(9)));
      const auto sharding = static_cast<Sharding>(pick(3));
      if (sharding != Sharding::none) counts.resize(1);
      run_on_cpu_rank(group, with_slots({.kind = kinds[pick(2)],
                                         .widths = {pick(2) == 0 ? 900 : pick(40)},
                                         .fill = Fill::special,
                                         .in_place = pick(3) == 0,
                                         .counts = counts,
                                         .sharding = sharding,
                                         .padding = static_cast<Padding>(pick(5)),
                                         .slot_rows = 8,
                                         .seed = static_cast<std::uint32_t>(turn)},
                                        group.size()));
    };
    for (int turn = 0; turn < repeated(60); ++turn) {
      run(pair, of_pair, turn);
      run(across, of_across, turn);
      if (turn % 7 == 0) run(communicator, of_all, turn);
    }
  }));
}

}  // namespace
}  // namespace weft::test
