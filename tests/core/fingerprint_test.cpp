#include "base/fingerprint.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "weft/types.hpp"

namespace weft::detail {
namespace {

std::uint32_t of(std::size_t count, std::uint32_t tag = 0) {
  return fingerprint("all_reduce", ReduceOp::sum, DataType::bf16, count, Algorithm::one_shot, std::size_t{4096}, tag);
}

TEST(Fingerprint, DiffersInEveryValue) {
  const std::uint32_t base = fingerprint("op", 1, 2, std::uint64_t{3});
  EXPECT_NE(base, fingerprint("oq", 1, 2, std::uint64_t{3}));
  EXPECT_NE(base, fingerprint("op", 2, 2, std::uint64_t{3}));
  EXPECT_NE(base, fingerprint("op", 1, 3, std::uint64_t{3}));
  EXPECT_NE(base, fingerprint("op", 1, 2, std::uint64_t{4}));
  EXPECT_NE(base, fingerprint("op", 1, 2, std::uint64_t{3} + (std::uint64_t{1} << 32)));
  EXPECT_NE(base, fingerprint("op", 2, 1, std::uint64_t{3}));  // order counts
  EXPECT_NE(base, fingerprint("op", 1, 2));
}

TEST(Fingerprint, NeighboursAreFarApart) {
  std::set<std::uint32_t> seen;
  int bits = 0;
  constexpr int calls = 20'000;
  for (int i = 0; i < calls; ++i) {
    seen.insert(of(static_cast<std::size_t>(i)));
    bits += std::popcount(of(static_cast<std::size_t>(i)) ^ of(static_cast<std::size_t>(i) + 1));
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(calls));  // a collision has a chance of 5 %; input is fixed
  EXPECT_NEAR(static_cast<double>(bits) / calls, 16.0, 0.5);
  EXPECT_NE(of(0, 1), of(0, 2));
}

}  // namespace
}  // namespace weft::detail
