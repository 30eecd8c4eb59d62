// Every way of rows on GPU ranks gives the same bits, from whatever processors: calls of a thousand tokens and of
// prefills. Smaller ones are compared with the reference elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/large_moe.hpp"
#include "support/moe_ways.hpp"

namespace weft::test {
namespace {

constexpr RowLayout kLayouts[] = {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major,
                                  RowLayout::rank_compact};

// The tokens of each rank, of which one has few and one none.
std::vector<std::uint32_t> ragged_tokens(std::uint32_t ranks, std::uint32_t most) {
  std::vector<std::uint32_t> tokens{most, most * 2 / 3, 1, 0};
  tokens.resize(ranks, most / 2);
  return tokens;
}

// One block and several on a processor's share, and threads of each kind of grid. Ranks that share a GPU leave room
// for the calls of all.
std::vector<Launch> launches(const GpuWorld& world) {
  std::vector<Launch> all{{.blocks = 2, .threads = 128}, {.blocks = 4}, {.blocks = 8}, {.blocks = 12, .threads = 256}};
  if (!world.shared()) all.insert(all.end(), {{}, {.blocks = 24}, {.blocks = 64}});
  return all;
}

class GpuMoePaths : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoePaths, testing::Values(2, 4));

// As many tokens as blocks count in tallies, with senders, and with pairs of packs in combine.
TEST_P(GpuMoePaths, GiveTheSameBitsFromAllProcessors) {
  const std::uint32_t ranks = GetParam();
  const std::vector<std::uint32_t> tokens = ragged_tokens(ranks, 1024);
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  for (const RowLayout layout : kLayouts) {
    MoeExchangeArgs args{.tokens = tokens[0], .hidden = 1152, .experts = 5 * ranks, .top_k = 8, .cast = RowCast::fp8};
    args.layout = layout;
    args.alignment = layout == RowLayout::expert_contiguous ? 16 : 1;
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      std::unique_ptr<LargeMoe> first, call;
      for (const MoeWay<LargeMoe>& way : moe_ways<LargeMoe>(layout, 128, 2048, tokens[0])) {
        MoeExchange exchange = MoeExchange::create(communicator, way.exchange(args));
        if (call == nullptr) call = std::make_unique<LargeMoe>(gpu, exchange, ranks, rank, tokens[rank]);
        for (const Launch& launch : launches(world)) {
          LargeMoe* now = call.get();
          if (first == nullptr) {
            first = std::make_unique<LargeMoe>(gpu, exchange, ranks, rank, tokens[rank]);
            now = first.get();
          }
          now->use(exchange);
          now->set_launch(launch);
          now->clear();
          if (!gpu.meet()) return;  // nobody allocates while others wait for it
          way.make(exchange, *now);
          gpu.synchronize();
          communicator.check();
          if (now == first.get()) continue;
          EXPECT_EQ(now->differences(*first), "")
              << "rank " << rank << ", " << name(layout) << ", " << way.name << " from " << launch.blocks << " blocks";
        }
        free_together(gpu, exchange);
      }
    }));
  }
}

// The most tokens of a rank, and rows as wide as DeepSeek-V3's. Slots serve them in parts.
class GpuMoePrefill : public testing::TestWithParam<RowLayout> {};
std::string layout_name(const testing::TestParamInfo<RowLayout>& info) {
  constexpr const char* kNames[] = {"Masked", "Contiguous", "RankMajor", "RankCompact"};
  return kNames[info.index];
}
INSTANTIATE_TEST_SUITE_P(Layouts, GpuMoePrefill, testing::ValuesIn(kLayouts), layout_name);

TEST_P(GpuMoePrefill, OfTheMostTokensInFullWidth) {
  constexpr std::uint32_t ranks = 2, part = 1024;
  const std::vector<std::uint32_t> tokens{16384, 9000};
  MoeExchangeArgs args{.tokens = 16384, .hidden = 7168, .experts = 256, .top_k = 8, .cast = RowCast::fp8};
  args.layout = GetParam();
  args.path = RowPath::ring;
  args.alignment = args.layout == RowLayout::expert_contiguous ? 128 : 1;
  if (args.layout == RowLayout::expert_masked) args.capacity = 1200;
  if (args.layout == RowLayout::expert_contiguous) args.capacity = 140000;
  MoeExchangeArgs in_parts = args;
  in_parts.tokens = part;
  in_parts.path = RowPath::slots;
  if (args.layout == RowLayout::rank_compact) in_parts.layout = RowLayout::rank_major;  // sums of the same rows
  if (args.layout == RowLayout::expert_masked) in_parts.capacity = 400;
  if (args.layout == RowLayout::expert_contiguous) in_parts.capacity = 30000;
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    MoeExchange ring = MoeExchange::create(communicator, args), slots = MoeExchange::create(communicator, in_parts);
    LargeMoe whole(gpu, ring, ranks, rank, tokens[rank]);
    const auto exchange = [&](const MoeExchange& of, LargeMoe& call) {
      call.set_launch(world.launch());
      call.clear();
      if (!gpu.meet()) return;
      make_joined(of, call);
      gpu.synchronize();
      communicator.check();
    };
    exchange(ring, whole);
    if (!detail::has_joint_rows(args.layout)) {
      EXPECT_TRUE(whole.in_order()) << "rank " << rank;
    }
    for (std::uint32_t first = 0; first < args.tokens; first += part) {
      std::vector<std::uint32_t> counts;
      for (const std::uint32_t all : tokens) counts.push_back(std::clamp(all, first, first + part) - first);
      LargeMoe call(gpu, slots, ranks, rank, counts[rank], first);
      exchange(slots, call);
      EXPECT_EQ(call.differences_in(whole, first, counts), 0u) << "rank " << rank << ", tokens from " << first;
    }
    free_together(gpu, ring);
    free_together(gpu, slots);
  }));
}

}  // namespace
}  // namespace weft::test
