// All-reduces with residual and norm on CPU ranks: every shape and output, comparison with the unfused sequence and
// with exact arithmetic, and bad calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>
#include <tuple>

#include "oracle/fp8.hpp"
#include "support/first_epoch.hpp"
#include "support/norms.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

void expect_right(int ranks, const Config& config, const std::vector<Norm>& norms) {
  expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int) {
    for (const Norm& norm : norms) run_on_cpu_rank(communicator, norm);
  }));
}

// One-shot takes two rows of 800 columns at once, two-shot five.
Config small_buffers() {
  Config config = cpu_config();
  config.one_shot_bytes = 3200;
  config.two_shot_bytes = 8000;
  return config;
}

class RmsNorm : public testing::TestWithParam<int> {
 protected:
  // Ranks of a large world take turns on the cores of a small machine.
  static bool large_world() { return GetParam() > 5; }
};
INSTANTIATE_TEST_SUITE_P(Ranks, RmsNorm, testing::ValuesIn(world_sizes({1, 2, 3, 4, 5, 8, 13})));

TEST_P(RmsNorm, ShapesLayoutsAndOutputsOfEveryKind) {
  const int calls = repeated(large_world() ? 80 : 200);
  const std::vector<Norm> norms = mixed_norms(calls, static_cast<std::uint32_t>(GetParam()));
  expect_right(GetParam(), cpu_config(), norms);
  expect_right(GetParam(), small_buffers(), norms);
  expect_right(GetParam(), smallest_buffers(), norms);
}

TEST_P(RmsNorm, RowsOfModels) {
  std::vector<Norm> norms;
  for (const std::size_t hidden : {4096u, 5120u, 7168u, 8192u, 16384u, 65536u}) {
    if ((kSanitized || large_world()) && hidden > 20'000) continue;
    for (const Fp8Scaling scaling : {Fp8Scaling::per_token, Fp8Scaling::per_128_columns}) {
      norms.push_back(
          {.tokens = hidden > 10'000 ? 1u : 3u, .hidden = hidden, .fp8 = true, .scaling = scaling, .seed = 5});
    }
    norms.push_back({.tokens = 2, .hidden = hidden - 8, .algorithm = Algorithm::two_shot, .seed = 6});
    norms.push_back({.tokens = 2, .hidden = hidden, .gamma_plus_one = hidden % 3 == 0, .gamma_f32 = true, .seed = 7});
  }
  expect_right(GetParam(), cpu_config(), norms);
  expect_right(GetParam(), small_buffers(), norms);
}

// Rows around each length at which they go through the buffers whole, or in one piece fewer. The outputs equal, byte
// for byte, those of a group whose buffers hold all rows.
TEST_P(RmsNorm, BuffersSmallerThanARowDoNotShow) {
  const int ranks = GetParam();
  Config config = cpu_config();
  config.group_one_shot_bytes = config.group_two_shot_bytes = 256;
  expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int rank) {
    const Group narrow = communicator.split(0);
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
      const std::size_t most = algorithm == Algorithm::one_shot ? 128 : 128 * static_cast<std::size_t>(ranks);
      for (const std::size_t hidden : {most - 8, most, most + 8, 2 * most, 2 * most + 8, 5 * most - 8}) {
        const Norm norm{.tokens = 3,
                        .hidden = hidden,
                        .residual_in_place = true,
                        .output_in_place = hidden % 128 == 8,
                        .gamma_f32 = hidden % 3 == 0,
                        .fp8 = true,
                        .scaling = hidden % 128 == 0 ? Fp8Scaling::per_128_columns : Fp8Scaling::per_token,
                        .algorithm = algorithm,
                        .seed = static_cast<std::uint32_t>(hidden)};
        const RankNorm prepared = prepare(norm, ranks, rank);
        HostNorm whole(prepared), in_pieces(prepared);
        whole.call(communicator);
        in_pieces.call(narrow);
        whole.check(prepared);
        ASSERT_TRUE(whole == in_pieces) << describe(norm);
      }
    }
  }));
}

