// Ranks that meet at a TCP port or by an id, and strangers at that port.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>

#include "rendezvous/bootstrap.hpp"
#include "rendezvous/socket.hpp"
#include "rendezvous/tcp.hpp"
#include "rendezvous/unique_id.hpp"
#include "support/ranks.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

using namespace std::chrono_literals;
using namespace test;

// Longer than any step here: a meeting that ends by this deadline has failed.
constexpr auto patience = 15s;

const Key test_key = key_of("the secret of these tests");

// A listener whose port the test knows.
struct Port {
  UniqueFd listener = listen_tcp({.host = "127.0.0.1"});
  std::uint16_t number = local_address(listener.get()).port();

  TcpArgs args(int rank, int world_size, std::chrono::nanoseconds deadline) {
    return {.host = "127.0.0.1",
            .port = number,
            .job = 42,
            .key = test_key,
            .rank = rank,
            .world_size = world_size,
            .deadline = deadline,
            .listener = rank == 0 ? std::move(listener) : UniqueFd()};
  }
  // Returns once so many connections wait to be accepted.
  void wait_for_callers(unsigned count) const {
    tcp_info info{};
    socklen_t length = sizeof info;
    while (::getsockopt(listener.get(), IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_unacked < count) {
      ::poll(nullptr, 0, 1);
    }
  }
  UniqueFd connect() const {
    std::string why;
    UniqueFd socket = try_connect(resolve("127.0.0.1", number, why).at(0), Deadline(long_deadline), why);
    EXPECT_TRUE(socket) << why;
    return socket;
  }
};

void send_text(const UniqueFd& socket, const std::string& text) {
  EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

class IdWorld : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, IdWorld, testing::Range(1, 9));

TEST_P(IdWorld, RanksMeet) {
  const int size = GetParam();
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const UniqueId id = UniqueId::create(host);
    const auto errors = run_ranks(size, [&](int rank) {
      if (rank == 0) ::poll(nullptr, 0, 20);  // the others come first, and wait
      const auto mine = make_id_bootstrap(id, rank, size, long_deadline);
      const std::vector<int> ranks = mine->all_gather_value("ranks", rank);
      for (int r = 0; r < size; ++r) EXPECT_EQ(ranks[static_cast<std::size_t>(r)], r);
    });
    expect_no_errors(errors);
  }
}

TEST(Id, ServesOneMeetingOfItsOwnProcess) {
  const UniqueId id = UniqueId::create();
  make_id_bootstrap(id, 0, 1, long_deadline);
  expect_says(error_of([&] { make_id_bootstrap(id, 0, 1, long_deadline); }),
              "rank 0 must be in the process that made the id");
}

std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// An unused id keeps its listener, but not for ever. The newest ids stay valid.
TEST(Id, ThatAreNotUsedAreBounded) {
  const std::size_t before = descriptors();
  const UniqueId oldest = UniqueId::create();
  std::vector<UniqueId> ids;
  for (std::size_t i = 0; i < 2 * most_unused_ids; ++i) ids.push_back(UniqueId::create());
  EXPECT_LE(descriptors(), before + most_unused_ids);
  expect_code([&] { make_id_bootstrap(oldest, 0, 1, long_deadline); }, Errc::rendezvous, "keeps the 128 newest");
  make_id_bootstrap(ids.back(), 0, 1, long_deadline);
  make_id_bootstrap(ids[ids.size() - most_unused_ids], 0, 1, long_deadline);
  for (const UniqueId& id : ids) discard(id);
  discard(UniqueId{});
  EXPECT_LE(descriptors(), before);
}

TEST(Id, HasAKeyOfItsOwn) {
  const UniqueId one = UniqueId::create(), other = UniqueId::create();
  EXPECT_FALSE(std::equal(one.bytes.begin() + 8, one.bytes.begin() + 40, other.bytes.begin() + 8));
  UniqueId guessed = one;  // differs in one bit of the key
  guessed.bytes[20] ^= std::byte{1};
  const auto errors = run_ranks(
      2, [&](int rank) { make_id_bootstrap(rank == 0 ? one : guessed, rank, 2, rank == 0 ? 1s : long_deadline); });
  expect_says(errors[0], "rank 1 did not come within 1 s; a rank 1 of another job (other id) was turned away");
  expect_says(errors[1], "belongs to another job");
}

