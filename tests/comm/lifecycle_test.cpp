// Creation, release and acquire, the properties of a communicator, and bad configurations.
#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "support/cases.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

Case plain(std::uint32_t seed, Algorithm algorithm = Algorithm::automatic) {
  return {.count = 300, .algorithm = algorithm, .seed = seed};
}

TEST(Lifecycle, SaysWhatItIs) {
  expect_all_well(run_world(3, cpu_config(), [](Communicator& communicator, int rank) {
    EXPECT_EQ(communicator.rank(), rank);
    EXPECT_EQ(communicator.size(), 3);
    EXPECT_EQ(communicator.device(), Device::cpu);
    EXPECT_EQ(communicator.world().members().size(), 3u);
    EXPECT_GT(communicator.memory().window, 0u);
    EXPECT_GT(communicator.memory().control, 0u);
    EXPECT_FALSE(communicator.status().has_value());
    expect_says(communicator.fabric(), "shared memory, 3 CPU ranks");
  }));
}

TEST(Lifecycle, MemoryFollowsTheLimits) {
  Config small = cpu_config();
  small.max_groups = 0;
  small.one_shot_bytes = 1 << 12;
  small.two_shot_bytes = 1 << 14;
  Config large = small;
  large.two_shot_bytes = 1 << 24;
  const std::size_t a = Communicator::local(4, small)[0].memory().window;
  const std::size_t b = Communicator::local(4, large)[0].memory().window;
  // Two areas of two banks, and a quarter of the message from each of four ranks.
  EXPECT_EQ(b - a, 4u * ((1 << 24) - (1 << 14)));
  large.max_groups = 2;
  EXPECT_GT(Communicator::local(4, large)[0].memory().window, b);
}

TEST(Lifecycle, ReleaseAndAcquireInTurns) {
  constexpr int ranks = 3;
  expect_all_well(run_world(ranks, cpu_config(), [](Communicator& communicator, int rank) {
    const Group group = communicator.split(0);
    std::uint32_t seed = 0;
    for (int cycle = 0; cycle < 4; ++cycle) {
      // An odd number of calls, and none, so that either bank comes next.
      for (int call = 0; call < cycle; ++call) {
        run_on_cpu_rank(communicator, prepare(plain(++seed, Algorithm::one_shot), ranks), rank);
        run_on_cpu_rank(group, prepare(plain(++seed, Algorithm::two_shot), ranks), rank);
      }
      communicator.release();
      EXPECT_EQ(communicator.memory().window, 0u);
      for (const Group* asleep : {&communicator.world(), &group}) {
        expect_code([&] { run_on_cpu_rank(*asleep, prepare(plain(1), ranks), rank); }, Errc::released, "acquire");
      }
      EXPECT_FALSE(communicator.status().has_value());  // a rejected call is no fault
      communicator.acquire();
      EXPECT_GT(communicator.memory().window, 0u);
    }
    const Group late = communicator.split(0);
    run_on_cpu_rank(late, prepare(plain(++seed), ranks), rank);
  }));
}

TEST(Lifecycle, ReleaseAndAcquireOutOfTurnAreRejectedOnEveryRankAndHarmless) {
  expect_all_well(run_world(2, cpu_config(), [](Communicator& communicator, int rank) {
    expect_code([&] { communicator.acquire(); }, Errc::invalid_argument, "not released");
    communicator.release();
    expect_code([&] { communicator.release(); }, Errc::released, "released already");
    expect_code([&] { communicator.split(0); }, Errc::released, "split");
    communicator.acquire();
    run_on_cpu_rank(communicator, prepare(plain(4), 2), rank);
  }));
}

