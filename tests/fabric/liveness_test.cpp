// Dead processes are detected without their help.
#include "fabric/liveness.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "rendezvous/process_identity.hpp"
#include "rendezvous/unique_id.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"

namespace weft::detail {
namespace {

using test::Child;
using test::long_deadline;
using test::Processes;

class Death : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Signals, Death, testing::Values(SIGKILL, SIGTERM, SIGSEGV));

// The test reaps no child before the end, so dead processes stay zombies.
TEST_P(Death, IsSeenByAllOthers) {
  const UniqueId id = UniqueId::create();
  Processes processes(4, [&](const Child& self) {
    ::signal(SIGSEGV, SIG_DFL);  // sanitizers install a handler
    const auto bootstrap = make_id_bootstrap(id, self.rank(), 4, long_deadline);
    const Liveness liveness = Liveness::create(*bootstrap);
    if (liveness.dead_peer()) throw std::runtime_error("a living peer is said to be dead");
    bootstrap->barrier("all have looked");
    self.say("ready");
    if (self.rank() == 2) ::pause();
    std::optional<int> dead;
    for (int look = 0; look < 100'000 && !(dead = liveness.dead_peer()); ++look) ::usleep(100);
    if (!dead) throw std::runtime_error("nobody is said to be dead");
    self.say(" dead: " + std::to_string(*dead));
    ::pause();  // no other rank leaves before all have seen the first death
  });
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(processes.wait_until_said(rank, "ready"));
  processes.signal(2, GetParam());
  for (const int rank : {0, 1, 3}) EXPECT_TRUE(processes.wait_until_said(rank, "dead: 2"));
  for (const int rank : {0, 1, 3}) processes.signal(rank, SIGKILL);
  EXPECT_EQ(processes.wait()[2].signal, GetParam());
}

TEST(Liveness, ThreadsOfOneProcessAreNeverDead) {
  auto bootstraps = make_thread_bootstraps(3, long_deadline);
  const auto errors = test::run_ranks(3, [&](int rank) {
    const Liveness liveness = Liveness::create(*bootstraps[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(liveness.dead_peer(), std::nullopt);
    for (int peer = 0; peer < 3; ++peer) EXPECT_EQ(liveness.unwatched_reason(peer), "");
  });
  test::expect_no_errors(errors);
}

// A world in which rank 1 claims to run elsewhere.
class Elsewhere final : public Bootstrap {
 public:
  Elsewhere(Bootstrap& real, void (*move)(ProcessIdentity&)) : real_(real), move_(move) {}
  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  std::chrono::nanoseconds deadline() const override { return real_.deadline(); }
  std::string address() const override { return real_.address(); }
  // Ranks find out where they are by exchanges that begin with the process's identity.
  std::vector<Bytes> all_gather(std::string_view what, std::span<const std::byte> mine) override {
    Bytes sent(mine.begin(), mine.end());
    if (rank() == 1 && sent.size() >= sizeof(ProcessIdentity)) {
      ProcessIdentity identity;
      std::memcpy(&identity, sent.data(), sizeof identity);
      move_(identity);
      std::memcpy(sent.data(), &identity, sizeof identity);
    }
    return real_.all_gather(what, sent);
  }

 private:
  Bootstrap& real_;
  void (*move_)(ProcessIdentity&);
};

std::vector<std::string> run_elsewhere(void (*move)(ProcessIdentity&), const std::function<void(Bootstrap&)>& body) {
  auto bootstraps = make_thread_bootstraps(2, long_deadline);
  return test::run_ranks(2, [&](int rank) {
    Elsewhere mine(*bootstraps[static_cast<std::size_t>(rank)], move);
    body(mine);
  });
}

void move_to_host(ProcessIdentity& identity) {
  identity.host[0] ^= 1;
}
void move_to_pid_namespace(ProcessIdentity& identity) {
  ++identity.pid_namespace;
}
void move_to_network(ProcessIdentity& identity) {
  ++identity.network_namespace, ++identity.pid;
}

// A pid of another host or namespace would mean another process here.
TEST(Liveness, WatchesNobodyWhosePidMeansNothing) {
  const std::pair<void (*)(ProcessIdentity&), std::string> cases[] = {
      {move_to_host, "on another host"}, {move_to_pid_namespace, "in another PID namespace"}};
  for (const auto& [move, reason] : cases) {
    const auto errors = run_elsewhere(move, [&, expected = reason](Bootstrap& mine) {
      const Liveness liveness = Liveness::create(mine);
      EXPECT_EQ(liveness.unwatched_reason(1 - mine.rank()), expected);
      EXPECT_EQ(liveness.dead_peer(), std::nullopt);
    });
    test::expect_no_errors(errors);
  }
}

TEST(SharingDescriptors, IsRefusedAcrossHostsAndNetworks) {
  const auto share = [](Bootstrap& mine) { mine.share_fd("memory", 0, 0); };
  test::expect_all_say(run_elsewhere(move_to_host, share), "ranks 0 and 1 share no host");
  test::expect_all_say(run_elsewhere(move_to_network, share), "ranks 0 and 1 share no network namespace");
}

}  // namespace
}  // namespace weft::detail
