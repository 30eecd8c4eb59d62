// The choice of experts in weft bench moe.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "models/models.hpp"
#include "models/presets.hpp"
#include "workloads/moe_traffic.hpp"

namespace weft::cli {
namespace {

constexpr int kTrafficRanks = 2;
constexpr std::uint32_t kTrafficTokens = 200;

// DeepSeek-V3's experts: 256 in 8 groups; a token may use 4 groups.
MoeTraffic traffic_of(Traffic traffic) {
  const ModelShape model = preset("deepseek-v3");
  return {model,
          {.tokens = kTrafficTokens,
           .hidden = 8,
           .experts = static_cast<std::uint32_t>(model.num_experts),
           .top_k = static_cast<std::uint32_t>(model.top_k)},
          traffic,
          kTrafficRanks,
          kTrafficTokens};
}

// The experts of each token of all ranks.
std::vector<std::set<std::int32_t>> choices_of(const MoeTraffic& traffic) {
  std::vector<std::set<std::int32_t>> all;
  const std::size_t top_k = traffic.exchange().top_k;
  for (std::uint32_t rank = 0; rank < kTrafficRanks; ++rank) {
    const std::span<const std::int32_t> ids(traffic.tokens(rank).ids);
    for (std::size_t first = 0; first < ids.size(); first += top_k) {
      const auto of_token = ids.subspan(first, top_k);
      all.emplace_back(of_token.begin(), of_token.end());
    }
  }
  return all;
}

// The most groups that one token uses.
std::size_t most_groups(const std::vector<std::set<std::int32_t>>& choices) {
  std::size_t most = 0;
  for (const auto& chosen : choices) {
    std::set<std::int32_t> groups;
    for (const std::int32_t id : chosen) groups.insert(id / 32);
    most = std::max(most, groups.size());
  }
  return most;
}

// Tokens of the expert that has most.
std::ptrdiff_t most_tokens(const std::vector<std::set<std::int32_t>>& choices) {
  std::ptrdiff_t most = 0;
  for (std::int32_t expert = 0; expert < 256; ++expert) {
    most = std::max(most, std::ranges::count_if(choices, [&](const auto& chosen) { return chosen.contains(expert); }));
  }
  return most;
}

TEST(MoeTraffic, ATokenHasDifferentExperts) {
  for (const Traffic traffic : {Traffic::uniform, Traffic::grouped, Traffic::zipf, Traffic::hot}) {
    const auto choices = choices_of(traffic_of(traffic));
    ASSERT_EQ(choices.size(), kTrafficRanks * kTrafficTokens);
    for (const auto& chosen : choices) {
      EXPECT_EQ(chosen.size(), 8u) << name(traffic);
      EXPECT_GE(*chosen.begin(), 0);
      EXPECT_LT(*chosen.rbegin(), 256);
    }
  }
}

TEST(MoeTraffic, GroupedTakesSoManyGroups) {
  EXPECT_EQ(most_groups(choices_of(traffic_of(Traffic::grouped))), 4u);
  EXPECT_GT(most_groups(choices_of(traffic_of(Traffic::uniform))), 4u);
}

TEST(MoeTraffic, TheHotExpertIsEverybodys) {
  for (const auto& chosen : choices_of(traffic_of(Traffic::hot))) EXPECT_TRUE(chosen.contains(0));
}

// By chance an expert has 8 of 256 choices: 12 of 400 tokens, some experts twice as many. With weights of 1 / n almost
// every token chooses the first expert.
TEST(MoeTraffic, ZipfIsSkewed) {
  EXPECT_LT(most_tokens(choices_of(traffic_of(Traffic::uniform))), 40);
  EXPECT_GT(most_tokens(choices_of(traffic_of(Traffic::zipf))), 200);
}

}  // namespace
}  // namespace weft::cli
