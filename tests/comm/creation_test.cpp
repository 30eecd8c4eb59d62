// Creation of several communicators at a time, and creation that must fail.
#include <gtest/gtest.h>
#include <pthread.h>

#include <thread>

#include "support/free_port.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/collectives.hpp"
#include "weft/communicator.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

// Sets the variables that torchrun sets for two ranks.
void set_variables(int rank, int port) {
  const std::pair<const char*, std::string> variables[] = {
      {"RANK", std::to_string(rank)},       {"WORLD_SIZE", "2"},          {"LOCAL_WORLD_SIZE", "2"},
      {"LOCAL_RANK", std::to_string(rank)}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(port - 1000)}};
  for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
}

Config named(const std::string& name, std::chrono::nanoseconds deadline = long_deadline) {
  Config config = cpu_config();
  config.rendezvous_deadline = deadline;
  config.name = name;
  return config;
}

void expect_ended_well(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.exit_code, 0);
  }
}

// Rank 0 creates A first and rank 1 creates B first. Both communicators sum correctly.
TEST(Creation, OfTwoNamedCommunicatorsInAnyOrder) {
  const int port = free_port();
  Processes processes(2, [&](const Child& self) {
    set_variables(self.rank(), port);
    const auto errors = run_ranks(2, [&](int thread) {
      const bool a = thread == self.rank();
      if (thread == 1) std::this_thread::sleep_for(5ms);
      const Communicator communicator = Communicator::from_environment(named(a ? "A" : "B"));
      float value = static_cast<float>((a ? 1 : 10) * (self.rank() + 1)), sum = 0;
      all_reduce(communicator, {.input = &value, .output = &sum, .count = 1, .type = DataType::f32});
      ensure(sum == (a ? 3 : 30), "sum " + std::to_string(sum) + " of " + (a ? "A" : "B"));
    });
    for (const std::string& error : errors) ensure(error.empty(), error);
  });
  expect_ended_well(processes.wait());
}

// Rank 1 does not come, so the first creation is under way until its deadline.
TEST(Creation, OfTwoUnnamedCommunicatorsAtATimeIsRefused) {
  const int port = free_port();
  Processes processes(1, [&](const Child& self) {
    set_variables(0, port);
    const auto errors = run_ranks(2, [](int) { Communicator::from_environment(named("", 3s)); });
    for (const std::string& error : errors) self.say(error + "\n");
  });
  const Outcome outcome = processes.wait().front();
  expect_says(outcome.said, "rank 1 did not come within 3 s");
  expect_says(outcome.said, "Config::name: '' is that of another communicator which this process creates");
}

TEST(Creation, UnderANameThatCannotBeIsRejected) {
  for (const std::string& name : {std::string(65, 'x'), std::string("a\tb")}) {
    expect_code([&] { Communicator::from_environment(named(name)); }, Errc::invalid_argument, "Config::name");
    expect_code([&] { Communicator::local(2, named(name)); }, Errc::invalid_argument, "Config::name");
  }
  EXPECT_EQ(Communicator::local(2, named("target")).size(), 2u);
}

// Ranks of one job have different secrets.
TEST(Creation, WithAnotherSecretFails) {
  const int port = free_port();
  Processes processes(2, [&](const Child& self) {
    set_variables(self.rank(), port);
    ::setenv("WEFT_SECRET", self.rank() == 0 ? "the secret of rank 0" : "the secret of rank 1", 1);
    try {
      Communicator::from_environment(named("", self.rank() == 0 ? 2s : 60s));
    } catch (const Error& error) {
      self.say(std::string(name(error.code())) + ": " + error.what());
    }
  });
  const std::vector<Outcome> outcomes = processes.wait();
  expect_ended_well(outcomes);
  expect_says(outcomes[0].said, "rendezvous: ");
  expect_says(outcomes[0].said, "a rank 1 that knows another secret was turned away");
  expect_says(outcomes[1].said, "rendezvous: rank 0 at this port knows another secret (WEFT_SECRET differs?)");
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.said.find("the secret of rank"), std::string::npos);
}

// With stacks of 24 TiB there is address space for few or no threads. Threads that exist wait without a deadline.
TEST(Creation, WithoutThreadsForAllRanksFailsAtOnce) {
  Processes processes(1, [](const Child& self) {
    pthread_attr_t attributes;
    ensure(::pthread_attr_init(&attributes) == 0, "pthread_attr_init");
    ensure(::pthread_attr_setstacksize(&attributes, std::size_t{24} << 40) == 0, "pthread_attr_setstacksize");
    ensure(::pthread_setattr_default_np(&attributes) == 0, "pthread_setattr_default_np");
    try {
      Communicator::local(8, named("", for_ever));
    } catch (const Error& error) {
      self.say(std::string(name(error.code())) + ": " + error.what());
    }
  });
  const Outcome outcome = processes.wait().front();
  EXPECT_FALSE(outcome.too_slow);
  EXPECT_EQ(outcome.error, "");
  expect_says(outcome.said, "system: no thread for rank ");
  expect_says(outcome.said, " of 8: Resource temporarily unavailable");
}

}  // namespace
}  // namespace weft::test
