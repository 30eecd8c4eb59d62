// Only ranks that prove that they know the secret may take part in a meeting.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <cstring>
#include <thread>

#include "rendezvous/join.hpp"
#include "rendezvous/tcp.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/stranger.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

using namespace std::chrono_literals;
using namespace test;

const Key secret = key_of("the secret of these tests"), another = key_of("another secret");

// A world of two at a port of its own. Rank 0 is already listening.
struct World {
  UniqueFd listener = listen_tcp({.host = "127.0.0.1"});
  std::uint16_t port = local_address(listener.get()).port();

  TcpArgs args(int rank, const Key& key = secret, std::chrono::nanoseconds deadline = long_deadline) {
    return {.host = "127.0.0.1",
            .port = port,
            .job = 42,
            .key = key,
            .key_source = "this test",
            .rank = rank,
            .world_size = 2,
            .deadline = deadline,
            .listener = rank == 0 ? std::move(listener) : UniqueFd()};
  }
};

const Hello hello{.job = 42, .rank = 1, .world_size = 2, .nonce = {}, .name = {}, .build = this_build()};

Nonce nonce_of(const Frame& frame) {
  Nonce nonce;
  ensure(frame.kind == FrameKind::challenge && frame.body.size() == nonce.size(), "no challenge");
  std::memcpy(nonce.data(), frame.body.data(), nonce.size());
  return nonce;
}

// Rank 0 meets rank 1 although `visit` has connected before.
void expect_no_harm(const std::function<void(std::uint16_t port)>& visit) {
  World world;
  std::string error;
  std::jthread rank_0([&] { error = error_of([&] { make_tcp_bootstrap(world.args(0)); }); });
  visit(world.port);
  make_tcp_bootstrap(world.args(1));
  rank_0.join();
  EXPECT_EQ(error, "");
}

TEST(Strangers, WithAnotherSecretAreTurnedAwayAndTheMeetingGoesOn) {
  expect_no_harm([](std::uint16_t port) {
    const std::string error = error_of([&] {
      make_tcp_bootstrap({.host = "127.0.0.1",
                          .port = port,
                          .job = 42,
                          .key = another,
                          .key_source = "WEFT_SECRET",
                          .rank = 1,
                          .world_size = 2});
    });
    EXPECT_EQ(error,
              "rank 0 at this port knows another secret (WEFT_SECRET differs?); rank 1 has its own from WEFT_SECRET");
  });
}

// One frame must not suffice to join as rank 1, or to end the meeting by another world size or rank.
TEST(Strangers, WhoOnlySayHelloAreNotIn) {
  expect_no_harm([](std::uint16_t port) {
    for (const auto& [rank, world_size] : {std::pair(1, 2), std::pair(1, 8), std::pair(0, 2), std::pair(-1, 2)}) {
      Hello said = hello;
      said.rank = rank;
      said.world_size = world_size;
      Stranger stranger(port);
      stranger.say(FrameKind::hello, to_bytes(said));
      nonce_of(*stranger.hear());
      stranger.say(FrameKind::proof, Bytes(32));
      EXPECT_EQ(stranger.hear()->kind, FrameKind::failure);
      EXPECT_FALSE(stranger.hear());
    }
  });
}

TEST(Strangers, ProofsAreGoodForOneHelloAndOneChallenge) {
  expect_no_harm([](std::uint16_t port) {
    const auto try_it = [&](const std::function<Mac(const Nonce&)>& proof, const Hello& said) {
      Stranger stranger(port);
      stranger.say(FrameKind::hello, to_bytes(said));
      const Nonce nonce = nonce_of(*stranger.hear());
      stranger.say(FrameKind::proof, proof(nonce));
      const std::optional<Frame> answer = stranger.hear();
      ensure(answer.has_value(), "no answer");
      expect_says(answer->text, "knows another secret");
    };
    Hello as_rank_7 = hello;
    as_rank_7.rank = 7;
    try_it([](const Nonce&) { return proof_of(secret, Role::rank, to_bytes(hello), Nonce{}); }, hello);
    try_it([](const Nonce& nonce) { return proof_of(secret, Role::rank_0, to_bytes(hello), nonce); }, hello);
    try_it([](const Nonce& nonce) { return proof_of(secret, Role::rank, to_bytes(hello), nonce); }, as_rank_7);
    try_it([](const Nonce& nonce) { return proof_of(another, Role::rank, to_bytes(hello), nonce); }, hello);
  });
}

