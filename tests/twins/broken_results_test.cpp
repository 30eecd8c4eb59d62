// A machine on which data arrives wrong: the reports of weft verify, the benchmarks and weft tune.
#include <gtest/gtest.h>

#include <filesystem>
#include <tuple>

#include "cli/run.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "twins/breakable_fabric.hpp"

namespace weft::test {
namespace {

using detail::broken;

TEST(BrokenFabric, IsNamedByVerify) {
  const std::vector<std::string> verify = {"verify", "--device", "cpu", "--ranks", "3", "--most-bytes", "16K"};
  broken.from = 2;
  broken.to = 1;
  broken.pack = 0;
  const cli::Output unconnected = cli::run(verify);
  broken.from = -1;
  EXPECT_EQ(unconnected.code, 1);
  expect_says(unconnected.out, "\nFAIL: 1 of 1 checks\n");
  expect_says(unconnected.out, "data that rank 2 wrote to rank 1 arrived wrong");

  broken.copies_from = 2;
  broken.copies_to = 0;
  const cli::Output wrong = cli::run(verify);
  broken.copies_from = -1;
  EXPECT_EQ(wrong.code, 1);
  expect_says(wrong.out, "\nFAIL: 2 of ");  // two sizes
  expect_says(wrong.out, "ranks 2 → 0, copy, 16 B: expected the reference's bits, got 1 of 4 elements wrong");
  expect_says(wrong.out, "Do not serve from this machine.");
  EXPECT_EQ(cli::run(verify).code, 0);
}

// Every kind of result that verify compares, and its message to the operator.
TEST(BrokenFabric, WrongResultsAreNamedByVerify) {
  const std::vector<std::string> verify = {"verify", "--device", "cpu", "--ranks", "3", "--most-bytes", "8K"};
  const std::tuple<std::atomic<int>&, int, const char*> breaks[] = {
      {broken.sums, 2, "ranks 2, all_reduce sum bf16 one-shot"},
      {broken.residuals, 1, "ranks 1, all_reduce_rms_norm bf16 two-shot fp8 fixed"},
      {broken.all_to_alls, 0, "ranks 0, all_to_all"}};
  for (const auto& [which, rank, what] : breaks) {
    which = rank;
    const cli::Output wrong = cli::run(verify);
    which = -1;
    EXPECT_EQ(wrong.code, 1) << what;
    expect_says(wrong.out, what);
  }
  broken.barriers = true;
  const cli::Output early = cli::run(verify);
  broken.barriers = false;
  EXPECT_EQ(early.code, 1);
  expect_says(early.out, "barrier: expected the reference's bits, got ended before rank");
}

// A stale result has the right bits of a wrong call. The protocol's banks alternate, so stale data comes from the call
// before, or from the one before that.
TEST(BrokenFabric, DataOfACallBeforeIsFoundByEveryBench) {
  const std::vector<std::vector<std::string>> benches = {
      {"all-reduce", "--bytes", "256,8K", "--algorithm", "one-shot"},
      {"all-reduce", "--bytes", "8K", "--algorithm", "two-shot", "--dtype", "f32", "--data", "random"},
      {"all-reduce", "--bytes", "8M", "--algorithm", "pipelined"},  // so long that a sample is a single call
      {"gather", "--hidden", "64", "--tokens", "2", "--what", "all_gather,all_gather_v"},
      {"gather", "--hidden", "64", "--tokens", "2", "--what", "reduce_scatter"},
      {"gather", "--hidden", "64", "--tokens", "2", "--what", "reduce_scatter_v"},
      {"gather", "--hidden", "64", "--tokens", "2", "--what", "all_to_all"},
      {"norm", "--hidden", "64", "--tokens", "1"},
      {"moe", "--model", "gpt-oss-120b", "--tokens", "2"}};
  for (auto bench : benches) {
    bench.insert(bench.begin(), "bench");
    bench.insert(bench.end(), {"--device", "cpu", "--ranks", "3", "--samples", "1"});
    for (const std::size_t calls : {0, 1, 2}) {
      broken.calls_before = calls;
      broken.stale = 1;
      const cli::Output result = cli::run(bench);
      broken.stale = -1;
      EXPECT_EQ(result.code, calls == 0 ? 0 : 1) << testing::PrintToString(bench) << ", " << calls;
      EXPECT_EQ(result.err.find("WRONG: ") != std::string::npos, calls != 0) << result.err;
    }
  }
}

// A wrong result ends a search. A continued search measures it again.
TEST(BrokenFabric, TuneTakesNoTimesOfWrongResults) {
  const std::string table = testing::TempDir() + "broken.json", state = table + ".state";
  std::filesystem::remove(table);
  std::filesystem::remove(state);
  const std::vector<std::string> tune = {"tune", "--device",  "cpu", "--ranks",  "2",  "--bytes",
                                         "1K",   "--samples", "1",   "--output", table};
  for (int run = 0; run < 2; ++run) {
    broken.sums = 1;
    const cli::Output wrong = cli::run(tune);
    broken.sums = -1;
    EXPECT_EQ(wrong.code, 1);
    expect_says(wrong.err, "WRONG: one-shot of 1 KB, 0 × 0: ");
    EXPECT_FALSE(std::filesystem::exists(table));
  }
  EXPECT_EQ(cli::run(tune).code, 0);
  EXPECT_TRUE(std::filesystem::exists(table));
}

}  // namespace
}  // namespace weft::test