// One fused call gives the bits of an all_reduce, an addition and a norm.
TEST_P(RmsNorm, IsTheUnfusedSequence) {
  const int ranks = GetParam();
  for (std::uint32_t i = 0; i < 12; ++i) {
    const Algorithm algorithm = kAlgorithms[i % 3];
    const Norm norm{.tokens = 5,
                    .hidden = i % 4 == 3 ? 8u : 520u,
                    .type = i % 2 == 0 ? DataType::bf16 : DataType::f16,
                    .fill = Fill::random,
                    .gamma_plus_one = i >= 6,
                    .gamma_f32 = i % 4 >= 2,
                    .algorithm = i % 3 == 2 ? Algorithm::automatic : algorithm,
                    .seed = 9 + i};
    expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
      const RankNorm prepared = prepare(norm, ranks, rank);
      const auto content = [&](NormTensor tensor, std::size_t bytes) {
        const auto begin = prepared.memory[tensor].before.begin() + 256;
        return Bytes(begin, begin + static_cast<std::ptrdiff_t>(bytes));
      };
      const std::size_t bytes = norm.tokens * norm.hidden * 2;
      alignas(16) static thread_local std::byte memory[3][5200];
      const Bytes input = content(kInput, bytes), residual = content(kResidual, bytes),
                  gamma = content(kGamma, norm.hidden * (norm.gamma_f32 ? 4 : 2));
      Bytes sum(bytes);
      all_reduce(
          communicator,
          {.input = input.data(), .output = sum.data(), .count = bytes / 2, .type = norm.type, .algorithm = algorithm});
      const NormResult unfused = norm_of(norm, sum, residual, gamma, 1);
      std::ranges::copy(input, memory[0]);
      std::ranges::copy(residual, memory[1]);
      std::ranges::copy(gamma, memory[2]);
      all_reduce_rms_norm(communicator, {.input = memory[0],
                                         .residual = memory[1],
                                         .residual_output = memory[1],
                                         .gamma = memory[2],
                                         .output = memory[0],
                                         .tokens = norm.tokens,
                                         .hidden = norm.hidden,
                                         .type = norm.type,
                                         .gamma_plus_one = norm.gamma_plus_one,
                                         .gamma_f32 = norm.gamma_f32,
                                         .algorithm = norm.algorithm});
      for (std::size_t i = 0; i < bytes / 2; ++i) {
        ASSERT_EQ(get(memory[1], norm.type, i), unfused.residual[i]) << i;
        ASSERT_EQ(get(memory[0], norm.type, i), unfused.output[i]) << i;
      }
    }));
  }
}

// Checks the reference against arithmetic in double: the residual is exact to one rounding, the norm within two units.
// Cast numbers are as close as e4m3 and its scale allow, and the scale follows its rule for the largest number.
class RmsNormReference : public testing::TestWithParam<std::tuple<Fp8Scaling, ScaleType>> {};
INSTANTIATE_TEST_SUITE_P(Scales, RmsNormReference,
                         testing::Combine(testing::Values(Fp8Scaling::fixed, Fp8Scaling::per_token,
                                                          Fp8Scaling::per_128_columns),
                                          testing::Values(ScaleType::f32, ScaleType::ue8m0)));