TEST(Strangers, AHelloThatIsNoneIsTurnedAway) {
  expect_no_harm([](std::uint16_t port) {
    Bytes long_name = to_bytes(hello), cut = to_bytes(hello);
    long_name[48] = std::byte{65};  // bytes of the name
    cut.pop_back();
    for (const Bytes& said : {Bytes{}, Bytes(56), long_name, cut}) {
      Stranger stranger(port);
      stranger.say(FrameKind::hello, said);
      const std::optional<Frame> answer = stranger.hear();
      if (said.size() == 56) {  // a hello of job 0, without a build
        expect_says(answer->text, "another job");
      } else {
        expect_says(answer->text, "another hello");
      }
    }
    for (const auto kind : {FrameKind::proof, FrameKind::contribution, FrameKind::failure, FrameKind{99}}) {
      Stranger stranger(port);
      stranger.say(kind, Bytes(32));
      expect_says(stranger.hear()->text, "expects another frame");
    }
    Stranger stranger(port);
    stranger.say(FrameKind::hello, Bytes(5000));
    expect_says(stranger.hear()->text, "a frame that claims 5000 bytes, allowed are 4096");
  });
}

// More than a second's worth of wrong hellos arrives, and the rank still gets in.
TEST(Strangers, AreCountedAndDoNotKeepARankOut) {
  expect_no_harm([](std::uint16_t port) {
    for (int i = 0; i < 300; ++i) {
      Stranger stranger(port);
      stranger.say(FrameKind::proof, Bytes(32));
    }
  });
  World world;
  std::string error;
  std::jthread rank_0([&] { error = error_of([&] { make_tcp_bootstrap(world.args(0, secret, 500ms)); }); });
  for (int i = 0; i < 3; ++i) {
    Stranger stranger(world.port);
    stranger.say(FrameKind::proof, Bytes(32));
    stranger.hear();
  }
  rank_0.join();
  expect_says(error, "; a stranger who does not say hello was turned away, and 2 before it");
}

// More silent connections than rank 0 keeps.
TEST(Strangers, WhoAreSilentMakeRoom) {
  std::vector<Stranger> silent;
  expect_no_harm([&](std::uint16_t port) {
    for (int i = 0; i < 200; ++i) silent.emplace_back(port);
  });
}

// An impostor listens in rank 0's place: it sees a proof, but cannot give one.
TEST(Strangers, WhoAnswerInRank0sPlaceAreRefused) {
  for (const bool guesses : {true, false}) {
    World world;
    std::string error;
    std::jthread rank_1(
        [&] { error = error_of([&] { make_tcp_bootstrap(world.args(1, secret, std::chrono::seconds(10))); }); });
    UniqueFd socket;
    while (!socket) socket = accept_connection(world.listener.get());
    Stranger impostor(std::move(socket));
    const Frame first = *impostor.hear();
    ASSERT_EQ(first.kind, FrameKind::hello);
    if (guesses) {
      impostor.say(FrameKind::challenge, Nonce{});
      const Frame proof = *impostor.hear();
      ASSERT_EQ(proof.kind, FrameKind::proof);
      EXPECT_TRUE(proves(proof.body, proof_of(secret, Role::rank, first.body, Nonce{})));
      impostor.say(FrameKind::welcome, proof.body);  // the rank's own proof
    } else {
      impostor.say(FrameKind::welcome, Bytes(32));
    }
    rank_1.join();
    expect_says(error, guesses ? "does not prove that it knows the secret; rank 1 has its own from this test"
                               : "is another program");
  }
}

TEST(Strangers, BuildsThatDifferAreNamed) {
  const auto listener = std::make_shared<UniqueFd>(listen_tcp({.host = "127.0.0.1"}));
  const SocketAddress address = local_address(listener->get());
  const auto errors = run_ranks(2, [&](int rank) {
    join({.key = secret,
          .build = rank == 0 ? "Weft 1" : "Weft 2",
          .rank = rank,
          .world_size = 2,
          .deadline = long_deadline,
          .desk = {.open = [listener] { return std::move(*listener); }},
          .addresses = [&](std::string&) { return std::vector{address}; },
          .place = "here"});
  });
  expect_all_say(errors, "ranks have different builds: rank 0 has Weft 1, rank 1 has Weft 2");
}