TEST(Id, RefusesWhatIsNoId) {
  expect_says(error_of([] { make_id_bootstrap(UniqueId{}, 0, 1, long_deadline); }), "no id of this version");
  expect_says(error_of([] { UniqueId::create(std::string(200, 'x')); }), "200 characters");
  expect_says(error_of([] { UniqueId::create("no.such.host.invalid"); }), "no.such.host.invalid");
}

TEST(Id, RefusesRanksOutsideTheWorld) {
  const UniqueId id = UniqueId::create();
  expect_says(error_of([&] { make_id_bootstrap(id, 2, 2, long_deadline); }), "rank: 2 is not between 0 and 1");
  expect_says(error_of([&] { make_id_bootstrap(id, -1, 2, long_deadline); }), "rank: -1 is not between 0 and 1");
  expect_says(error_of([&] { make_id_bootstrap(id, 1, 0, long_deadline); }), "world_size: 0 is not between 1 and 72");
}

// Another communicator often follows at the same port, and some ranks are faster than rank 0.
TEST(Tcp, OneMeetingAfterTheOtherAtOnePort) {
  const std::uint16_t port = Port().number;
  for (int world = 0; world < 2; ++world) {
    const auto errors = run_ranks(4, [&](int rank) {
      for (int round = 0; round < 20; ++round) {
        const auto mine = make_tcp_bootstrap({.host = "127.0.0.1",
                                              .port = port,
                                              .key = test_key,
                                              .rank = rank,
                                              .world_size = 4,
                                              .deadline = long_deadline});
        EXPECT_EQ(mine->broadcast_value("round", 3, round), round);
      }
    });
    expect_no_errors(errors);
  }
}

// A rank that is early for the second meeting is still in the first listener's queue when that listener closes.
TEST(Tcp, AConnectionThatClosesWithoutAWordIsTriedAgain) {
  Port port;
  const auto errors = run_ranks(2, [&](int rank) {
    if (rank == 0) {
      port.wait_for_callers(1);
      accept_connection(port.listener.get()).reset();
    }
    make_tcp_bootstrap({.host = "127.0.0.1",
                        .port = port.number,
                        .key = test_key,
                        .rank = rank,
                        .world_size = 2,
                        .deadline = long_deadline,
                        .listener = rank == 0 ? std::move(port.listener) : UniqueFd()});
  });
  expect_no_errors(errors);
}

TEST(Tcp, MissingRanksAreNamedOnAllOthers) {
  Port port;
  const auto errors = run_ranks(3, [&](int rank) { make_tcp_bootstrap(port.args(rank, 5, 2s)); });
  EXPECT_EQ(errors, std::vector<std::string>(3, "rendezvous 'join': ranks 3, 4 did not come within 2 s"));
}

TEST(Tcp, NobodyListens) {
  const std::uint16_t free_port = Port().number;  // already closed
  const auto error = error_of([&] {
    make_tcp_bootstrap(
        {.host = "127.0.0.1", .port = free_port, .key = test_key, .rank = 1, .world_size = 2, .deadline = 100ms});
  });
  expect_says(error, "rank 0 did not come within 0.1 s");
  expect_says(error, "Connection refused");
}

TEST(Tcp, UnknownHost) {
  const auto error = error_of([&] {
    make_tcp_bootstrap(
        {.host = "no.such.host.invalid", .port = 1, .key = test_key, .rank = 1, .world_size = 2, .deadline = 100ms});
  });
  expect_says(error, "no address for 'no.such.host.invalid'");
}

TEST(Tcp, PortInUse) {
  const Port port;
  const auto error = error_of([&] {
    make_tcp_bootstrap(
        {.host = "127.0.0.1", .port = port.number, .key = test_key, .world_size = 2, .deadline = long_deadline});
  });
  expect_says(error, "port " + std::to_string(port.number) + ": Address already in use");
}