TEST_P(RmsNormReference, IsCloseToExactArithmetic) {
  const auto [scaling, scale_type] = GetParam();
  constexpr float fixed = 0.037f;
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    const Format f = format_of(type);
    for (const std::size_t hidden : {8u, 264u, 7168u, 65536u}) {
      if (scaling == Fp8Scaling::per_128_columns && hidden % 128 != 0) continue;
      const Norm norm{.tokens = 2,
                      .hidden = hidden,
                      .type = type,
                      .gamma_plus_one = hidden == 264,
                      .fp8 = true,
                      .scaling = scaling,
                      .scale_type = scale_type,
                      .seed = 3};
      const Case c{.count = norm.tokens * hidden, .type = type, .fill = Fill::random, .seed = 1};
      const Bytes sum = input_of(c, 0), residual = input_of(c, 1), gamma = input_of(c, 2);
      const NormResult result = norm_of(norm, sum, residual, gamma, fixed);
      const auto value = [&](const Bytes& bytes, std::size_t i) { return value_of(f, get(bytes, type, i)); };
      const std::size_t width = scaling == Fp8Scaling::per_128_columns ? 128 : hidden;
      const auto scale_of_group = [&](std::size_t group) -> double {
        if (norm.scaling == Fp8Scaling::fixed) return fixed;
        if (norm.scale_type == ScaleType::ue8m0) return std::ldexp(1.0, static_cast<int>(result.scales[group]) - 127);
        float scale = 0;
        std::memcpy(&scale, result.scales.data() + group * 4, 4);
        return scale;
      };
      for (std::size_t token = 0; token < norm.tokens; ++token) {
        double squares = 0;
        std::vector<double> most(hidden / width);
        for (std::size_t i = token * hidden; i < (token + 1) * hidden; ++i) {
          ASSERT_EQ(result.residual[i], round_to(f, value(sum, i) + value(residual, i)));
          squares += std::pow(value_of(f, result.residual[i]), 2);
          double& largest = most[i % hidden / width];
          largest = std::max(largest, std::fabs(value_of(f, result.output[i])));
        }
        for (std::size_t group = 0; scaling != Fp8Scaling::fixed && group < most.size(); ++group) {
          const double scale = scale_of_group(token * most.size() + group), least = most[group] / 448;
          if (scale_type == ScaleType::f32) {
            EXPECT_NEAR(scale, least, least * 1e-6);
          } else {  // the smallest sufficient power of two
            EXPECT_GE(scale, least * (1 - 1e-6));
            EXPECT_LT(scale / 2, least);
          }
        }
        for (std::size_t i = token * hidden; i < (token + 1) * hidden; ++i) {
          const double scale = scale_of_group(token * most.size() + i % hidden / width);
          const double weight = value(gamma, i % hidden) + (norm.gamma_plus_one ? 1 : 0);
          const double exact =
              value_of(f, result.residual[i]) / std::sqrt(squares / static_cast<double>(hidden) + 1e-6);
          const auto wanted = static_cast<int>(round_to(f, exact * weight));
          ASSERT_LE(std::abs(static_cast<int>(result.output[i]) - wanted), 2) << hidden << ": " << i;
          const double quantised = oracle::number_of_e4m3(static_cast<std::uint8_t>(result.fp8[i])) * scale;
          const double output = std::clamp(value_of(f, result.output[i]), -448 * scale, 448 * scale);
          ASSERT_NEAR(quantised, output, std::max(std::fabs(output) / 16, scale * 0x1p-10) * 1.0001);
        }
      }
    }
  }
}

// Epochs wrap, all-reduces share the buffers, and all algorithms take turns.
TEST(RmsNormSequences, AThousandCallsBetweenAllReducesWithRandomDelays) {
  constexpr int ranks = 4;
  const std::vector<Norm> norms = mixed_norms(30, 77);
  std::vector<Prepared> reduces;
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined}) {
    reduces.push_back(prepare({.count = 5000, .algorithm = algorithm, .fill = Fill::random, .seed = 6}, ranks));
  }
  for (const std::uint32_t first : {1u, 0x7fffff00u, 0xffffff00u}) {
    Config config = small_buffers();
    const FirstEpoch epoch(first);
    expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int rank) {
      std::mt19937 choices(first), delays(first + static_cast<unsigned>(rank));
      for (int call = 0; call < repeated(1000); ++call) {
        if (delays() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 100));
        const auto choice = choices();
        if (choice % 4 == 0) run_on_cpu_rank(communicator, reduces[choice / 4 % reduces.size()], rank);
        if (choice % 4 != 0) run_on_cpu_rank(communicator, norms[choice / 4 % norms.size()]);
      }
    }));
  }
}

