// Maps of experts through the C interface.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "support/c_ranks.hpp"

namespace weft::test {
namespace {

TEST(CMovingExperts, AreInTheDefinitionAndInTheNumbersOfExperts) {
  const OneRank rank;
  const std::array<std::int32_t, 8> maps = {0, -1, 2, 1, 2, 1, 0, 0};
  weft_moe_exchange_args args = initialised(weft_moe_exchange_args_init);
  EXPECT_EQ(args.maps, 1u);
  args.tokens = 5;
  args.hidden = 256;
  args.experts = 3;
  args.top_k = 2;
  args.experts_of_rank = maps.data();
  args.experts_of_rank_count = maps.size();
  args.maps = 2;
  weft_exchange* exchange = nullptr;
  expect_ok(weft_exchange_create(rank.world(), &args, &exchange));
  const auto numbers = [&] {
    const std::uint32_t* experts = nullptr;
    expect_ok(weft_exchange_experts(exchange, &experts));
    return std::vector<std::int32_t>(experts, experts + 8);
  };
  EXPECT_EQ(numbers(), std::vector<std::int32_t>(maps.begin(), maps.end()));
  const std::array<std::int32_t, 4> next = {1, 2, 0, -1};
  expect_ok(weft_exchange_set_experts(exchange, next.data(), next.size(), 1, nullptr));
  const std::vector<std::int32_t> wanted = {0, -1, 2, 1, 1, 2, 0, -1};
  EXPECT_EQ(numbers(), wanted);
  weft_moe_exchange_args got;
  got.size = sizeof got;
  expect_ok(weft_exchange_args(exchange, &got));
  EXPECT_EQ(got.maps, 2u);
  EXPECT_EQ(std::vector<std::int32_t>(got.experts_of_rank, got.experts_of_rank + got.experts_of_rank_count), wanted);
  EXPECT_EQ(weft_exchange_set_experts(exchange, nullptr, 4, 1, nullptr), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), "experts_of_rank: null");
  EXPECT_EQ(weft_exchange_set_experts(exchange, next.data(), 3, 1, nullptr), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), "experts_of_rank's length: 3 is not a multiple of 4 up to 4");
  expect_ok(weft_exchange_free(exchange));
  weft_exchange_destroy(exchange);
}

}  // namespace
}  // namespace weft::test
