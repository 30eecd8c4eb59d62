// weft verify: its coverage, and its judgement of figures.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "bench/pair_measure.hpp"
#include "cli/run.hpp"
#include "verify/verify_checks.hpp"

namespace weft::cli {
namespace {

TEST(Pairs, EveryTwoRanksMeetOnce) {
  for (int ranks = 3; ranks <= 64; ++ranks) {
    std::map<std::pair<int, int>, int> met;
    for (int round = 0; round < pair_rounds(ranks); ++round) {
      for (int rank = 0; rank < ranks; ++rank) {
        const int peer = partner(rank, round, ranks);
        ASSERT_NE(peer, rank);
        ASSERT_LT(peer, ranks);
        if (peer < 0) continue;
        ASSERT_EQ(partner(peer, round, ranks), rank);
        ++met[{rank, peer}];
      }
    }
    ASSERT_EQ(met.size(), static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks - 1)) << ranks;
    for (const auto& [pair, times] : met) ASSERT_EQ(times, 1) << pair.first << " " << pair.second;
  }
}

// Four GPUs with 18 links of 26.56 GB/s each, as fast as H200s.
std::vector<PairFigure> sound_pairs(double link_rate = 478) {
  std::vector<PairFigure> pairs;
  for (int a = 0; a < 4; ++a)
    for (int b = a + 1; b < 4; ++b)
      pairs.push_back({.a = a,
                       .b = b,
                       .latency_bytes = 8192,
                       .bandwidth_bytes = 1 << 24,
                       .us = 2.2,
                       .gb_per_s = 331.0 + a,
                       .link_rate = link_rate});
  return pairs;
}

std::vector<Check> failed(const std::vector<Check>& checks) {
  std::vector<Check> out;
  for (const Check& check : checks)
    if (!check.passed) out.push_back(check);
  return out;
}

TEST(VerifyChecks, SoundPairsPass) {
  const auto checks = judge_pairs(sound_pairs());
  EXPECT_EQ(checks.size(), 12u);
  EXPECT_TRUE(failed(checks).empty());
}

// Each figure is the better one, with its spread.
TEST(VerifyChecks, APairThatIsMeasuredAgainKeepsItsBestFigures) {
  PairFigure one = sound_pairs()[4], other = one;
  one.us = 3.7;
  one.gb_per_s = 340;
  one.small.us = other.large.us = 9;
  for (const PairFigure& best : {best_of(one, other), best_of(other, one)}) {
    EXPECT_EQ(best.us, 2.2);
    EXPECT_EQ(best.gb_per_s, 340);
    EXPECT_EQ(best.small.us, other.small.us);
    EXPECT_EQ(best.large.us, one.large.us);
    EXPECT_EQ(best.b, 3);
  }
}

TEST(VerifyChecks, ASlowPairIsNamedWithWhatWasExpected) {
  auto pairs = sound_pairs();
  pairs[4].gb_per_s = 200;  // 1 ↔ 3
  auto bad = failed(judge_pairs(pairs));
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].who, "ranks 1 ↔ 3");
  EXPECT_EQ(bad[0].ranks, (std::vector<int>{1, 3}));
  EXPECT_EQ(bad[0].what, "bandwidth");
  EXPECT_EQ(bad[0].bytes, std::size_t{1} << 24);
  EXPECT_EQ(bad[0].expected, "263 GB/s each way or more (55 % of its NVLinks' 478)");
  EXPECT_EQ(bad[0].got, "200 GB/s");
  EXPECT_NE(bad[0].advice.find("nvidia-smi nvlink"), std::string::npos);

  pairs[4].gb_per_s = 275;  // enough for the links, but below the other pairs
  bad = failed(judge_pairs(pairs));
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_NE(bad[0].expected.find("the pairs' median"), std::string::npos) << bad[0].expected;
}

TEST(VerifyChecks, AndOneThatAnswersLate) {
  for (const double us : {3.5, 6.0}) {
    auto pairs = sound_pairs();
    pairs[0].us = us;
    const auto bad = failed(judge_pairs(pairs));
    ASSERT_EQ(bad.size(), 1u) << us;
    EXPECT_EQ(bad[0].what, "latency");
    EXPECT_EQ(bad[0].who, "ranks 0 ↔ 1");
  }
}

