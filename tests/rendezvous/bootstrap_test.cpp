// Meetings of ranks that are threads.
#include "rendezvous/bootstrap.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "support/ranks.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

using namespace std::chrono_literals;
using namespace test;

Bytes pattern(int rank, std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(rank));
  return bytes;
}

class ThreadWorld : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadWorld, testing::Range(1, 9));

TEST_P(ThreadWorld, GathersPartsOfAnyLengthInRankOrder) {
  const int size = GetParam();
  auto bootstraps = make_thread_bootstraps(size, long_deadline);
  const auto errors = run_ranks(size, [&](int rank) {
    Bootstrap& mine = *bootstraps[static_cast<std::size_t>(rank)];
    ASSERT_EQ(mine.rank(), rank);
    ASSERT_EQ(mine.size(), size);
    for (std::size_t round = 0; round < 20; ++round) {
      const auto length = [&](int of) { return (static_cast<std::size_t>(of) + round) % 5 * 1000; };
      const std::vector<Bytes> parts = mine.all_gather("parts", pattern(rank, length(rank)));
      ASSERT_EQ(parts.size(), static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r) EXPECT_EQ(parts[static_cast<std::size_t>(r)], pattern(r, length(r)));
    }
  });
  expect_no_errors(errors);
}

TEST_P(ThreadWorld, ValuesAndBroadcasts) {
  const int size = GetParam(), last = size - 1;
  auto bootstraps = make_thread_bootstraps(size, long_deadline);
  const auto errors = run_ranks(size, [&](int rank) {
    Bootstrap& mine = *bootstraps[static_cast<std::size_t>(rank)];
    mine.barrier("start");
    const std::vector<int> values = mine.all_gather_value("values", rank * 11);
    for (int r = 0; r < size; ++r) EXPECT_EQ(values[static_cast<std::size_t>(r)], r * 11);
    EXPECT_EQ(mine.broadcast_value("value", last, rank * 3), last * 3);
    EXPECT_EQ(mine.broadcast("bytes", last, pattern(rank, 100 + static_cast<std::size_t>(rank))),
              pattern(last, 100 + static_cast<std::size_t>(last)));
  });
  expect_no_errors(errors);
}

// Both directions exceed the buffers of sockets, so a side that only writes would block the other for ever.
TEST(Bootstrap, PartsLargerThanSocketBuffers) {
  auto bootstraps = make_thread_bootstraps(4, long_deadline);
  const std::size_t size = 3 << 20;
  const auto errors = run_ranks(4, [&](int rank) {
    const auto parts = bootstraps[static_cast<std::size_t>(rank)]->all_gather("large", pattern(rank, size));
    for (int r = 0; r < 4; ++r) EXPECT_EQ(parts[static_cast<std::size_t>(r)], pattern(r, size));
  });
  expect_no_errors(errors);
}

TEST(Bootstrap, MissingRanksAreNamedOnAllOthers) {
  for (const std::vector<int>& missing : {std::vector{0}, std::vector{2}, std::vector{1, 3}}) {
    auto bootstraps = make_thread_bootstraps(4, 500ms);
    const auto is_missing = [&](int rank) { return std::find(missing.begin(), missing.end(), rank) != missing.end(); };
    const auto errors = run_ranks(4, [&](int rank) {
      if (!is_missing(rank)) bootstraps[static_cast<std::size_t>(rank)]->barrier("window");
    });
    const std::string names = missing.size() == 1 ? "rank " + std::to_string(missing[0]) : "ranks 1, 3";
    for (int rank = 0; rank < 4; ++rank) {
      if (is_missing(rank)) continue;
      EXPECT_EQ(errors[static_cast<std::size_t>(rank)], "rendezvous 'window': " + names + " did not come within 0.5 s");
    }
  }
}

TEST(Bootstrap, WhoComesTooLateHearsWhatHappened) {
  auto bootstraps = make_thread_bootstraps(3, 100ms);
  const auto errors = run_ranks(3, [&](int rank) {
    if (rank != 2) bootstraps[static_cast<std::size_t>(rank)]->barrier("window");
  });
  expect_says(error_of([&] { bootstraps[2]->barrier("window"); }), "rank 2 did not come within 0.1 s");
  // Later calls fail with the same reason.
  for (auto& bootstrap : bootstraps) {
    const std::string error = error_of([&] { bootstrap->barrier("next"); });
    expect_says(error, "'next'");
    expect_says(error, "rank 2 did not come within 0.1 s");
  }
}

TEST(Bootstrap, DifferentStepsAreNamed) {
  auto bootstraps = make_thread_bootstraps(4, for_ever);
  const auto errors = run_ranks(
      4, [&](int rank) { bootstraps[static_cast<std::size_t>(rank)]->barrier(rank == 3 ? "acquire" : "split"); });
  EXPECT_EQ(errors,
            std::vector<std::string>(4, "ranks met at different steps: rank 0 at 'split', rank 3 at 'acquire'"));
}

