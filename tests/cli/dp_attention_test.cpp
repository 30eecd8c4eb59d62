// weft bench dp-attention, on CPU ranks.
#include <gtest/gtest.h>

#include <set>

#include "bench/crossing_measure.hpp"
#include "cli/run.hpp"

namespace weft::cli {
namespace {

// Groups of one rank, of some and of all; as many tokens everywhere, and one busy group.
TEST(BenchDpAttention, ChecksEveryLayoutAndLoad) {
  const std::string file = testing::TempDir() + "dp_attention.json";
  struct Layout {
    const char *tp, *dp;
    std::size_t rows;  // of the table
  };
  for (const Layout& layout : {Layout{"4", "2", 8}, Layout{"3", "1", 4}, Layout{"2", "2", 8}}) {
    for (const char* type : {"bf16", "f32"}) {
      const auto result =
          run({"bench",    "dp-attention", "--device", "cpu", "--tp",    layout.tp, "--dp",      layout.dp,
               "--hidden", "72",           "--tokens", "1,5", "--dtype", type,      "--samples", "2",
               "--data",   "random",       "--json",   file});
      ASSERT_EQ(result.code, 0) << result.out << result.err;
      const auto json = read_json(file);
      EXPECT_EQ(json.at("command"), "bench dp-attention");
      std::size_t ours = 0;
      std::set<std::string> operations, contenders;
      for (const auto& one : json.at("points")) {
        contenders.insert(one.at("contender"));
        if (one.at("contender") != "automatic") continue;
        EXPECT_EQ(one.at("verdict"), "ok");
        operations.insert(one.at("operation"));
        ++ours;
      }
      EXPECT_EQ(ours, layout.rows);
      EXPECT_EQ(operations, (std::set<std::string>{"gather_sums", "scatter_sums"}));
      EXPECT_EQ(contenders.contains("separate"), std::string(layout.dp) != layout.tp);
    }
  }
}

TEST(BenchDpAttention, ABusyGroupLeavesTheOthersOneToken) {
  const CrossingForm form{.layout = {.tp = 4, .dp = 2}, .hidden = 8};
  EXPECT_EQ(form.tokens({.load = Load::busy, .rows = 9}, 0), 9u);
  EXPECT_EQ(form.tokens({.load = Load::busy, .rows = 9}, 1), 1u);
  EXPECT_EQ(form.tokens({.load = Load::balanced, .rows = 9}, 1), 9u);
  // Room for 5 rows on each of four ranks.
  EXPECT_EQ(crossing_bytes(form, {.rows = 9, .type = DataType::f32}), 5u * 4 * 8 * 4);
}

TEST(BenchDpAttention, BadUsageIsRejected) {
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{"--dp", "3"}, {"--tokens", "0"}, {"--load", "idle"}, {"--dtype", "u8"}}) {
    std::vector<std::string> arguments = {"bench", "dp-attention", "--device", "cpu", "--tp", "2", "--hidden", "8"};
    arguments.insert(arguments.end(), bad.begin(), bad.end());
    EXPECT_EQ(run(arguments).code, 2) << bad[0];
  }
  const auto shared = run({"bench", "dp-attention", "--device", "cpu", "--share-gpus"});
  EXPECT_NE(shared.code, 0);
  EXPECT_NE(shared.err.find("--share-gpus: the ranks would be CPU ranks"), std::string::npos) << shared.err;
}

}  // namespace
}  // namespace weft::cli
