#include "support/world.hpp"

#include <algorithm>
#include <thread>

#include "weft/error.hpp"

#include "support/ranks.hpp"

namespace weft::test {

Config cpu_config(std::chrono::nanoseconds deadline) {
  Config config;
  config.device = Device::cpu;
  config.deadline = deadline;
  config.rendezvous_deadline = std::chrono::seconds(60);
  return config;
}

std::vector<Ending> run_world(std::vector<Communicator>& communicators, const RankBody& body) {
  std::vector<Ending> endings(communicators.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < communicators.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(communicators[rank], static_cast<int>(rank));
        } catch (const Error& error) {
          endings[rank] = {.what = error.what(), .error = error};
        } catch (const std::exception& error) {
          endings[rank] = {.what = error.what(), .error = {}};
        }
      });
    }
  }
  return endings;
}

Config small_pieces() {
  Config config = cpu_config();
  config.one_shot_bytes = 512;
  config.two_shot_bytes = 1024;
  return config;
}

Config small_slots() {
  Config config = cpu_config();
  config.two_shot_bytes = 256;
  return config;
}

Config smallest_buffers() {
  Config config = small_slots();
  config.one_shot_bytes = 256;
  return config;
}

std::vector<Ending> run_world(int size, const Config& config, const RankBody& body) {
  std::vector<Communicator> communicators = Communicator::local(size, config);
  return run_world(communicators, body);
}

void expect_all_well(const std::vector<Ending>& endings) {
  for (std::size_t rank = 0; rank < endings.size(); ++rank) EXPECT_EQ(endings[rank].what, "") << "rank " << rank;
}

void expect_reason(const Ending& ending, Errc code, const std::string& reason) {
  if (!ending.error || ending.error->code() != code) return;
  expect_says(ending.error->fault().reason, reason);
  expect_says(ending.what, reason);
}

void expect_misfit(const std::vector<Ending>& endings, const std::string& reason, const std::string& where) {
  int seen = 0;
  for (const Ending& ending : endings) {
    expect_fault(ending, {Errc::capacity, Errc::peer_failed}, where);
    expect_reason(ending, Errc::capacity, reason);
    seen += ending.error && ending.error->code() == Errc::capacity;
  }
  EXPECT_GE(seen, 1) << where;
}

void expect_fault(const Ending& ending, const std::vector<Errc>& codes, const std::string& where) {
  if (!ending.error) {
    ADD_FAILURE() << where << ": no error of Weft, but '" << ending.what << "'";
    return;
  }
  const Fault& fault = ending.error->fault();
  EXPECT_NE(std::find(codes.begin(), codes.end(), fault.code), codes.end())
      << where << ": " << name(fault.code) << ": " << ending.what;
  EXPECT_NE(fault.operation, "") << where << ": " << ending.what;
  EXPECT_NE(fault.epoch_wanted, 0u) << where << ": " << ending.what;
}

}  // namespace weft::test
