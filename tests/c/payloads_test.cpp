// Payloads beside rows through the C interface.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "support/c_ranks.hpp"

namespace weft::test {
namespace {

// One rank sends two tokens to its own expert: rows of 16 bytes, with a payload of a word and one of five.
TEST(CPayloads, AreInTheDefinitionAndComeWithTheirRows) {
  const OneRank rank;
  const std::array<std::uint32_t, 2> sizes = {4, 20};
  weft_moe_exchange_args args = initialised(weft_moe_exchange_args_init);
  EXPECT_EQ(args.payload_bytes_count, 0u);
  args.tokens = 2;
  args.hidden = 8;
  args.experts = 1;
  args.top_k = 1;
  args.weighted = 0;
  args.payload_bytes = sizes.data();
  args.payload_bytes_count = sizes.size();
  weft_exchange* exchange = nullptr;
  expect_ok(weft_exchange_create(rank.world(), &args, &exchange));
  weft_moe_exchange_args got;
  got.size = sizeof got;
  expect_ok(weft_exchange_args(exchange, &got));
  EXPECT_EQ(std::vector(got.payload_bytes, got.payload_bytes + got.payload_bytes_count),
            std::vector(sizes.begin(), sizes.end()));

  alignas(16) const std::array<std::uint16_t, 16> input = {1, 2, 3};
  alignas(16) std::array<std::uint16_t, 16> output{};
  const std::array<std::int32_t, 2> ids = {0, 0};
  const std::array<std::uint32_t, 2> words = {7, 8};
  std::array<std::uint32_t, 10> fives{};
  for (std::uint32_t i = 0; i < fives.size(); ++i) fives[i] = 100 + i;
  std::array<std::uint32_t, 2> output_words{};
  std::array<std::uint32_t, 10> output_fives{};
  std::int32_t count = 0;
  weft_dispatch_args call = initialised(weft_dispatch_args_init);
  call.input = input.data();
  call.topk_ids = ids.data();
  call.tokens = 2;
  call.output = output.data();
  call.counts = &count;
  call.payloads[0] = words.data();
  call.payloads[1] = fives.data();
  call.output_payloads[0] = output_words.data();
  weft_dispatch_handle handle;
  EXPECT_EQ(weft_dispatch(exchange, &call, &handle), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), "output_payloads[1]: null");
  call.output_payloads[1] = output_fives.data();
  expect_ok(weft_dispatch(exchange, &call, &handle));
  EXPECT_EQ(output, input);
  EXPECT_EQ(output_words, words);
  EXPECT_EQ(output_fives, fives);
  expect_ok(weft_exchange_free(exchange));
  weft_exchange_destroy(exchange);

  args.payload_bytes = nullptr;
  EXPECT_EQ(weft_exchange_create(rank.world(), &args, &exchange), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), "payload_bytes: null");
}

}  // namespace
}  // namespace weft::test
