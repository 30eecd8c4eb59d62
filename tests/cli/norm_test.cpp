// weft bench norm, on CPU ranks, and its reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cli/reference.hpp"
#include "cli/run.hpp"

namespace weft::cli {
namespace {

TEST(BenchNorm, ChecksFusedFormsAndTheAllReduceAlone) {
  const std::string file = testing::TempDir() + "norm.json";
  for (const char* fp8 : {"none", "fixed", "per-token", "per-128-columns"}) {
    const auto result =
        run({"bench",   "norm", "--device", "cpu", "--ranks", "3",      "--hidden",  "256", "--tokens", "1,9",
             "--dtype", "f16",  "--fp8",    fp8,   "--data",  "random", "--samples", "2",   "--json",   file});
    ASSERT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_NE(result.out.find("all-reduce alone"), std::string::npos) << result.out;
    const auto json = read_json(file);
    EXPECT_EQ(json.at("command"), "bench norm");
    std::size_t fused = 0;
    for (const auto& one : json.at("points")) fused += one.at("operation") == "all_reduce_rms_norm";
    EXPECT_EQ(fused, 6u);  // one-shot, two-shot and automatic, of two sizes
  }
}

TEST(BenchNorm, ItsReferenceTakesTwoUnitsAndNoMore) {
  const NormReferenceArgs args{.sum = {.count = 64, .data = Data::random, .ranks = 2}, .hidden = 32, .epsilon = 1e-6f};
  std::vector<std::byte> sum(128), normed(128);
  reduce_reference(args.sum, 0, args.sum.count, sum.data());
  const auto bits = [](std::vector<std::byte>& of, std::size_t i) {
    std::uint16_t value = 0;
    std::memcpy(&value, of.data() + 2 * i, 2);
    return value;
  };
  const auto number = [&](std::vector<std::byte>& of, std::size_t i) {
    const std::uint32_t word = static_cast<std::uint32_t>(bits(of, i)) << 16;
    float value = 0;
    std::memcpy(&value, &word, 4);
    return value;
  };
  const auto put = [](std::vector<std::byte>& of, std::size_t i, float value) {
    std::uint32_t word = 0;
    std::memcpy(&word, &value, 4);
    const auto rounded = static_cast<std::uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
    std::memcpy(of.data() + 2 * i, &rounded, 2);
  };
  const auto pattern_number = [&](int rank, std::size_t i) {
    return pattern::number(Data::random, DataType::bf16, pattern::hash(rank, 0, i));
  };
  for (std::size_t row = 0; row < 64; row += 32) {
    double squares = 0;
    for (std::size_t i = row; i < row + 32; ++i) {
      put(sum, i, number(sum, i));
      put(normed, i, number(sum, i) + pattern_number(2, i));
      squares += std::pow(number(normed, i), 2);
    }
    for (std::size_t i = row; i < row + 32; ++i) {
      const double factor = 1 / std::sqrt(squares / 32 + 1e-6);
      put(normed, i, static_cast<float>(number(normed, i) * factor * pattern_number(3, i - row)));
    }
  }
  EXPECT_EQ(compare_norm(args, sum, normed), "");
  const std::uint16_t right = bits(normed, 40);
  ASSERT_NE(right & 0x7fff, 0);
  for (const int off : {-3, -2, 2, 3}) {
    const auto moved = static_cast<std::uint16_t>(right + off);
    std::memcpy(normed.data() + 80, &moved, 2);
    EXPECT_EQ(compare_norm(args, sum, normed).empty(), std::abs(off) == 2) << off;
  }
}

TEST(BenchNorm, BadUsageIsRejected) {
  EXPECT_EQ(run({"bench", "norm", "--fp8", "fp4"}).code, 2);
  EXPECT_EQ(run({"bench", "norm", "--hidden", "0"}).code, 2);
  EXPECT_EQ(run({"bench", "norm", "--tokens", "0"}).code, 2);
}

}  // namespace
}  // namespace weft::cli
