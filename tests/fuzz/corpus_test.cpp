// Repeats every file of the corpus in the compiler's and the sanitizers' builds of all tests: bugs that a fuzzer found
// stay fixed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "fuzz/targets.hpp"

namespace weft::fuzz {
namespace {

namespace fs = std::filesystem;

// The corpus of the source tree of this build, or of the current folder if the executable was built elsewhere.
fs::path corpus() {
  return fs::exists(WEFT_CORPUS) ? fs::path(WEFT_CORPUS) : fs::path("tests/fuzz/corpus");
}

class Corpus : public testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(All, Corpus, testing::ValuesIn(targets),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Corpus, IsSurvived) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(corpus() / GetParam().name)) {
    SCOPED_TRACE(entry.path());
    std::ifstream in(entry.path(), std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    const std::string bytes = text.str();
    EXPECT_NO_THROW(GetParam().run(std::as_bytes(std::span(bytes))));
    ++files;
  }
  EXPECT_GE(files, 5);
}

}  // namespace
}  // namespace weft::fuzz
