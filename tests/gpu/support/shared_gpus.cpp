// Under compute-sanitizer, kernels of one GPU were seen to wait for each other, and so did the ranks that share it.
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <system_error>

#include "gpu/support/gpu_world.hpp"

namespace weft::test {
namespace {

// Suites whose worlds have three or four ranks, whatever their parameters.
constexpr std::string_view kOfMoreThanTwo[] = {"GpuFaults",        "GpuRejection",    "GpuArguments",
                                               "GpuRmsNormFaults", "GpuGatherFaults", "GpuGatherAborts",
                                               "GpuMoePadding",    "GpuMoeLife",      "GpuGatheredCountsFaults"};

// The ranks of a test if they are its first parameter, as in "3" or "(3, true)"; else 0.
int ranks_of(const testing::TestInfo& test) {
  std::string_view suite = test.test_suite_name();
  suite.remove_prefix(suite.find('/') + 1);  // removes nothing if there is no prefix
  if (std::ranges::find(kOfMoreThanTwo, suite) != std::end(kOfMoreThanTwo)) return 3;
  std::string_view text = test.value_param() == nullptr ? "" : test.value_param();
  const std::string_view name = test.name();  // of a layout, ".../Tp4Dp2": Tp4 has four ranks
  if (const auto layout = name.rfind("/Tp"); layout != name.npos) text = name.substr(layout + 3);
  if (text.starts_with('(')) text.remove_prefix(1);
  int ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  const bool whole = end == text.data() + text.size() || *end == ',' || *end == 'D';
  return error == std::errc() && whole ? ranks : 0;
}

// Skips tests of more ranks than there are GPUs.
class SharedGpus final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    const int ranks = ranks_of(test);
    if (slowness() == 1 || ranks <= gpu_count()) return;
    GTEST_SKIP() << ranks << " ranks on " << gpu_count() << " GPUs: under compute-sanitizer no two share one";
  }
};

// GoogleTest owns the listener and deletes it.
const bool listens = (testing::UnitTest::GetInstance()->listeners().Append(new SharedGpus), true);

}  // namespace
}  // namespace weft::test