TEST(RmsNormSequences, AreInTheFlightRecorder) {
  expect_all_well(run_world(2, cpu_config(), [&](Communicator& communicator, int) {
    run_on_cpu_rank(communicator, Norm{.tokens = 3, .hidden = 64, .tag = 4});
    run_on_cpu_rank(communicator, Norm{.tokens = 30, .hidden = 128, .type = DataType::f16, .fp8 = true});
    std::vector<std::string> names;
    for (const CallRecord& call : communicator.world().recent_calls()) names.push_back(call.operation);
    EXPECT_EQ(names, (std::vector<std::string>{"all_reduce_rms_norm bf16[3, 64] one-shot tag 4",
                                               "all_reduce_rms_norm f16[30, 128] two-shot fp8 per token tag 0"}));
  }));
}

TEST(RmsNormArguments, MistakesAreRejectedByNameAndLeaveNoTrace) {
  alignas(256) static std::byte memory[16384];
  std::vector<RejectedNorm> all = rejected_norms(memory);
  all.push_back({"stream: ", all.back().args});
  all.back().args.launch = {};
  all.back().args.stream = reinterpret_cast<Stream>(memory);
  expect_all_well(run_world(3, cpu_config(), [&](Communicator& communicator, int) {
    for (const RejectedNorm& rejected : all) {
      try {
        all_reduce_rms_norm(communicator, rejected.args);
        ADD_FAILURE() << "not rejected: " << rejected.part;
        return;  // the other ranks would wait
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument) << error.what();
        expect_says(error.what(), rejected.part);
      }
    }
    EXPECT_TRUE(communicator.world().recent_calls().empty());
    run_on_cpu_rank(communicator, Norm{});
  }));
}

// One kernel if rows fit, and without rows. A row too long for one algorithm's buffers goes through the other's. A row
// too long for both takes as few pieces as possible, and one kernel that norms them all.
TEST(RmsNormSequences, KernelsOfRowsLongerThanTheBuffers) {
  Config config = cpu_config();
  config.one_shot_bytes = 256;
  config.two_shot_bytes = 1024;
  expect_all_well(run_world(2, config, [&](Communicator& communicator, int) {
    const auto kernels = [&](std::size_t tokens, std::size_t hidden, Algorithm algorithm) {
      const RankNorm prepared =
          prepare({.tokens = tokens, .hidden = hidden, .algorithm = algorithm}, communicator.size(), 0);
      HostNorm host(prepared);
      return Recording::capture(communicator, [&] { host.call(communicator); }).size();
    };
    EXPECT_EQ(kernels(1, 512, Algorithm::automatic), 1u);
    EXPECT_EQ(kernels(3, 512, Algorithm::automatic), 3u);
    EXPECT_EQ(kernels(3, 520, Algorithm::automatic), 3 * 2 + 1u);
    EXPECT_EQ(kernels(2, 1024, Algorithm::two_shot), 2 * 2 + 1u);
    EXPECT_EQ(kernels(3, 128, Algorithm::one_shot), 3u);
    EXPECT_EQ(kernels(1, 1024, Algorithm::one_shot), 8 + 1u);
    EXPECT_EQ(kernels(0, 1024, Algorithm::one_shot), 1u);
  }));
}

// A call without rows counts as a call and is compared, whatever rows its neighbours have.
TEST(RmsNormSequences, NoRowsAreACall) {
  expect_right(3, smallest_buffers(),
               {{.tokens = 0, .hidden = 4096}, {.tokens = 1, .hidden = 4096}, {.tokens = 0, .hidden = 4096}});
  const auto endings = run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    run_on_cpu_rank(communicator, Norm{.tokens = rank == 0 ? 0u : 1u, .hidden = 4096});
  });
  for (const Ending& ending : endings) expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "no rows");
}

