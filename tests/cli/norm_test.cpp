// weft bench norm, on CPU ranks, and its reference.
#include <gtest/gtest.h>

#include <cmath>

#include "cli/run.hpp"
#include "oracle/number.hpp"
#include "workloads/norm_reference.hpp"

namespace weft::cli {
namespace {

TEST(BenchNorm, ChecksFusedFormsAndTheAllReduceAlone) {
  const std::string file = testing::TempDir() + "norm.json";
  const std::vector<std::string> forms[] = {
      {},
      {"--fp8", "fixed", "--no-residual"},
      {"--fp8", "per-token"},
      {"--fp8", "per-token", "--scales", "ue8m0", "--gamma-plus-one"},
      {"--fp8", "per-128-columns"},
      {"--fp8", "per-128-columns", "--scales", "ue8m0", "--no-residual", "--gamma-plus-one"}};
  for (const auto& form : forms) {
    for (const char* type : {"bf16", "f16"}) {
      std::vector<std::string> arguments = {"bench",    "norm",   "--device",  "cpu", "--ranks", "3",
                                            "--hidden", "256",    "--tokens",  "1,9", "--dtype", type,
                                            "--data",   "random", "--samples", "2",   "--json",  file};
      arguments.insert(arguments.end(), form.begin(), form.end());
      const auto result = run(arguments);
      ASSERT_EQ(result.code, 0) << result.out << result.err;
      EXPECT_NE(result.out.find("all-reduce alone"), std::string::npos) << result.out;
      const auto json = read_json(file);
      EXPECT_EQ(json.at("command"), "bench norm");
      std::size_t fused = 0;
      for (const auto& one : json.at("points")) {
        if (one.at("operation") != "all_reduce_rms_norm") continue;
        EXPECT_EQ(one.at("verdict"), "ok");
        ++fused;
      }
      EXPECT_EQ(fused, 6u);  // one-shot, two-shot and automatic, for two sizes
    }
  }
}

TEST(BenchNorm, ItsReferenceTakesTwoUnitsAndNoMore) {
  const NormReferenceArgs args{.sum = {.count = 64, .data = Data::random, .ranks = 2}, .hidden = 32, .epsilon = 1e-6f};
  std::vector<std::byte> sum(128), normed(128), residual(128);
  reduce_reference(args.sum, 0, args.sum.count, sum.data());
  const auto number = [](std::span<const std::byte> of, std::size_t i) {
    return oracle::number_at(of, DataType::bf16, i);
  };
  const auto put = [](std::span<std::byte> of, std::size_t i, double value) {
    oracle::put(of, DataType::bf16, i, oracle::round_to(oracle::format_of(DataType::bf16), value));
  };
  const auto pattern_number = [&](int rank, std::size_t i) {
    return pattern::number(Data::random, DataType::bf16, pattern::hash(rank, 0, i));
  };
  for (std::size_t row = 0; row < 64; row += 32) {
    double squares = 0;
    for (std::size_t i = row; i < row + 32; ++i) {
      put(normed, i, number(sum, i) + pattern_number(2, i));
      put(residual, i, number(normed, i));
      squares += std::pow(number(normed, i), 2);
    }
    for (std::size_t i = row; i < row + 32; ++i) {
      const double factor = 1 / std::sqrt(squares / 32 + 1e-6);
      put(normed, i, number(normed, i) * factor * pattern_number(3, i - row));
    }
  }
  EXPECT_EQ(compare_norm(args, sum, {.residual = residual, .normed = normed}), "");
  const std::uint32_t right = oracle::get(normed, DataType::bf16, 40);
  ASSERT_NE(right & 0x7fffu, 0u);
  for (const int off : {-3, -2, 2, 3}) {
    oracle::put(normed, DataType::bf16, 40, right + static_cast<std::uint32_t>(off));
    EXPECT_EQ(compare_norm(args, sum, {.residual = residual, .normed = normed}).empty(), std::abs(off) == 2) << off;
  }
  oracle::put(normed, DataType::bf16, 40, right);
  residual[63] ^= std::byte{1};
  EXPECT_EQ(compare_norm(args, sum, {.residual = residual, .normed = normed}).substr(0, 29),
            "residual_output [31] of row 0");
}

// The library's outputs pass the check, and any changed bit fails it.
TEST(BenchNorm, EveryBitOfItsOtherOutputsCounts) {
  constexpr std::size_t hidden = 256, count = 2 * hidden;
  const float scale = 0.7f;
  const ReferenceArgs sum_args{.count = count, .data = Data::random, .ranks = 1};
  std::vector<std::byte> sum(2 * count), added(2 * count), gamma(2 * hidden);
  reduce_reference(sum_args, 0, count, sum.data());
  fill(added.data(), 0, count, DataType::bf16, Data::random, 1, 0);
  fill(gamma.data(), 0, hidden, DataType::bf16, Data::random, 2, 0);
  for (const Fp8Scaling scaling : {Fp8Scaling::fixed, Fp8Scaling::per_token, Fp8Scaling::per_128_columns}) {
    for (const ScaleType type : {ScaleType::f32, ScaleType::ue8m0}) {
      const std::size_t width = type == ScaleType::f32 ? 4 : 1;
      const std::size_t scales_bytes =
          scaling == Fp8Scaling::fixed ? 0 : width * (scaling == Fp8Scaling::per_token ? 2 : 4);
      std::vector<std::byte> residual(2 * count), normed(2 * count), fp8(count), scales(scales_bytes + width);
      auto world = Communicator::local(1, {.device = Device::cpu});
      all_reduce_rms_norm(world.front(), {.input = sum.data(),
                                          .residual = added.data(),
                                          .residual_output = residual.data(),
                                          .gamma = gamma.data(),
                                          .output = normed.data(),
                                          .fp8 = {.rows = fp8.data(),
                                                  .scaling = scaling,
                                                  .scale = &scale,
                                                  .scales = scales.data(),
                                                  .scale_type = type},
                                          .tokens = 2,
                                          .hidden = hidden});
      const auto wrong = [&] {
        return compare_norm({.sum = sum_args,
                             .hidden = hidden,
                             .epsilon = 1e-6f,
                             .form = {.fp8 = scaling, .scale_type = type},
                             .scale = scale},
                            sum, {.residual = residual, .normed = normed, .fp8 = fp8, .scales = scales});
      };
      ASSERT_EQ(wrong(), "") << name(scaling);
      for (auto* output : {&residual, &fp8, &scales}) {
        const std::size_t bytes = output == &scales ? scales_bytes : output->size();
        for (std::size_t i = 0; i < bytes; i += 1 + bytes / 7) {
          (*output)[i] ^= std::byte{1};
          EXPECT_NE(wrong(), "") << name(scaling) << ", byte " << i << " of " << bytes;
          (*output)[i] ^= std::byte{1};
        }
      }
    }
  }
}

// A table of dashes would look like success.
TEST(BenchNorm, SaysWhatWasNotMeasuredAndFailsWhereNothingWas) {
  const std::vector<std::string> usual = {"bench",    "norm", "--device", "cpu", "--ranks",   "2",
                                          "--hidden", "64",   "--tokens", "1",   "--samples", "1"};
  auto arguments = usual;
  arguments.insert(arguments.end(), {"--blocks", "9"});
  const auto result = run(arguments);
  EXPECT_EQ(result.code, 2);
  const std::string reason = "not measured: one-shot of all_reduce_rms_norm";
  EXPECT_NE(result.err.find(reason), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find(reason), result.err.rfind(reason)) << "said twice: " << result.err;
  EXPECT_NE(result.err.find("launch.blocks: 9 is not 0 or 2"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("no algorithm of Weft's could be measured"), std::string::npos) << result.err;
  EXPECT_EQ(result.out.find("Every result"), std::string::npos) << result.out;
}

// Columns of dashes beside figures of the all-reduce would look like success, too.
TEST(BenchNorm, WidthsThatNoRankTakesAreRefusedFirst) {
  const auto refused = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"bench", "norm", "--device", "cpu", "--ranks", "2", "--tokens", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_EQ(refused({"--hidden", "12"}), "weft: --hidden 12: must be a multiple of 8\n");
  EXPECT_EQ(refused({"--hidden", "136", "--fp8", "per-128-columns"}),
            "weft: --hidden 136: must be a multiple of 128 for --fp8 per-128-columns\n");
}

TEST(BenchNorm, BadUsageIsRejected) {
  EXPECT_EQ(run({"bench", "norm", "--fp8", "fp4"}).code, 2);
  EXPECT_EQ(run({"bench", "norm", "--fp8", "fixed", "--scales", "ue8m0"}).code, 2);
  EXPECT_EQ(run({"bench", "norm", "--scales", "ue8m0"}).code, 2);
  EXPECT_EQ(run({"bench", "norm", "--hidden", "0"}).code, 2);
  EXPECT_EQ(run({"bench", "norm", "--tokens", "0"}).code, 2);
}

}  // namespace
}  // namespace weft::cli
