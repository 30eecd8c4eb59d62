// Dispatch and combine on GPU ranks at the sizes of models and limits, eagerly and in a graph.
#include <gtest/gtest.h>

#include <tuple>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/graph.hpp"

namespace weft::test {
namespace {

// If ranks share a GPU, blocks have eight warps: an eighth of them may be chosen for a part of the work.
Launch launch_of(const GpuWorld& world) {
  return world.shared() ? Launch{.blocks = 6, .threads = 256} : Launch{};
}

// Runs the case eagerly, and again by a graph's replay.
void expect_right_twice(const MoeCase& c, std::uint32_t ranks) {
  const PreparedMoe p = prepare(c, ranks, 5);
  GpuWorld& world = lasting_gpu_world(static_cast<int>(ranks));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange exchange = MoeExchange::create(communicator, c.args);
    GpuMoe moe(gpu, communicator, exchange, launch_of(world));
    moe.fill(p);
    run_on_gpu_rank(moe, gpu, p);
    {
      const Graph graph(gpu, [&] { moe.combine(p, moe.dispatch(p, gpu.stream()), gpu.stream()); });
      moe.fill(p);
      graph.launch(gpu.stream());
      moe.check_dispatch(p);
      moe.check_combine(p);
    }
    free_together(gpu, exchange);
  }));
}

// DeepSeek-V3's experts: ranks, tokens of a rank, hidden. From some number of rows on, warps have different roles. Each
// rank decides by its own tokens: of four ranks with 1024 tokens, one has fewer and decides otherwise.
using Shape = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
class GpuMoeDeepSeek : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, GpuMoeDeepSeek,
                         testing::Values(Shape{3, 128, 7168}, Shape{8, 128, 1024}, Shape{3, 1024, 640},
                                         Shape{4, 1024, 640}));

TEST_P(GpuMoeDeepSeek, CastMaskedAndWeighted) {
  const auto [ranks, tokens, hidden] = GetParam();
  MoeExchangeArgs args{
      .tokens = tokens, .hidden = hidden, .experts = 256, .top_k = 8, .cast = RowCast::fp8, .overflow = Overflow::drop};
  // Room for an expert's average rows and half as many more. The widest rows leave no room for the extra half.
  const std::uint32_t average = ranks * tokens * args.top_k / args.experts;
  args.capacity = hidden == 7168 ? average : average + average / 2;
  expect_right_twice({.args = args, .tokens = {tokens, tokens - 1, tokens}, .residual = true}, ranks);
}

// The limits of an exchange: 4096 experts, 32 per token, 1024 tokens per rank.
class GpuMoeLimits : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMoeLimits, testing::Values(1, 3, 4));

MoeExchangeArgs largest_exchange(RowLayout layout) {
  const bool contiguous = layout == RowLayout::expert_contiguous;
  return {.tokens = 1024,
          .hidden = 16,
          .experts = 4096,
          .top_k = 32,
          .layout = layout,
          .alignment = contiguous ? 4u : 1u,
          .capacity = contiguous                           ? 20480u
                      : layout == RowLayout::expert_masked ? 48u
                                                           : 0u,
          .overflow = Overflow::drop};
}

TEST_P(GpuMoeLimits, FewTokensInUse) {
  for (const RowLayout layout : {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major}) {
    expect_right_twice({.args = largest_exchange(layout), .tokens = {40, 0, 3, 1}}, GetParam());
  }
}

TEST_P(GpuMoeLimits, AllTokensInUse) {
  expect_right_twice({.args = largest_exchange(RowLayout::expert_masked), .tokens = {1024, 1000}}, GetParam());
}

// The largest ordinals: 32 entries of all tokens go to the last expert, which has room for some of the first rank's.
TEST_P(GpuMoeLimits, AllEntriesToOneExpert) {
  expect_right_twice(
      {.args = largest_exchange(RowLayout::expert_masked), .tokens = {1024}, .choice = Choice::one_expert}, GetParam());
}

}  // namespace
}  // namespace weft::test
