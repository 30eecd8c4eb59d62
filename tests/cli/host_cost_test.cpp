// A call allocates nothing by operator new on the host, for any number of different calls.
#include <gtest/gtest.h>

#include <vector>

#include "bench/every_operation.hpp"
#include "cli/counted_memory.hpp"
#include "support/cases.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

TEST(HostCost, ACallTakesNoMemory) {
  for (const int ranks : {1, 2}) {
    expect_all_well(run_world(ranks, cpu_config(), [](Communicator& communicator, int) {
      const auto device = cli::open_cpu_rank();
      const cli::EveryOperation operations(communicator, *device);
      EXPECT_GE(operations.calls().size(), 15u);
      for (const cli::SmallCall& call : operations.calls()) call.make(0);
      // The tag makes each call a new one for the flight recorder and for peers.
      for (std::uint32_t tag = 1; tag <= 100; ++tag) {
        for (const cli::SmallCall& call : operations.calls()) {
          const std::size_t before = taken_by_this_thread();
          call.make(tag);
          EXPECT_EQ(taken_by_this_thread() - before, 0u) << call.name;
        }
      }
    }));
  }
}

// The counter that the test above uses works.
TEST(HostCost, MemoryIsCounted) {
  const std::size_t before = taken_by_this_thread();
  const std::vector<int> some(100);
  EXPECT_EQ(some.size(), 100u);
  EXPECT_GE(taken_by_this_thread() - before, 1u);
}

}  // namespace
}  // namespace weft::test
