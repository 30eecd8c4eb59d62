// The log for operators: levels by name, and a warning before a wait becomes an error.
#include "base/log.hpp"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>
#include <thread>

#include "fabric/fault_record.hpp"
#include "support/cases.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

// Keeps everything that is logged during its lifetime.
class Listener {
 public:
  Listener() { detail::logger().sinks().push_back(sink_); }
  ~Listener() { detail::logger().sinks().pop_back(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  std::string text() const { return stream_.str(); }

 private:
  std::ostringstream stream_;
  std::shared_ptr<spdlog::sinks::ostream_sink_mt> sink_ = std::make_shared<spdlog::sinks::ostream_sink_mt>(stream_);
};

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
  const Listener listener;
  expect_all_well(run_world(3, cpu_config(), [](Communicator& communicator, int rank) {
    static_cast<void>(communicator.split(rank == 1 ? -1 : 4));
  }));
  logger.set_level(level);
  const std::string text = listener.text();
  for (const int rank : {0, 1, 2})
    EXPECT_NE(text.find("rank " + std::to_string(rank) + " of 3: shared memory, 3 CPU ranks; tuned by CPU (measured)"),
              std::string::npos)
        << text;
  EXPECT_NE(text.find("rank 0 is 0 of 2 in group 1; tuned by CPU (measured)"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 2 is 1 of 2 in group 1; tuned by CPU (measured)"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 1 is"), std::string::npos) << text;
}

// After a tenth of the deadline a warning names the call and the rank. A call in time causes none.
TEST(Log, WarnsOfAWaitThatGoesOn) {
  constexpr int ranks = 2, late = 1;
  const Prepared prepared = prepare({.count = 100}, ranks);
  auto communicators = Communicator::local(ranks, cpu_config(10s));
  const Listener listener;
  expect_all_well(run_world(communicators, [&](Communicator& communicator, int rank) {
    for (int call = 0; call < 3; ++call) {
      if (call == 1 && rank == late) std::this_thread::sleep_for(2500ms);
      run_on_cpu_rank(communicator, prepared, rank);
    }
  }));
  const std::string text = listener.text();
  EXPECT_NE(text.find("rank 0: call 2 has waited for rank 1"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 1: call"), std::string::npos) << text;
  EXPECT_EQ(text.find("has waited"), text.rfind("has waited")) << text;
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
