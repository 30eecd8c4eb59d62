// The largest numbers of a row, by hand.
#include "oracle/top_k.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace weft::oracle {
namespace {

std::vector<std::byte> row_of(const std::vector<std::uint16_t>& bits) {
  std::vector<std::byte> row(bits.size() * 2);
  for (std::size_t i = 0; i < bits.size(); ++i) put(row, Type::bf16, i, bits[i]);
  return row;
}

// 1, NaN, −0, 2, +0, −∞, another NaN, 2.
TEST(OracleLargest, ComeInOrder) {
  const auto row = row_of({0x3f80, 0x7fc1, 0x8000, 0x4000, 0x0000, 0xff80, 0xff81, 0x4000});
  const std::vector<Found> found = largest_of(row, Type::bf16, 8);
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> wanted = {
      {0x7fff, 1}, {0x7fff, 6}, {0x4000, 3}, {0x4000, 7}, {0x3f80, 0}, {0x0000, 2}, {0x0000, 4}, {0xff80, 5}};
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(found[i].bits, wanted[i].first) << i;
    EXPECT_EQ(found[i].column, wanted[i].second) << i;
  }
  EXPECT_EQ(largest_of(row, Type::bf16, 3).size(), 3u);
}

}  // namespace
}  // namespace weft::oracle