TEST(Lifecycle, AReleasedCommunicatorGivesItsMemoryBack) {
  const auto mapped = [] {
    std::size_t found = 0;
    FILE* maps = std::fopen("/proc/self/maps", "r");
    char line[512];
    while (std::fgets(line, sizeof(line), maps) != nullptr) found += std::strstr(line, "memfd:weft") != nullptr;
    std::fclose(maps);
    return found;
  };
  const std::size_t before = mapped();
  auto communicators = Communicator::local(2, cpu_config());
  EXPECT_GT(mapped(), before);
  run_world(communicators, [](Communicator& communicator, int) { communicator.release(); });
  EXPECT_EQ(mapped(), before);
}

TEST(Lifecycle, DescriptorsAndMappingsGoWithTheCommunicator) {
  const auto descriptors = [] {
    std::size_t count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (::readdir(folder) != nullptr) ++count;
    ::closedir(folder);
    return count;
  };
  Communicator::local(3, cpu_config());  // allocates everything that the process keeps for good
  const std::size_t before = descriptors();
  for (int i = 0; i < 5; ++i) {
    run_world(3, cpu_config(), [](Communicator& communicator, int rank) {
      communicator.split(rank % 2);
      communicator.release();
      communicator.acquire();
    });
  }
  EXPECT_EQ(descriptors(), before);
}

// Creation of any kind, and later calls, leave the host program's environment unchanged.
TEST(Lifecycle, LeavesTheEnvironmentAlone) {
  const auto variables = [] {
    std::vector<std::string> all;
    for (char** variable = environ; *variable != nullptr; ++variable) all.emplace_back(*variable);
    return all;
  };
  const std::vector<std::string> before = variables();
  {
    const Communicator alone = Communicator::from_environment(cpu_config());
    run_world(2, cpu_config(), [](Communicator& communicator, int rank) {
      run_on_cpu_rank(communicator.split(0), prepare(plain(1), 2), rank);
      communicator.release();
      communicator.acquire();
    });
    const UniqueId id = UniqueId::create();
    const Communicator by_id = Communicator::from_id(id, 0, 1, cpu_config());
  }
  EXPECT_EQ(variables(), before);
}

// ------------------------------------------------------------------------------------------------------ configurations

struct BadConfig {
  const char* name;
  std::function<void(Config&)> spoil;
  const char* message = "";  // value and range
};

const std::vector<BadConfig>& bad_configs() {
  static const std::vector<BadConfig> configs{
      {"device", [](Config& c) { c.device = static_cast<Device>(9); }, ": 9 is not automatic, cpu or cuda"},
      {"deadline", [](Config& c) { c.deadline = -1ns; }, ": -1 is not 0 or more nanoseconds"},
      {"one_shot_bytes", [](Config& c) { c.one_shot_bytes = (std::size_t{1} << 40) + 1; },
       ": 1099511627777 is not between 0 and 2^40"},
      {"two_shot_bytes", [](Config& c) { c.two_shot_bytes = SIZE_MAX; },
       ": 18446744073709551615 is not between 0 and 2^40"},
      {"group_one_shot_bytes", [](Config& c) { c.group_one_shot_bytes = SIZE_MAX; },
       ": 18446744073709551615 is not between 0 and 2^40"},
      {"group_two_shot_bytes", [](Config& c) { c.group_two_shot_bytes = (std::size_t{1} << 40) + 1; },
       ": 1099511627777 is not between 0 and 2^40"},
      {"max_groups", [](Config& c) { c.max_groups = -1; }, ": -1 is not between 0 and 63"},
      {"max_groups", [](Config& c) { c.max_groups = 64; }, ": 64 is not between 0 and 63"},
  };
  return configs;
}

TEST(Configurations, MistakesAreNamed) {
  for (const BadConfig& bad : bad_configs()) {
    Config config = cpu_config();
    bad.spoil(config);
    expect_code([&] { Communicator::local(2, config); }, Errc::invalid_argument,
                std::string("Config::") + bad.name + bad.message);
  }
}