// Everything that defines the call is compared.
TEST(RmsNormArguments, DifferentCallsAreFound) {
  const std::function<void(Norm&)> changes[] = {[](Norm& n) { n.tokens = 3; },
                                                [](Norm& n) { n.hidden = 256; },
                                                [](Norm& n) { n.type = DataType::f16; },
                                                [](Norm& n) { n.residual = false; },
                                                [](Norm& n) { n.epsilon = 1e-5f; },
                                                [](Norm& n) { n.gamma_plus_one = true; },
                                                [](Norm& n) { n.gamma_f32 = true; },
                                                [](Norm& n) { n.fp8 = true; },
                                                [](Norm& n) { n.scaling = Fp8Scaling::per_128_columns; },
                                                [](Norm& n) { n.scaling = Fp8Scaling::fixed; },
                                                [](Norm& n) { n.scale_type = ScaleType::ue8m0; },
                                                [](Norm& n) { n.floor = 1e-10f; },
                                                [](Norm& n) { n.algorithm = Algorithm::two_shot; },
                                                [](Norm& n) { n.tag = 1; }};
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    const auto endings = run_world(2, cpu_config(), [&](Communicator& communicator, int rank) {
      Norm norm{.tokens = 2, .hidden = 128, .fp8 = i > 7};
      if (rank == 1) changes[i](norm);
      run_on_cpu_rank(communicator, norm);
    });
    for (const Ending& ending : endings) {
      expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "change " + std::to_string(i));
    }
  }
}

// Ranks may differ in arguments that the call does not use.
TEST(RmsNormArguments, NoTokensNeedNoTensors) {
  expect_all_well(run_world(2, cpu_config(), [&](Communicator& communicator, int) {
    alignas(16) std::byte gamma[128] = {};
    all_reduce_rms_norm(communicator, {.gamma = gamma, .hidden = 64});
    all_reduce_rms_norm(communicator, {.gamma = gamma, .fp8 = {.rows = gamma}, .hidden = 64});
  }));
}

TEST(RmsNormArguments, TypesAndFloorsOfNoScalesAreNotCompared) {
  for (const bool fp8 : {false, true}) {
    expect_all_well(run_world(2, cpu_config(), [&](Communicator& communicator, int rank) {
      run_on_cpu_rank(communicator, Norm{.tokens = 2,
                                         .hidden = 128,
                                         .fp8 = fp8,
                                         .scaling = Fp8Scaling::fixed,
                                         .scale_type = rank == 0 ? ScaleType::f32 : ScaleType::ue8m0,
                                         .floor = rank == 0 ? 1e-4f : 1e-10f});
    }));
  }
}

// Beyond 256 KiB two ranks do not send to themselves in one-shot: their own rows stay elsewhere.
TEST(RmsNormSequences, TwoRanksOnBothSidesOfWhereTheyKeepTheirOwn) {
  Config config = cpu_config();
  config.one_shot_bytes = 1 << 20;
  std::vector<Norm> norms;
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    for (const std::size_t tokens : {31u, 32u, 33u, 100u, 1u}) {
      norms.push_back({.tokens = tokens,
                       .hidden = 4096,
                       .type = type,
                       .fp8 = tokens % 2 == 1,
                       .algorithm = Algorithm::one_shot,
                       .seed = static_cast<std::uint32_t>(tokens)});
    }
  }
  expect_right(2, config, norms);
}

TEST(RmsNormGroups, SideBySideAndReleased) {
  constexpr int ranks = 6;
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    const Group pair = communicator.split(rank / 2), across = communicator.split(rank % 2);
    for (std::uint32_t i = 0; i < (kSanitized ? 3 : 12); ++i) {
      const auto of_pair = static_cast<std::uint32_t>(rank / 2);
      run_on_cpu_rank(pair, Norm{.tokens = 1 + of_pair, .hidden = 264, .seed = i + of_pair});
      run_on_cpu_rank(across, Norm{.tokens = 30, .hidden = 512, .seed = i});
    }
    communicator.release();
    expect_says(error_of([&] { run_on_cpu_rank(pair, Norm{}); }),
                "all_reduce_rms_norm: the communicator's memory is released");
    communicator.acquire();
    run_on_cpu_rank(pair, Norm{.seed = 40});
  }));
}

}  // namespace
}  // namespace weft::test