TEST(Strangers, ThereIsNoMeetingWithoutASecret) {
  World world;
  expect_code([&] { make_tcp_bootstrap(world.args(1, Key{})); }, Errc::rendezvous, "cannot meet without a secret");
}

// ------------------------------------------------------------------------------------------------------------
// listeners

TEST(Listeners, AreAtTheNamedAddressAlone) {
  for (const char* host : {"127.0.0.1", "127.0.0.2", "localhost"}) {
    const UniqueFd listener = listen_tcp({.host = host});
    EXPECT_TRUE(local_address(listener.get()).is_loopback()) << host;
  }
  const UniqueFd first = listen_tcp({.host = "127.0.0.1"});
  const std::uint16_t port = local_address(first.get()).port();
  EXPECT_TRUE(listen_tcp({.host = "127.0.0.2", .port = port}));  // a listener at all interfaces would forbid it
  for (const SocketAddress& address : interface_addresses(0)) {
    const UniqueFd listener = listen_tcp({.host = address.host()});
    EXPECT_EQ(local_address(listener.get()).host(), address.host());
  }
}

// If other hosts must reach the listener, it has no loopback address.
TEST(Listeners, OfWhichOtherHostsHearAreAtAnInterface) {
  const auto addresses = interface_addresses(0);
  if (addresses.size() == 1) {
    const UniqueFd listener = listen_tcp({.host = "127.0.1.1", .other_hosts = true});
    EXPECT_EQ(local_address(listener.get()).host(), addresses.front().host());
  } else {
    expect_code([] { listen_tcp({.host = "127.0.1.1", .other_hosts = true}); }, Errc::rendezvous,
                "'127.0.1.1' is a loopback address on its own host, where other hosts reach nobody");
  }
}

TEST(Listeners, APortThatIsTakenIsNamedWithItsOrigin) {
  const World world;
  expect_code(
      [&] {
        make_tcp_bootstrap({.host = "127.0.0.1",
                            .port = world.port,
                            .port_origin = "MASTER_PORT + 1000",
                            .key = secret,
                            .world_size = 2});
      },
      Errc::system,
      "cannot listen at 127.0.0.1 port " + std::to_string(world.port) +
          " (MASTER_PORT + 1000): Address already in use; another process is rank 0 of this job already");
}

// Rank 0 has no file descriptor left for strangers or for rank 1. It refuses them, and rank 1 tries again.
TEST(Listeners, WithoutAFileDescriptorRefuseAndGoOn) {
  Processes processes(1, [](const Child&) {
    World world;
    const UniqueFd probe(::dup(0));
    const rlim_t room = static_cast<rlim_t>(probe.get()) + 24;
    std::string error;
    std::jthread rank_0([&] { error = error_of([&] { make_tcp_bootstrap(world.args(0)); }); });
    std::vector<Stranger> strangers;
    for (int i = 0; i < 4; ++i) strangers.emplace_back(world.port);
    strangers[0].say(FrameKind::hello, to_bytes(hello));
    nonce_of(*strangers[0].hear());  // rank 0 has all descriptors that it needs, and waits
    rlimit limit{};
    ensure(::getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    limit.rlim_cur = room;
    ensure(::setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    // These sockets take all descriptors, so rank 0 cannot accept.
    std::vector<UniqueFd> sockets;
    for (;;) {
      UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (!socket) break;
      sockets.push_back(std::move(socket));
    }
    std::string why;
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(world.port);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (const UniqueFd& socket : sockets) {
      ensure(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&in), sizeof in) == 0, "connect");
    }
    // Some are refused by now; then there is room again.
    char byte = 0;
    ensure(::recv(sockets.front().get(), &byte, 1, 0) <= 0, "a stranger is still there");
    sockets.clear();
    make_tcp_bootstrap(world.args(1, secret, std::chrono::seconds(20)));  // fails if a bug has ended the meeting
    rank_0.join();
    ensure(error.empty(), error);
  });
  const Outcome outcome = processes.wait().front();
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.exit_code, 0);
}

}  // namespace
}  // namespace weft::detail