TEST(VerifyChecks, WhatLinksShouldGiveMustBeKnown) {
  auto pairs = sound_pairs(0);
  pairs[4] = {.a = 1, .b = 3, .us = 1000, .gb_per_s = 0.1};
  EXPECT_TRUE(failed(judge_pairs(pairs)).empty());
}

// Four GPUs in two bridged pairs. PCIe connects the pairs, and its rate is unknown.
TEST(VerifyChecks, PairsThatNothingIsKnownOfAreSaidAndNotPassed) {
  auto pairs = sound_pairs();
  for (PairFigure& pair : pairs)
    if (pair.a / 2 != pair.b / 2) pair.link_rate = 0, pair.gb_per_s = 20, pair.us = 9;
  const auto checks = judge_pairs(pairs);
  EXPECT_EQ(checks.size(), 4u);
  EXPECT_TRUE(failed(checks).empty());
  EXPECT_EQ(why_not_judged(pairs),
            "Times of ranks 0 ↔ 2, 0 ↔ 3, 1 ↔ 2, 1 ↔ 3 are shown but not judged: the rate of their links is unknown");
  const auto bridged = [](int a, int b) { return a / 2 == b / 2 ? 478.0 : 0.0; };
  EXPECT_EQ(slowest_link(4, bridged), 0);
  EXPECT_EQ(slowest_link(2, bridged), 478);
  EXPECT_EQ(slowest_link(3, [](int a, int b) { return a + b == 2 ? 100.0 : 478.0; }), 100);
}

// The output names unjudged figures and the reason, since they limit the verdict.
TEST(VerifyChecks, ShortMessagesAreJudgedByTheirLatency) {
  EXPECT_EQ(why_not_judged(sound_pairs()), "");
  EXPECT_EQ(why_not_judged(sound_pairs(0)),
            "Times are shown but not judged: the rate of these ranks' links is unknown");
  auto pairs = sound_pairs();
  for (auto& pair : pairs) {
    pair.bandwidth_bytes = 1 << 20;
    pair.gb_per_s = 100;
  }
  EXPECT_EQ(why_not_judged(pairs),
            "Bandwidths are shown but not judged: their messages are shorter than 16 MB (--most-bytes)");
  pairs[2].us = 6;
  const auto checks = judge_pairs(pairs);
  EXPECT_EQ(checks.size(), 6u);
  const auto bad = failed(checks);
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].what, "latency");
  EXPECT_EQ(bad[0].who, "ranks 0 ↔ 3");
}

// Pairs with fewer links are compared with pairs like themselves.
TEST(VerifyChecks, PairsWithOtherLinksAreNoMeasure) {
  auto pairs = sound_pairs();
  for (const std::size_t p : {0u, 5u}) {
    pairs[p].link_rate = 239;
    pairs[p].gb_per_s = 160;
  }
  EXPECT_TRUE(failed(judge_pairs(pairs)).empty());
}

// A machine with unusable GPUs, or with fewer GPUs than ranks, must not pass on the rest of its checks.
TEST(VerifyChecks, GpusThatCannotBeUsedOrAreMissed) {
  Machine machine;
  machine.gpus_present = 8;
  machine.cuda_runtime = "13.0";
  machine.cuda_problem = "system not yet initialized";
  auto bad = failed(judge_seats(machine, {}));
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].expected, "8 GPUs that programs can use");
  EXPECT_EQ(bad[0].got, "system not yet initialized");
  EXPECT_EQ(why_not_all_gpus(machine, {}), "GPU ranks were not checked: system not yet initialized");
  EXPECT_TRUE(judge_seats(machine, {.device = Device::cpu}).empty());  // CPU ranks were asked for
  EXPECT_EQ(why_not_all_gpus(machine, {.device = Device::cpu}), "");

  machine.cuda_problem = "";
  machine.gpus.resize(8);
  bad = failed(judge_seats(machine, {.ranks = 8, .gpus = 7}));
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].expected, "8 GPUs, one for each rank");
  EXPECT_TRUE(judge_seats(machine, {.ranks = 8, .gpus = 8}).empty());
  EXPECT_TRUE(judge_seats(machine, {.ranks = 0, .gpus = 4}).empty());
  EXPECT_EQ(why_not_all_gpus(machine, {.gpus = 8}), "");
  EXPECT_EQ(why_not_all_gpus(machine, {.gpus = 7}).rfind("7 of 8 GPUs were checked", 0), 0u);

  machine = {};
  machine.gpus_present = 8;
  machine.cuda_problem = "this program was built without CUDA";
  EXPECT_TRUE(judge_seats(machine, {}).empty());  // the program is at fault, not the machine

  machine = {};
  machine.cuda_problem = "no CUDA-capable device is detected";
  EXPECT_TRUE(judge_seats(machine, {}).empty());  // a machine without GPUs only has CPU ranks
  EXPECT_EQ(why_not_all_gpus(machine, {}), "GPU ranks were not checked: no CUDA-capable device is detected");
}

