// A rank omits a norm, gives up, or makes two at once.
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <utility>

#include "support/norms.hpp"
#include "support/ranks.hpp"
#include "support/verdicts.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

// One rank never comes. The others name it in time, with every algorithm, in one piece and in several.
TEST(RmsNormFaults, AMissingRankIsNamed) {
  constexpr int ranks = 3, missing = 2;
  for (const auto& [algorithm, hidden] : {std::pair{Algorithm::one_shot, 256u},
                                          {Algorithm::two_shot, 256u},
                                          {Algorithm::one_shot, 1024u},
                                          {Algorithm::two_shot, 1024u}}) {
    Config config = hidden == 256 ? cpu_config() : smallest_buffers();
    config.deadline = short_deadline;
    auto communicators = Communicator::local(ranks, config);
    const Norm norm{.tokens = 4, .hidden = hidden, .algorithm = algorithm};
    const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
      run_on_cpu_rank(communicator, norm);
      if (rank != missing) run_on_cpu_rank(communicator, norm);
    });
    expect_missing_rank_named(endings, missing, "all_reduce_rms_norm bf16[4, " + std::to_string(hidden) + "]");
  }
}

TEST(RmsNormFaults, AbortEndsRanksThatWait) {
  constexpr int ranks = 3;
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    auto communicators = Communicator::local(ranks, cpu_config());
    const Norm norm{.tokens = 4, .hidden = 256, .algorithm = algorithm};
    std::latch called(ranks);
    std::jthread other([&] {
      called.wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      communicators[2].abort();
    });
    const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
      const std::string error = error_of([&] { run_on_cpu_rank(communicator, norm); });
      called.count_down();
      ensure(error.empty(), error);
      if (rank == 2) other.join();
      run_on_cpu_rank(communicator, norm);
    });
    for (const Ending& ending : endings) expect_fault(ending, {Errc::aborted}, test_name(algorithm));
  }
}

TEST(RmsNormFaults, TwoThreadsInOneGroupAreFound) {
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    auto communicators = Communicator::local(2, cpu_config(short_deadline));
    const Norm norm{.tokens = 4, .hidden = 256, .algorithm = algorithm};
    std::latch ended(2);
    const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
      if (rank == 1) {
        ended.wait();  // the first call of rank 0 is still running when its second begins
        run_on_cpu_rank(communicator, norm);
        return;
      }
      const auto errors = run_ranks(2, [&](int) { run_on_cpu_rank(communicator, norm); });
      ended.count_down(2);
      for (const std::string& error : errors) expect_says(error, "overlap");
      communicator.check();
    });
    expect_fault(endings[0], {Errc::overlap}, "the rank with two threads");
    expect_fault(endings[1], {Errc::peer_failed}, "its peer");
  }
}

}  // namespace
}  // namespace weft::test
