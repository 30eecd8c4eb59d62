// Every run has its own seed, and a user can repeat it.
#include "seed.hpp"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

namespace weft::sim {
namespace {

TEST(Seed, IsWhatTheEnvironmentSays) {
  EXPECT_EQ(seed_of("1"), 1u);
  EXPECT_EQ(seed_of("2147483647"), 2147483647u);
  for (const char* const bad : {"", "0", "-1", "7x", " 7", "2147483648", "99999999999999999999"}) {
    EXPECT_THROW(seed_of(bad), std::invalid_argument) << bad;
  }
}

TEST(Seed, IsNewWhereTheEnvironmentSaysNothing) {
  std::set<std::uint32_t> seeds;
  for (int i = 0; i < 8; ++i) seeds.insert(seed_of(nullptr));
  EXPECT_GT(seeds.size(), 1u);
  EXPECT_GE(*seeds.begin(), 1u);
  EXPECT_LE(*seeds.rbegin(), 0x7fffffffu);
}

TEST(Seed, IsTheSameInAllOfARunAndToldWithTheCommandThatRepeatsIt) {
  const std::string command = fmt::format(
      "WEFT_SIM_SEED={} build/dev/bin/weft-sim-tests "
      "--gtest_filter='Seed.IsTheSameInAllOfARunAndToldWithTheCommandThatRepeatsIt'\n",
      run_seed());
  EXPECT_NE(again().find(command), std::string::npos) << again();
}

}  // namespace
}  // namespace weft::sim