TEST(VerifyChecks, AllAtOnce) {
  const std::size_t bytes = 64 << 20;
  EXPECT_TRUE(judge_world(4, bytes, 301, 478).passed);  // 334 GB/s out of each GPU
  const Check slow = judge_world(4, bytes, 500, 478);
  EXPECT_FALSE(slow.passed);
  EXPECT_EQ(slow.got, "201 GB/s");
}

TEST(VerifyChecks, LinksThatAreDownAndGpusOutOfReach) {
  Machine machine;
  for (int g = 0; g < 3; ++g)
    machine.gpus.push_back({.name = "GPU",
                            .architecture = "sm_90",
                            .reach = {"NVLink", "NVLink", "NVLink"},
                            .links = {.present = 18, .up = 18, .gb_per_s = 26.562, .to = {18, 18, 18}}});
  EXPECT_TRUE(failed(judge_links(machine)).empty());
  machine.gpus[1].links.up = 17;
  machine.gpus[0].reach[2] = "none";
  const auto bad = failed(judge_links(machine));
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_EQ(bad[0].who, "GPUs 0 ↔ 2");
  EXPECT_EQ(bad[1].who, "GPU 1");
  EXPECT_EQ(bad[1].expected, "18 links up");
  EXPECT_EQ(bad[1].got, "17");
}

