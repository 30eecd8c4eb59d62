// The progress bar, on terminals of several widths.
#include "common/progress.hpp"

#include <gtest/gtest.h>

#include "cli/terminal.hpp"
#include "common/table.hpp"

namespace weft::cli {
namespace {

const std::string kStart = "\r\x1b[K";

TEST(Progress, NeverTakesMoreThanALineOfTheTerminal) {
  const Terminal terminal(60);
  Progress progress(3, true);
  const std::string what = "reduce_scatter balanced 3.5 MB → automatic, batches of calls";
  const auto drawn = [&] {
    progress.step(what);
    const std::string text = terminal.read();
    EXPECT_EQ(text.substr(0, kStart.size()), kStart);
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text.substr(kStart.size());
  };
  EXPECT_EQ(width_of(drawn()), 59u);
  terminal.resize(40);
  EXPECT_EQ(drawn(), "[##########....................] 2/3 re");
  terminal.resize(200);
  EXPECT_NE(drawn().find(what), std::string::npos);
  progress.clear();
  EXPECT_EQ(terminal.read(), kStart);
}

TEST(Progress, AsManyCharactersAsColumns) {
  EXPECT_EQ(fitted("a→b", 5), "a→b");
  EXPECT_EQ(fitted("a→b", 3), "a→b");
  EXPECT_EQ(fitted("a→b", 2), "a→");
  EXPECT_EQ(fitted("a→b", 1), "a");
  EXPECT_EQ(fitted("a→b", 0), "");
}

}  // namespace
}  // namespace weft::cli
