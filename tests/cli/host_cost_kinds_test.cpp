// Kinds of calls with paths of their own on the host take no memory either: variants of norms, sums of every algorithm,
// counts on the host, and recordings.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/host_cost.hpp"
#include "weft/collectives.hpp"
#include "weft/columns.hpp"
#include "weft/fused.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

using cli::SmallCall;

constexpr std::size_t kKindRows = 4, kKindHidden = 128, kKindRowBytes = 2 * kKindHidden;

// Rows of more bytes than the buffers of an algorithm take several kernels.
TEST(HostCost, SumsOfAnyAlgorithmTakeNoMemory) {
  Config config = cpu_config();
  config.one_shot_bytes = config.two_shot_bytes = 4096;
  expect_no_memory_of_ranks(config, [](Communicator& communicator, Zeros& zeros) {
    constexpr std::size_t kElements = 16384;
    std::vector<SmallCall> calls;
    for (const auto algorithm :
         {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined}) {
      for (const std::size_t count : {kElements / 64, kElements}) {
        AllReduceArgs args{.input = zeros.of(2 * count), .output = zeros.of(2 * count), .count = count};
        args.algorithm = algorithm;
        calls.push_back({std::string(name(algorithm)), [&communicator, args](std::uint32_t tag) mutable {
                           args.tag = tag;
                           all_reduce(communicator, args);
                         }});
      }
    }
    return calls;
  });
}

std::vector<std::pair<std::string, Fp8Output>> casts_of(std::size_t rows, Zeros& zeros) {
  auto* const one = zeros.of<float>(1);
  *one = 1;
  std::vector<std::pair<std::string, Fp8Output>> all{{"no fp8", {}}};
  for (const auto scaling : {Fp8Scaling::fixed, Fp8Scaling::per_token, Fp8Scaling::per_128_columns}) {
    for (const auto type : {ScaleType::f32, ScaleType::ue8m0}) {
      Fp8Output fp8{.rows = zeros.of(rows * kKindHidden), .scaling = scaling, .scale_type = type};
      if (scaling == Fp8Scaling::fixed) {
        fp8.scale = one;
      } else {
        fp8.scales = zeros.of(rows * sizeof(float));
      }
      all.emplace_back(std::string(name(scaling)), fp8);
    }
  }
  return all;
}

TEST(HostCost, NormsOfAnyKindTakeNoMemory) {
  Config config = cpu_config();
  config.one_shot_bytes = config.two_shot_bytes = 4096;  // 40 rows take several kernels
  expect_no_memory_of_ranks(config, [](Communicator& communicator, Zeros& zeros) {
    std::vector<SmallCall> calls;
    for (const std::size_t rows : {std::size_t{2}, std::size_t{40}}) {
      for (const auto& [cast, fp8] : casts_of(rows, zeros)) {
        for (const auto algorithm : {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot}) {
          for (const bool wide : {false, true}) {
            AllReduceRmsNormArgs args{.input = zeros.of(rows * kKindRowBytes),
                                      .residual = zeros.of(rows * kKindRowBytes),
                                      .residual_output = zeros.of(rows * kKindRowBytes),
                                      .gamma = zeros.of(kKindHidden * sizeof(float)),
                                      .output = zeros.of(rows * kKindRowBytes),
                                      .fp8 = fp8,
                                      .tokens = rows,
                                      .hidden = kKindHidden,
                                      .gamma_plus_one = !wide,
                                      .gamma_f32 = wide};
            args.algorithm = algorithm;
            calls.push_back({cast + ", " + std::string(name(algorithm)), [&communicator, args](auto tag) mutable {
                               args.tag = tag;
                               all_reduce_rms_norm(communicator, args);
                             }});
          }
        }
      }
    }
    return calls;
  });
}

// Counts on the host go to memory of the group first.
TEST(HostCost, CountsOnTheHostTakeNoMemory) {
  expect_no_memory_of_ranks(cpu_config(), [](Communicator& communicator, Zeros& zeros) {
    const auto ranks = static_cast<std::size_t>(communicator.size()), whole = ranks * kKindRows;
    auto* const rows = zeros.of<std::int32_t>(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) rows[rank] = kKindRows;
    std::byte *const mine = zeros.of(whole * kKindRowBytes), *const all = zeros.of(whole * kKindRowBytes);
    std::byte* const wide = zeros.of(whole * kKindHidden * sizeof(float));
    const Counts counts{.rows = rows, .on_host = true};
    std::vector<SmallCall> calls{
        {"all_gather_v",
         [=, &communicator](std::uint32_t tag) {
           const GatheredTensor tensor{.input = mine, .output = all, .row_bytes = kKindRowBytes};
           all_gather_v(
               communicator,
               {.tensors = {&tensor, 1}, .counts = counts, .input_rows = kKindRows, .output_rows = whole, .tag = tag});
         }},
        {"reduce_scatter_v",
         [=, &communicator](std::uint32_t tag) {
           reduce_scatter_v(communicator, {.input = all,
                                           .output = mine,
                                           .width = kKindHidden,
                                           .counts = counts,
                                           .input_rows = whole,
                                           .output_rows = kKindRows,
                                           .tag = tag});
         }},
        {"all_to_all_columns", [=, &communicator](std::uint32_t tag) {
           all_to_all_columns(communicator, {.input = all,
                                             .output = wide,
                                             .shard_columns = kKindHidden / ranks,
                                             .output_f32 = true,
                                             .soft_cap = 30,
                                             .counts = counts,
                                             .input_rows = whole,
                                             .output_rows = kKindRows,
                                             .tag = tag});
         }}};
    for (const auto& [cast, fp8] : casts_of(whole, zeros)) {
      CrossingRmsNormArgs args{.input = all,
                               .gamma = zeros.of(kKindHidden * sizeof(float)),
                               .fp8 = fp8,
                               .hidden = kKindHidden,
                               .group_ranks = ranks,
                               .counts = counts,
                               .input_rows = whole,
                               .shard_rows = kKindRows,
                               .output_rows = whole};
      args.residual_output = zeros.of(whole * kKindRowBytes);
      args.output = zeros.of(whole * kKindRowBytes);
      for (const auto cross : {gather_sums_rms_norm, scatter_sums_rms_norm}) {
        calls.push_back({"normed crossing, " + cast, [&communicator, args, cross](std::uint32_t tag) mutable {
                           args.tag = tag;
                           cross(communicator, args);
                         }});
      }
    }
    return calls;
  });
}

// Each call is a replay of all of them.
TEST(HostCost, AReplayTakesNoMemory) {
  for (const int ranks : {1, 2}) {
    expect_all_well(run_world(ranks, cpu_config(), [](Communicator& communicator, int) {
      const auto device = cli::open_cpu_rank();
      const cli::EveryOperation operations(communicator, *device);
      std::vector<Recording> recordings;
      std::vector<SmallCall> calls;
      for (const SmallCall& call : operations.calls())
        recordings.push_back(Recording::capture(communicator, [&] { call.make(1); }));
      for (std::size_t i = 0; i < recordings.size(); ++i)
        calls.push_back(
            {"a replay of " + operations.calls()[i].name, [&, i](std::uint32_t) { recordings[i].replay(); }});
      expect_no_memory(calls);
    }));
  }
}

}  // namespace
}  // namespace weft::test
