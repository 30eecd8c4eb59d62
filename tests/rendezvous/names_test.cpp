// Processes create several communicators at a time at one port, and tell them apart by their names.
#include <gtest/gtest.h>
#include <poll.h>

#include "rendezvous/tcp.hpp"
#include "rendezvous/under_way.hpp"
#include "rendezvous/unique_id.hpp"
#include "support/free_port.hpp"
#include "support/ranks.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

using namespace std::chrono_literals;
using namespace test;

// Other tests may use the same port at the same time, but have other keys.
const Key own_key = random_key();

// All ranks are threads of this process; those of rank 0 share the port.
TcpArgs args(int port, const std::string& name, int rank, std::chrono::nanoseconds deadline = long_deadline) {
  return {.host = "127.0.0.1",
          .port = static_cast<std::uint16_t>(port),
          .job = 42,
          .key = own_key,
          .name = name,
          .rank = rank,
          .world_size = 2,
          .deadline = deadline};
}

// The ranks of the communicator `name` tell each other which name each means.
void expect_own_ranks(Bootstrap& mine, const std::string& name) {
  EXPECT_EQ(mine.all_gather_value("names", name[0]), std::vector<char>(2, name[0]));
}

TEST(Names, InAnyOrderInThreadsOfTheirOwn) {
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    const int port = free_port();
    const auto errors = run_ranks(4, [&](int thread) {
      const int rank = thread / 2;
      const std::string name = thread % 2 == rank ? "A" : "B";
      // Rank 0 creates A first and rank 1 creates B first, with a short delay between or none.
      if (thread % 2 == 1) ::poll(nullptr, 0, round % 4);
      const auto mine = make_tcp_bootstrap(args(port, name, rank, 15s));
      expect_own_ranks(*mine, name);
    });
    expect_no_errors(errors);
  }
}

TEST(Names, OneThatEndsDoesNotEndTheOthers) {
  const int port = free_port();
  const auto errors = run_ranks(4, [&](int thread) {
    const int rank = thread / 2;
    // A is complete at once. B's rank 1 comes when A has met three times.
    const std::string name = thread % 2 == 0 ? "A" : "B";
    for (int round = 0; name == "A" && round < 3; ++round)
      expect_own_ranks(*make_tcp_bootstrap(args(port, name, rank)), name);
    if (name == "B" && rank == 1) ::poll(nullptr, 0, 50);
    if (name == "B") expect_own_ranks(*make_tcp_bootstrap(args(port, name, rank)), name);
  });
  expect_no_errors(errors);
}

// Each waits for the other, and neither can know that it is in vain. At the deadline each message says what the rank
// did. Rank 0 ends first, and its closed door does not hide what it told rank 1.
TEST(Names, OneAfterTheOtherInAnotherOrderEndsByTheDeadline) {
  const int port = free_port();
  const auto errors = run_ranks(2, [&](int rank) {
    for (const std::string name : {rank == 0 ? "A" : "B", rank == 0 ? "B" : "A"}) {
      make_tcp_bootstrap(args(port, name, rank, rank == 0 ? 600ms : 1000ms));
    }
  });
  expect_says(errors[0],
              "rank 1 did not come within 0.6 s; a rank 1 that creates communicator 'B' was told to come back");
  expect_says(errors[1], "rank 0 did not come within 1 s");
  expect_says(errors[1], "rank 0 creates communicator 'A' there, and no 'B' yet; at last: Connection refused");
}

TEST(Names, OfOneMeetingAreTheSame) {
  const UniqueId id = UniqueId::create();
  const auto errors =
      run_ranks(2, [&](int rank) { make_id_bootstrap(id, rank, 2, long_deadline, rank == 0 ? "target" : "draft"); });
  expect_all_say(errors, "ranks disagree about Config::name: rank 0 says 'target', rank 1 says 'draft'");
}

TEST(Names, TwoOfOneNameAtATimeAreRefused) {
  const CreationUnderWay first("");
  const CreationUnderWay draft("draft");
  expect_code([] { CreationUnderWay second(""); }, Errc::invalid_argument, "Config::name: '' is that of another");
  expect_code([] { CreationUnderWay second("draft"); }, Errc::invalid_argument, "Config::name: 'draft'");
  { const CreationUnderWay target("target"); }
  { const CreationUnderWay target("target"); }
}

TEST(Names, ThatCannotBeAreRefusedBeforeAnythingIsSent) {
  const UniqueId id = UniqueId::create();
  for (const auto& [name, part] : std::vector<std::pair<std::string, std::string>>{
           {std::string(65, 'x'), "of 65 bytes is not of at most 64 bytes"},
           {"a\nb", "Config::name: 'a?b' is not free of control characters"}}) {
    expect_code([&, name = name] { make_id_bootstrap(id, 0, 2, long_deadline, name); }, Errc::invalid_argument, part);
    expect_code([&, name = name] { make_tcp_bootstrap(args(1, name, 0)); }, Errc::invalid_argument, part);
  }
  make_id_bootstrap(id, 0, 1, long_deadline, std::string(64, 'x'));  // the id is still valid
}

}  // namespace
}  // namespace weft::detail
