// The log for operators: levels by name, and words.
#include "base/log.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "fabric/fault_record.hpp"
#include "support/log_listener.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

TEST(Log, KnowsItsLevelsByName) {
  EXPECT_EQ(detail::log_level("trace"), spdlog::level::trace);
  EXPECT_EQ(detail::log_level("info"), spdlog::level::info);
  EXPECT_EQ(detail::log_level("off"), spdlog::level::off);
  for (const char* wrong : {"", "loud", "INFO ", "3"}) EXPECT_FALSE(detail::log_level(wrong).has_value()) << wrong;
}

// The log of a group's creation names the group's table.
TEST(Log, NamesTheTableOfEveryGroup) {
  auto& logger = detail::logger();
  const auto level = logger.level();
  logger.set_level(spdlog::level::info);
  const LogListener log;
  expect_all_well(run_world(3, cpu_config(), [](Communicator& communicator, int rank) {
    static_cast<void>(communicator.split(rank == 1 ? -1 : 4));
  }));
  logger.set_level(level);
  const std::string text = log.text();
  for (const int rank : {0, 1, 2})
    EXPECT_NE(text.find("rank " + std::to_string(rank) + " of 3: shared memory, 3 CPU ranks; tuned by CPU (measured)"),
              std::string::npos)
        << text;
  EXPECT_NE(text.find("rank 0 is 0 of 2 in group 1; tuned by CPU (measured)"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 2 is 1 of 2 in group 1; tuned by CPU (measured)"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 1 is"), std::string::npos) << text;
}

// Without a deadline there is a warning, too.
TEST(Log, SaysWhenAWaitIsSlow) {
  EXPECT_EQ(detail::slow_wait_ns(10'000'000'000), 1'000'000'000u);
  EXPECT_EQ(detail::slow_wait_ns(0), 30'000'000'000u);
  EXPECT_EQ(detail::slow_wait_text(10s), "a tenth of the deadline");
  EXPECT_EQ(detail::slow_wait_text(0s), "30 s; there is no deadline");
}

}  // namespace
}  // namespace weft::test