TEST(Bootstrap, ValuesOfDifferentSizesAreRefused) {
  auto bootstraps = make_thread_bootstraps(2, long_deadline);
  const auto errors = run_ranks(2, [&](int rank) {
    if (rank == 0) bootstraps[0]->all_gather_value("config", std::uint64_t{1});
    if (rank == 1) bootstraps[1]->all_gather_value("config", std::uint32_t{1});
  });
  expect_says(errors[0], "'config': rank 1 sent 4 bytes instead of 8");
  expect_says(errors[1], "'config': rank 0 sent 8 bytes instead of 4");
}

// There is no deadline: only a disconnect that is noticed at once lets the others return.
TEST(Bootstrap, DisconnectEndsTheMeetingOnAllRanks) {
  for (int leaver = 0; leaver < 4; ++leaver) {
    auto bootstraps = make_thread_bootstraps(4, for_ever);
    const auto errors = run_ranks(4, [&](int rank) {
      if (rank == leaver) return bootstraps[static_cast<std::size_t>(rank)].reset();
      bootstraps[static_cast<std::size_t>(rank)]->barrier("split");
    });
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == leaver) continue;
      expect_says(errors[static_cast<std::size_t>(rank)], "'split': rank " + std::to_string(leaver) + " disconnected");
    }
  }
}

// A rank that contributes and then leaves counts as gone.
TEST(Bootstrap, DisconnectAfterContributing) {
  auto bootstraps = make_thread_bootstraps(3, 200ms);
  const auto gave_up = error_of([&] { bootstraps[1]->barrier("split"); });  // nobody else is there
  expect_says(gave_up, "rank 0 did not come within 0.2 s");
  bootstraps[1].reset();
  const auto errors = run_ranks(3, [&](int rank) {
    if (rank != 1) bootstraps[static_cast<std::size_t>(rank)]->barrier("split");
  });
  EXPECT_EQ(errors[0], gave_up);
  EXPECT_EQ(errors[2], gave_up);
}

TEST(Bootstrap, AgreementOnFailureReachesEverybody) {
  auto bootstraps = make_thread_bootstraps(4, long_deadline);
  std::vector<Errc> codes(4, Errc::ok);
  const auto errors = run_ranks(4, [&](int rank) {
    try {
      bootstraps[static_cast<std::size_t>(rank)]->agree_on("allocation", [&] {
        if (rank >= 2) throw Error(Errc::system, "no memory on " + std::to_string(rank));
      });
    } catch (const Error& e) {
      codes[static_cast<std::size_t>(rank)] = e.code();
      throw;
    }
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"allocation: failed on rank 2: no memory on 2",
                                              "allocation: failed on rank 2: no memory on 2", "no memory on 2",
                                              "no memory on 3"}));
  EXPECT_EQ(codes, (std::vector{Errc::rendezvous, Errc::rendezvous, Errc::system, Errc::system}));
  // A failed step leaves the meeting intact.
  expect_no_errors(run_ranks(4, [&](int rank) { bootstraps[static_cast<std::size_t>(rank)]->barrier("next"); }));
}

TEST(Bootstrap, AFailureWithoutAMessageIsAFailure) {
  auto bootstraps = make_thread_bootstraps(2, long_deadline);
  const auto errors = run_ranks(2, [&](int rank) {
    bootstraps[static_cast<std::size_t>(rank)]->agree_on("step", [&] {
      if (rank == 1) throw std::runtime_error("");
    });
  });
  EXPECT_EQ(errors[0], "step: failed on rank 1: ");
}

TEST_P(ThreadWorld, SharesADescriptor) {
  const int size = GetParam(), root = size / 2;
  auto bootstraps = make_thread_bootstraps(size, long_deadline);
  const auto errors = run_ranks(size, [&](int rank) {
    int ends[2] = {-1, -1};
    if (rank == root) {
      ASSERT_EQ(::pipe(ends), 0);
    }
    UniqueFd reader(ends[0]), writer(ends[1]);
    Bootstrap& mine = *bootstraps[static_cast<std::size_t>(rank)];
    const UniqueFd shared = mine.share_fd("pipe", root, writer.get());
    ASSERT_NE(shared.get(), writer.get());
    EXPECT_NE(::fcntl(shared.get(), F_GETFD) & FD_CLOEXEC, 0);
    const char byte = static_cast<char>(rank);
    EXPECT_EQ(::write(shared.get(), &byte, 1), 1);
    mine.barrier("written");
    if (rank != root) return;
    int sum = 0;
    for (int r = 0; r < size; ++r) {
      char read = 0;
      EXPECT_EQ(::read(reader.get(), &read, 1), 1);
      sum += read;
    }
    EXPECT_EQ(sum, size * (size - 1) / 2);
  });
  expect_no_errors(errors);
}

TEST(Bootstrap, ABadDescriptorFailsEverywhere) {
  auto bootstraps = make_thread_bootstraps(2, long_deadline);
  const auto errors =
      run_ranks(2, [&](int rank) { bootstraps[static_cast<std::size_t>(rank)]->share_fd("memory", 0, -1); });
  expect_all_say(errors, "Bad file descriptor");
}

TEST(Bootstrap, AWorldOfNoneIsRefused) {
  expect_says(error_of([] { make_thread_bootstraps(0, long_deadline); }), "world_size: 0 is not between 1 and 72");
}

}  // namespace
}  // namespace weft::detail
