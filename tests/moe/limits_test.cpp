// Exchanges at their limits: tokens, experts, entries, ranks. Rows are small, so that a test takes a second.
#include <gtest/gtest.h>

#include <utility>

#include "support/moe_batches.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

void run_at_the_limit(const MoeCase& c, std::uint32_t ranks, int rounds = 3) {
  const PreparedMoe p = prepare(c, ranks, 5);
  Config config = small_pieces();  // windows of other operations stay small
  config.max_groups = 0;
  expect_all_well(run_world(static_cast<int>(ranks), config, [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, c.args);
    for (int round = 0; round < rounds; ++round) {
      exchange_and_check(exchange, p, rank);
    }
  }));
}

TEST(MoeLimits, TokensOfARank) {
  for (const Batch& batch : in_every_layout(
           {{{.args = {.tokens = 1024, .hidden = 8, .experts = 5, .top_k = 2}, .tokens = {1024, 1023}}}}, 2)) {
    run_at_the_limit(batch[0], 2);
  }
}

// One token, one expert, one pack. Only one rank has an expert.
TEST(MoeLimits, OneOfEach) {
  for (const std::uint32_t ranks : {1u, 2u, 3u}) {
    for (const Batch& batch : in_every_layout(
             {{{.args = {.tokens = 1, .hidden = 8, .experts = 1, .top_k = 1}, .tokens = {1, 0, 1}}}}, ranks)) {
      run_at_the_limit(batch[0], ranks);
    }
  }
}

TEST(MoeLimits, EntriesOfAToken) {
  for (const Batch& batch :
       in_every_layout({{{.args = {.tokens = 16, .hidden = 8, .experts = 40, .top_k = 32, .capacity = 3 * 16 * 32},
       .tokens = {16, 9, 1}}}},
                       3)) {
    run_at_the_limit(batch[0], 3);
  }
}

TEST(MoeLimits, Experts) {
  for (const Batch& batch : in_every_layout(
           {{{.args = {.tokens = 12, .hidden = 8, .experts = 4096, .top_k = 32, .capacity = 40}, .tokens = {12, 5}}}},
           2)) {
    run_at_the_limit(batch[0], 2);
  }
}

// A list for every expert, and the largest number of replicas.
TEST(MoeLimits, Replicas) {
  MoeExchangeArgs with{.tokens = 5, .hidden = 8, .experts = 2048, .top_k = 32, .capacity = 40};
  with.ranks_of_expert.assign(with.experts, {1, 0});
  MoeExchangeArgs without = with;
  without.experts = 4096;
  without.ranks_of_expert.clear();
  for (std::uint32_t i = 0; i < 4096; ++i) without.rank_of_expert.push_back((i + 1) % 2);
  const auto translate = [](std::int64_t id, std::uint32_t rank, std::uint32_t token) -> std::int64_t {
    return id % 2048 * 2 + (rank + token) % 2;
  };
  MoeCase c{.args = without, .tokens = {5, 4}, .translate = translate};
  const PreparedMoe p = prepare(c, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange of_replicas = MoeExchange::create(communicator, with);
    const MoeExchange of_experts = MoeExchange::create(communicator, without);
    CpuMoe moe(of_experts, p, rank);
    std::vector<std::int32_t> ids;
    for (const std::int32_t id : p.tokens[rank].given) ids.push_back(id % 2048);
    DispatchArgs args = moe.dispatch();
    args.topk_ids = ids.data();
    of_replicas.combine(moe.combine(of_replicas.dispatch(args)));
    moe.check_dispatch();
    moe.check_combine();
  }));
}

// All limits at once, with few tokens sent.
TEST(MoeLimits, AllAtOnce) {
  for (const auto& [layout, capacity] :
       {std::pair{RowLayout::expert_masked, 8u}, {RowLayout::expert_contiguous, 8192u}, {RowLayout::rank_major, 0u}}) {
    run_at_the_limit({.args = {.tokens = 1024,
                               .hidden = 8,
                               .experts = 4096,
                               .top_k = 32,
                               .layout = layout,
                               .alignment = layout == RowLayout::expert_contiguous ? 2u : 1u,
                               .capacity = capacity},
                      .tokens = {6, 0, 3, 1}},
                     4, 2);
  }
}

// A set of ranks is two words of 64 bits.
TEST(MoeLimits, Ranks) {
  for (const int ranks : world_sizes({2, 16, 66})) {
    for (const Batch& batch :
         in_every_layout({{{.args = {.tokens = 2, .hidden = 8, .experts = 72, .top_k = 8}, .tokens = {2, 1}}}},
                         static_cast<std::uint32_t>(ranks))) {
      run_at_the_limit(batch[0], static_cast<std::uint32_t>(ranks), 2);
    }
  }
}

}  // namespace
}  // namespace weft::test
