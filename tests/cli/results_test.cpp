// From samples to results.
#include <gtest/gtest.h>

#include "bench/bench_options.hpp"

namespace weft::cli {
namespace {

TEST(Results, TimeIsTheSlowestRanksMedian) {
  Result result{.samples_us = {{1, 2, 9}, {3, 4, 5}}};
  EXPECT_EQ(operation_us(result), 4);
  result.baseline_us = {{1, 1, 1}, {3, 3, 3}};  // the producer's own time is subtracted rank by rank
  EXPECT_EQ(operation_us(result), 1);
  result = {.point = {.method = Method::vllm}, .samples_us = {{1}, {3}}};
  EXPECT_EQ(operation_us(result), 1);  // rank 0's clock
}

// The spread is that of the slowest rank, since all others wait for it. It is not the least and the most of all.
TEST(Results, SpreadIsThatOfTheSlowestRank) {
  using Samples = std::vector<std::vector<double>>;
  const Figure figure = figure_of(Samples{{1, 2, 90}, {3, 4, 5}});
  EXPECT_EQ(figure.us, 4);
  EXPECT_EQ(figure.least, 3);
  EXPECT_EQ(figure.most, 5);
  EXPECT_EQ(figure.samples, 3u);
  EXPECT_EQ(cell(figure), "4.00 (3.00…5.00)");
  EXPECT_EQ(cell(figure_of(Samples{{12.34}})), "12.3");  // one sample has no spread
  EXPECT_EQ(cell(figure_of(Samples{})), "-");
  const Figure rest = figure_of(Samples{{11, 12, 13}}, Samples{{10, 2, 30}});
  EXPECT_EQ(rest.least, 1);
  EXPECT_EQ(rest.us, 2);
  EXPECT_EQ(rest.most, 3);
}

TEST(Results, TurnsAddUp) {
  Result result{.verdict = Verdict::ok, .samples_us = {{1}, {2}}};
  append(result, {.verdict = Verdict::ok, .samples_us = {{5}, {6}}});
  append(result, {.verdict = Verdict::ok, .samples_us = {{3}, {3}}});
  EXPECT_EQ(result.samples_us, (std::vector<std::vector<double>>{{1, 5, 3}, {2, 6, 3}}));
  EXPECT_EQ(result.us, 3);
  EXPECT_EQ(result.verdict, Verdict::ok);
  append(result, {.verdict = Verdict::wrong, .detail = "bad", .samples_us = {{1}, {1}}});
  EXPECT_EQ(result.verdict, Verdict::wrong);
  EXPECT_EQ(result.detail, "bad");
}

TEST(Results, AWrongOneIsNeverBestAndIsMarked) {
  std::vector<Result> results(2);
  results[0] = {.point = {.count = 8, .contender = Contender::one_shot}, .verdict = Verdict::wrong, .us = 1};
  results[1] = {.point = {.count = 8, .contender = Contender::two_shot}, .verdict = Verdict::ok, .us = 2};
  EXPECT_FALSE(all_correct(results));
  EXPECT_EQ(cell(&results[0]), "WRONG");
  EXPECT_EQ(fastest(results, 16, Method::batch, is_weft), &results[1]);
  results.push_back({.point = {.count = 8, .contender = Contender::push}, .verdict = Verdict::ok, .us = 0.5});
  EXPECT_EQ(fastest(results, 16, Method::batch, [](Contender) { return true; }), &results[1]);  // not a bound
  results[0].verdict = Verdict::unavailable;
  EXPECT_TRUE(all_correct(results));
  EXPECT_EQ(cell(&results[0]), "-");
}

// The verdict only claims results that were compared.
TEST(Results, TheVerdictIsOfWhatWasCompared) {
  std::vector<Result> results;
  EXPECT_EQ(verdict_line(compared(results)), "Nothing was compared with a reference: nothing was measured.");
  results.push_back({.point = {.count = 8}});
  EXPECT_EQ(verdict_line(compared(results)), "Nothing was compared with a reference: nothing was measured.");
  results.push_back({.verdict = Verdict::ok});
  EXPECT_EQ(verdict_line(compared(results)),
            "Nothing was compared with a reference: messages of 0 bytes have no result.");
  results.push_back({.point = {.operation = Operation::barrier}, .verdict = Verdict::ok});
  EXPECT_EQ(verdict_line(compared(results)),
            "Every result except those of 0 bytes was compared with a reference and is right.");
  results.erase(results.begin() + 1);
  EXPECT_EQ(verdict_line(compared(results)), "Every result was compared with a reference and is right.");
  results.push_back({.point = {.count = 8}, .verdict = Verdict::wrong});
  EXPECT_EQ(verdict_line(compared(results)), "Results marked WRONG differ from the reference.");
}

}  // namespace
}  // namespace weft::cli
