// The files of --csv.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "cli/run.hpp"

namespace weft::cli {
namespace {

std::vector<std::vector<std::string>> cells_of(const std::string& csv) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream text(csv);
  for (std::string line; std::getline(text, line);) {
    std::istringstream cells(line + ",end");
    lines.emplace_back();
    for (std::string cell; std::getline(cells, cell, ',');) lines.back().push_back(cell);
    lines.back().pop_back();
  }
  return lines;
}

// Every line has the same number of cells, and numbers are plain.
TEST(Program, CsvIsForMachines) {
  for (auto command : small_benches()) {
    command.insert(command.end(), {"--device", "cpu", "--ranks", "2", "--samples", "2", "--csv", "-"});
    const auto result = run(command);
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(std::ranges::all_of(result.out, [](char c) { return static_cast<signed char>(c) > 0; })) << result.out;
    const auto lines = cells_of(result.out);
    ASSERT_GT(lines.size(), 1u);
    const auto column = [&](const std::string& name) {
      return static_cast<std::size_t>(std::ranges::find(lines[0], name) - lines[0].begin());
    };
    for (std::size_t i = 1; i < lines.size(); ++i) {
      const auto& line = lines[i];
      ASSERT_EQ(line.size(), lines[0].size()) << i;
      EXPECT_EQ(std::ranges::count(line, "-"), 0) << i;
      EXPECT_FALSE(line[column("operation")].empty()) << i;
      EXPECT_EQ(line[column("ranks")], "2");
      if (line[column("verdict")] != "ok") continue;
      EXPECT_EQ(line[column("samples")], "2");
      const double least = std::stod(line[column("us_min")]), median = std::stod(line[column("us_median")]);
      EXPECT_GT(least, 0);
      EXPECT_LE(least, median);
      EXPECT_LE(median, std::stod(line[column("us_max")]));
      EXPECT_EQ(line[column("bytes")].find_first_not_of("0123456789"), std::string::npos) << line[column("bytes")];
    }
  }
}

// An unavailable result has no time. Each grid of a sweep has a line of its own.
TEST(Program, CsvLeavesOutWhatIsNotThere) {
  const auto result = run({"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--bytes", "4K", "--samples", "1",
                           "--algorithm", "one-shot", "--sweep", "--blocks", "2,9", "--threads", "32", "--csv", "-"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("\nall_reduce,,,2,bf16,sum,,,4096,one-shot,batch,,,one-shot,ok,1,"), std::string::npos);
  EXPECT_NE(result.out.find("\nall_reduce,,,2,bf16,sum,,,4096,one-shot,batch,9,32,,unavailable,0,,,,,,\n"),
            std::string::npos)
      << result.out;
}

}  // namespace
}  // namespace weft::cli