// Strangers of every kind come before, between and after the ranks.
TEST(Tcp, StrangersDoNoHarm) {
  Port port;
  std::vector<UniqueFd> strangers;
  const auto visit = [&](const std::string& text) { send_text(strangers.emplace_back(port.connect()), text); };
  for (int i = 0; i < 100; ++i) visit("");  // silent, and they stay
  visit("GET / HTTP/1.1\r\nHost: weft\r\n\r\n");
  visit("\x01");
  visit(std::string(100'000, '\0'));
  visit("");
  strangers.pop_back();  // one leaves
  const auto errors = run_ranks(3, [&](int rank) {
    const auto mine = make_tcp_bootstrap(port.args(rank, 3, long_deadline));
    EXPECT_EQ(mine->broadcast_value("value", 2, rank), 2);
  });
  expect_no_errors(errors);
}

TEST(Tcp, AnotherJobIsTurnedAwayAndTheMeetingGoesOn) {
  Port port;
  std::atomic<bool> turned_away = false;
  const auto errors = run_ranks(3, [&](int rank) {
    TcpArgs args = port.args(std::min(rank, 1), 2, patience);
    if (rank == 2) args.job = 7;
    if (rank == 1) {
      while (!turned_away) ::poll(nullptr, 0, 1);
    }
    const auto set = std::shared_ptr<void>(nullptr, [&](void*) { turned_away = turned_away || rank == 2; });
    make_tcp_bootstrap(std::move(args));
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
  expect_says(errors[2], "belongs to another job");
}

TEST(Tcp, AnotherJobIsMentionedWhenTheOwnRankDoesNotCome) {
  Port port;
  const auto errors = run_ranks(2, [&](int rank) {
    TcpArgs args = port.args(rank, 2, 500ms);
    if (rank == 1) args.job = 7;
    make_tcp_bootstrap(std::move(args));
  });
  expect_says(errors[0], "rank 1 did not come within 0.5 s; a rank 1 of another job");
  expect_says(errors[1], "belongs to another job");
}

TEST(Tcp, WorldSizesThatDiffer) {
  Port port;
  const auto errors = run_ranks(3, [&](int rank) {
    if (rank == 0) port.wait_for_callers(2);
    make_tcp_bootstrap(port.args(rank, rank == 1 ? 8 : 4, patience));
  });
  expect_all_say(errors, "ranks disagree about the world size: rank 0 says 4, rank 1 says 8");
}

TEST(Tcp, TwoProcessesOfOneRank) {
  Port port;
  const auto errors = run_ranks(3, [&](int rank) {
    if (rank == 0) port.wait_for_callers(2);
    make_tcp_bootstrap(port.args(std::min(rank, 1), 4, patience));
  });
  expect_all_say(errors, "two processes say they are rank 1");
}

TEST(Tcp, ARankThatLeavesWhileOthersAreAwaited) {
  Port port;
  const auto errors = run_ranks(2, [&](int rank) {
    // Rank 1 joins and then gives up, while rank 0 would wait long for rank 2.
    make_tcp_bootstrap(
        port.args(rank, 3, rank == 1 ? std::chrono::nanoseconds(2s) : std::chrono::nanoseconds(patience)));
  });
  EXPECT_EQ(errors, std::vector<std::string>(2, "rendezvous 'join': rank 2 did not come within 2 s"));
}

// Another program listens in rank 0's place.
class OtherProgram : public testing::Test {
 protected:
  // Plays that program while rank 1 of 2 tries to join. Returns the rank's error.
  std::string join_it(const std::function<void(const UniqueFd&)>& answer, std::chrono::nanoseconds deadline) {
    Port port;
    std::string error;
    std::thread rank([&] { error = error_of([&] { make_tcp_bootstrap(port.args(1, 2, deadline)); }); });
    pollfd entry{.fd = port.listener.get(), .events = POLLIN, .revents = 0};
    ::poll(&entry, 1, -1);
    const UniqueFd socket = accept_connection(port.listener.get());
    answer(socket);
    rank.join();
    return error;
  }
};

TEST_F(OtherProgram, Speaks) {
  for (const std::string banner : {"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n and more"}) {
    expect_says(join_it([&](const UniqueFd& socket) { send_text(socket, banner); }, for_ever), "another program");
  }
}

TEST_F(OtherProgram, IsSilent) {
  const auto error = join_it([](const UniqueFd&) {}, 200ms);
  expect_says(error, "rank 0 did not come within 0.2 s");
  expect_says(error, "accepts connections and does not answer");
}

}  // namespace
}  // namespace weft::detail
