// The number that a call has in faults.
#include <gtest/gtest.h>

#include "support/cases.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr auto short_deadline = kSanitized ? 1500ms : 250ms;

// A call whose result nobody looks at.
void call(const Group& group, std::uint32_t tag) {
  Tensors tensors({.count = 60, .tag = tag}, input_of({.count = 60}, group.rank()));
  all_reduce(group,
             arguments({.count = 60, .tag = tag}, tensors.input.content().data(), tensors.output.content().data()));
}

// Epoch 0 is a number like any other, not a default.
TEST(FirstEpoch, IsTheNumberOfTheFirstCall) {
  for (const std::uint32_t first : {0u, 1u, 7u, 0xffffffffu}) {
    Config config = cpu_config(short_deadline);
    config.first_epoch = first;
    for (const bool in_group : {false, true}) {
      const auto endings = run_world(2, config, [&](Communicator& communicator, int rank) {
        const Group group = in_group ? communicator.split(0) : communicator.world();
        call(group, static_cast<std::uint32_t>(rank));
      });
      int mismatches = 0;
      for (const Ending& ending : endings) {
        ASSERT_TRUE(ending.error) << ending.what;
        EXPECT_EQ(ending.error->fault().epoch_wanted, first) << ending.what;
        mismatches += ending.error->code() == Errc::mismatch;
      }
      EXPECT_GE(mismatches, 1);
    }
  }
}

TEST(FirstEpoch, GoesOnOverReleaseAndAcquire) {
  Config config = cpu_config(short_deadline);
  config.first_epoch = 0;
  const auto endings = run_world(2, config, [](Communicator& communicator, int rank) {
    communicator.release();
    communicator.acquire();
    call(communicator, 3);
    communicator.release();
    communicator.acquire();
    call(communicator, static_cast<std::uint32_t>(rank));
  });
  for (const Ending& ending : endings) {
    ASSERT_TRUE(ending.error) << ending.what;
    EXPECT_EQ(ending.error->fault().epoch_wanted, 1u) << ending.what;
  }
}

}  // namespace
}  // namespace weft::test