TEST(Verify, CoversEveryPairAlgorithmTypeAndReduction) {
  const auto result = run({"verify", "--device", "cpu", "--ranks", "3", "--most-bytes", "16K", "--json", "-"});
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  EXPECT_EQ(result.err, "");  // no progress bar without a terminal
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("schema"), "weft-verify-1");
  EXPECT_EQ(json.at("verdict"), "PASS");
  EXPECT_EQ(json.at("not_judged"), "Times are shown but not judged: the rate of these ranks' links is unknown");
  EXPECT_EQ(json.at("pairs").size(), 3u);
  for (const auto& pair : json.at("pairs")) {
    EXPECT_LE(pair.at("us_min"), pair.at("us"));
    EXPECT_GE(pair.at("us_max"), pair.at("us"));
    EXPECT_LT(pair.at("us_min"), pair.at("us_max"));  // samples of CPU ranks, in nanoseconds, differ
    EXPECT_LE(pair.at("gb_per_s_min"), pair.at("gb_per_s"));
    EXPECT_GE(pair.at("gb_per_s_max"), pair.at("gb_per_s"));
  }
  std::set<std::string> what, copies;
  for (const auto& check : json.at("checks")) {
    EXPECT_EQ(check.at("verdict"), "PASS");
    what.insert(check.at("what"));
    if (check.at("what") == "copy") copies.insert(check.at("who"));
  }
  EXPECT_EQ(copies, (std::set<std::string>{"ranks 0 → 1", "ranks 0 → 2", "ranks 1 → 0", "ranks 1 → 2", "ranks 2 → 0",
                                           "ranks 2 → 1"}));
  for (const char* algorithm : {"one-shot", "two-shot", "pipelined", "automatic"})
    for (const char* type : {"bf16", "f16", "f32", "i32", "i64", "u8"})
      for (const char* op : {"sum", "max", "min", "avg"})
        EXPECT_TRUE(what.contains(std::string("all_reduce ") + op + " " + type + " " + algorithm)) << type;
  for (const char* type : {"bf16", "f16", "f32", "i32", "i64", "u8"})
    for (const char* op : {"sum", "max", "min", "avg"})
      for (const char* operation : {"reduce_scatter ", "reduce "})
        EXPECT_TRUE(what.contains(std::string(operation) + op + " " + type)) << type;
  for (const char* other : {"send_receive",
                            "gather and scatter",
                            "all_gather balanced",
                            "all_gather_v busy",
                            "reduce_scatter balanced",
                            "reduce_scatter_v busy",
                            "broadcast balanced",
                            "all_gather balanced into symmetric memory",
                            "all_to_all balanced into symmetric memory",
                            "broadcast balanced into symmetric memory",
                            "all_gather_v busy into symmetric memory",
                            "four_tensors busy into symmetric memory",
                            "dispatch and combine bf16",
                            "dispatch and combine fp8",
                            "all_to_all",
                            "all_gather_columns",
                            "all_gather_columns to f32",
                            "all_to_all_columns",
                            "top_k_columns k 1",
                            "top_k_columns k 40",
                            "gather_sums",
                            "scatter_sums",
                            "barrier",
                            "all_reduce_rms_norm bf16 one-shot",
                            "all_reduce_rms_norm f16 two-shot fp8 fixed",
                            "all_reduce_rms_norm bf16 automatic fp8 per token",
                            "all_reduce_rms_norm f16 one-shot fp8 per 128 columns",
                            "all_reduce_rms_norm bf16 two-shot fp8 per 128 columns UE8M0"})
    EXPECT_TRUE(what.contains(other)) << other;
  for (const std::string& one : what) EXPECT_EQ(one.find("multimem"), std::string::npos) << one;
}

// Multimem runs only if an option asks for it, and the named size is the largest message.
TEST(Verify, CoversMultimemAndTheLargestMessage) {
  const auto result =
      run({"verify", "--device", "cpu", "--ranks", "2", "--most-bytes", "20K", "--multicast", "--json", "-"});
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  const auto json = nlohmann::json::parse(result.out);
  std::set<std::string> what;
  std::size_t largest = 0;
  for (const auto& check : json.at("checks")) {
    what.insert(check.at("what"));
    largest = std::max(largest, check.at("bytes").get<std::size_t>());
  }
  EXPECT_EQ(largest, 20u << 10);
  for (const char* algorithm : {"multimem-one-shot", "multimem-two-shot"}) {
    for (const char* type : {"bf16", "f16", "f32"})
      EXPECT_TRUE(what.contains(std::string("all_reduce sum ") + type + " " + algorithm)) << type;
    EXPECT_FALSE(what.contains(std::string("all_reduce max bf16 ") + algorithm));
    for (const char* never : {"sum i32 ", "sum i64 ", "avg bf16 "})
      EXPECT_FALSE(what.contains(std::string("all_reduce ") + never + algorithm)) << never;
  }
}

TEST(Verify, AMessageThatMemoryCannotHoldIsBadUsage) {
  const auto result = run({"verify", "--device", "cpu", "--ranks", "2", "--most-bytes", "4096G"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("a message of 4096 GB: must be at most"), std::string::npos) << result.err;
}

TEST(Verify, RefusesWhatItCannotMeasure) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--most-bytes", "8191"}, "--most-bytes 8191: must be 8 KB or more"},
      {{"--most-bytes", "3Q"}, "3Q"},
      {{"--ranks", "65"}, "65"},
  };
  for (const auto& [arguments, expected] : cases) {
    std::vector<std::string> all = {"verify"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto result = run(all);
    EXPECT_EQ(result.code, 2) << expected;
    EXPECT_NE(result.err.find(expected), std::string::npos) << result.err;
  }
}

TEST(Verify, SaysPassAndHowManyChecks) {
  const auto result = run({"verify", "--device", "cpu", "--ranks", "2", "--most-bytes", "8K"});
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.out.find("\nPASS: "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("0 ↔ 1"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace weft::cli
