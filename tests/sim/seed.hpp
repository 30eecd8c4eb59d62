// Seeds for schedules that no run has had before.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>

namespace weft::sim {

// The value of WEFT_SIM_SEED, from 1 to 2^31 − 1; a new seed if it is not set (null).
inline std::uint32_t seed_of(const char* said) {
  constexpr std::uint32_t most = 0x7fffffff;
  if (said == nullptr) return std::random_device{}() % most + 1;
  const std::string_view text = said;
  std::uint32_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc{} || end != text.data() + text.size() || seed < 1 || seed > most) {
    throw std::invalid_argument(fmt::format("WEFT_SIM_SEED is \"{}\": a number from 1 to {} is wanted", text, most));
  }
  return seed;
}

// The seed of this process, printed on first use.
inline std::uint32_t run_seed() {
  static const std::uint32_t seed = [] {
    const std::uint32_t drawn = seed_of(std::getenv("WEFT_SIM_SEED"));
    fmt::print("WEFT_SIM_SEED={}\n", drawn);
    return drawn;
  }();
  return seed;
}

// The command that repeats a test with the same schedules.
inline std::string again() {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  return fmt::format("all of it again with\n  WEFT_SIM_SEED={} build/dev/bin/weft-sim-tests --gtest_filter='{}.{}'\n",
                     run_seed(), test.test_suite_name(), test.name());
}

}  // namespace weft::sim