TEST(Configurations, WorldSizesOutOfRangeAreNamed) {
  const UniqueId id = UniqueId::create();
  for (const int size : {0, -1, 73, 100'000, INT32_MAX}) {
    const std::string message = "world_size: " + std::to_string(size) + " is not between 1 and 72";
    expect_code([&] { Communicator::local(size, cpu_config()); }, Errc::invalid_argument, message);
    expect_code([&] { Communicator::from_id(id, 0, size, cpu_config()); }, Errc::invalid_argument, message);
  }
}

// A bad configuration is rejected before ranks meet. So the id serves for another attempt, and no rank waits for ever.
TEST(Configurations, WhatIsRejectedDoesNotUseUpTheId) {
  const UniqueId id = UniqueId::create();
  Config never = cpu_config();
  never.rendezvous_deadline = -1ns;
  const std::string deadline = "Config::rendezvous_deadline: -1 is not 0 or more nanoseconds";
  expect_code([&] { Communicator::from_id(id, 0, 2, never); }, Errc::invalid_argument, deadline);
  expect_code([&] { Communicator::from_environment(never); }, Errc::invalid_argument, deadline);
  expect_code([&] { Communicator::local(2, never); }, Errc::invalid_argument, deadline);
  expect_code([&] { Communicator::from_id(id, 1, 1, cpu_config()); }, Errc::invalid_argument,
              "rank: 1 is not between 0 and 0");
  expect_code([&] { Communicator::from_id(id, -1, 2, cpu_config()); }, Errc::invalid_argument,
              "rank: -1 is not between 0 and 1");
  EXPECT_EQ(Communicator::from_id(id, 0, 1, cpu_config()).size(), 1);
}

// Ranks meet through an id, each with its own configuration.
std::vector<Ending> meet(int size, const std::function<void(Config&, int)>& change) {
  const UniqueId id = UniqueId::create();
  std::vector<Ending> endings(static_cast<std::size_t>(size));
  run_ranks(size, [&](int rank) {
    Config config = cpu_config();
    config.rendezvous_deadline = 10s;
    change(config, rank);
    try {
      Communicator::from_id(id, rank, size, config);
    } catch (const Error& error) {
      endings[static_cast<std::size_t>(rank)] = {.what = error.what(), .error = error};
    }
  });
  return endings;
}

TEST(Configurations, DisagreementsAreFoundByEveryRankAndNamed) {
  const std::vector<BadConfig> differences{
      {"deadline", [](Config& c) { c.deadline += 1ms; }},
      {"one_shot_bytes", [](Config& c) { c.one_shot_bytes = 4096; }},
      {"two_shot_bytes", [](Config& c) { c.two_shot_bytes = 4096; }},
      {"group_one_shot_bytes", [](Config& c) { c.group_one_shot_bytes = 4096; }},
      {"group_two_shot_bytes", [](Config& c) { c.group_two_shot_bytes = 4096; }},
      {"max_groups", [](Config& c) { c.max_groups = 1; }},
  };
  for (const BadConfig& difference : differences) {
    const auto endings = meet(3, [&](Config& config, int rank) {
      if (rank == 2) difference.spoil(config);
    });
    for (const Ending& ending : endings) {
      ASSERT_TRUE(ending.error) << difference.name;
      EXPECT_EQ(ending.error->code(), Errc::rendezvous) << ending.what;
      expect_says(ending.what, difference.name);
      expect_says(ending.what, "rank 2 has");
    }
  }
}

TEST(Configurations, AMistakeOnOneRankIsAnErrorOnAll) {
  for (const BadConfig& bad : bad_configs()) {
    const auto endings = meet(3, [&](Config& config, int rank) {
      if (rank == 1) bad.spoil(config);
    });
    for (const Ending& ending : endings) {
      ASSERT_TRUE(ending.error) << bad.name;
      expect_says(ending.what, std::string("Config::") + bad.name + bad.message);
    }
  }
}

}  // namespace
}  // namespace weft::test
