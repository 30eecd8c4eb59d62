// Ranks as processes: each way to meet, and the death or stop of a rank.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>

#include "support/cases.hpp"
#include "support/free_port.hpp"
#include "support/norms.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

void work(Communicator& communicator, int rank, int calls) {
  for (int i = 0; i < calls; ++i) {
    const auto seed = static_cast<std::uint32_t>(i);
    run_on_cpu_rank(
        communicator,
        prepare({.count = seed * 97 % 900, .algorithm = kAlgorithms[i % 3], .seed = seed}, communicator.size()), rank);
  }
}

class ProcessRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ProcessRanks, testing::Values(1, 2, 3, 5));

TEST_P(ProcessRanks, FromAnId) {
  const int size = GetParam();
  const UniqueId id = UniqueId::create();
  Processes processes(size, [&](const Child& self) {
    Communicator communicator = Communicator::from_id(id, self.rank(), size, cpu_config());
    work(communicator, self.rank(), 30);
    const Group group = communicator.split(self.rank() % 2);
    run_on_cpu_rank(group, prepare({.count = 100}, group.size()), group.rank());
    communicator.release();
    communicator.acquire();
    work(communicator, self.rank(), 5);
  });
  expect_all_well(processes.wait());
}

// ---------------------------------------------------------------------------------------------------------- launchers

using LauncherVariables = std::vector<std::pair<const char*, std::string>>;

void expect_meets(int size, const std::function<LauncherVariables(int rank)>& variables) {
  Processes processes(size, [&](const Child& self) {
    for (const auto& [name, value] : variables(self.rank())) ::setenv(name, value.c_str(), 1);
    Communicator communicator = Communicator::from_environment(cpu_config());
    if (communicator.rank() != self.rank() || communicator.size() != size) throw std::runtime_error("another rank");
    work(communicator, self.rank(), 6);
  });
  expect_all_well(processes.wait());
}

TEST(FromEnvironment, Torchrun) {
  const std::string port = std::to_string(free_master_port());
  expect_meets(3, [&](int rank) {
    return LauncherVariables{{"RANK", std::to_string(rank)},
                             {"WORLD_SIZE", "3"},
                             {"LOCAL_RANK", std::to_string(rank)},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", port}};
  });
}

// The meeting point of these ranks follows from the job's name, which differs in every run of the tests.
std::string job() {
  return std::to_string(::getpid());
}

TEST(FromEnvironment, Mpirun) {
  expect_meets(3, [name = job()](int rank) {
    return LauncherVariables{{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                             {"OMPI_COMM_WORLD_SIZE", "3"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                             {"PMIX_NAMESPACE", "weft-" + name}};
  });
}

TEST(FromEnvironment, MpiexecWithPmi) {
  expect_meets(2, [name = job()](int rank) {
    return LauncherVariables{{"PMI_RANK", std::to_string(rank)}, {"PMI_SIZE", "2"}, {"PMI_JOBID", "weft-" + name}};
  });
}

TEST(FromEnvironment, Srun) {
  expect_meets(2, [name = job()](int rank) {
    return LauncherVariables{{"SLURM_PROCID", std::to_string(rank)},
                             {"SLURM_STEP_NUM_TASKS", "2"},
                             {"SLURM_LOCALID", std::to_string(rank)},
                             {"SLURM_JOB_ID", name},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_STEP_NODELIST", "localhost"}};
  });
}

// The variables name a host that does not exist, but the meeting point is elsewhere.
TEST(FromEnvironment, TheMeetingPointMayBeGiven) {
  const int port = free_port();
  expect_meets(2, [&](int rank) {
    return LauncherVariables{{"SLURM_PROCID", std::to_string(rank)},
                             {"SLURM_NTASKS", "2"},
                             {"SLURM_JOB_ID", "17"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_STEP_NODELIST", "no.such.host.invalid"},
                             {"WEFT_RENDEZVOUS", "localhost:" + std::to_string(port)}};
  });
}

TEST(FromEnvironment, NoLauncherIsAWorldOfOne) {
  expect_meets(1, [](int) { return LauncherVariables{}; });
}

// -------------------------------------------------------------------------------------------------- killed and stopped

// Without NCCL's names, which change while tests of GPUs run at the same time.
std::set<std::string> shared_memory_names() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path().filename());
  std::erase_if(names, [](const std::string& name) { return name.starts_with("nccl-"); });
  return names;
}

struct Blow {
  int signal;
  std::chrono::nanoseconds deadline;
  std::string first_hand;  // the words of a rank that waited for the victim itself
  Algorithm algorithm;     // of every second call
};

// Calls until a fault, and returns it as "code peer".
void work_until_a_fault(const Child& self, const UniqueId& id, int size, const Blow& blow) {
  Config config = cpu_config(blow.deadline);
  config.multicast = true;
  Communicator communicator = Communicator::from_id(id, self.rank(), size, config);
  const Prepared prepared = prepare({.count = 3000, .algorithm = blow.algorithm}, size);
  run_on_cpu_rank(communicator, prepared, self.rank());
  self.say("working ");
  try {
    const Norm norm{.tokens = 3, .hidden = 64, .fp8 = true};
    for (;;) {
      run_on_cpu_rank(communicator, prepared, self.rank());
      run_on_cpu_rank(communicator, norm);
    }
  } catch (const Error& error) {
    self.say(fmt::format("[{} {} {}]", name(error.code()), error.fault().peer, name(error.fault().reported)));
    // A failed communicator stays failed, and says so at once.
    for (int again = 0; again < 5; ++again) {
      const std::string message = error_of([&] { run_on_cpu_rank(communicator, prepared, self.rank()); });
      if (message.find(name(error.code())) == std::string::npos) throw std::runtime_error("then: " + message);
    }
  }
}

// Adds to `noticed` the milliseconds from the signal until the last other rank reported its error.
void strike(const Blow& blow, int size, int victim, std::mt19937& random, std::vector<double>& noticed) {
  const std::set<std::string> before = shared_memory_names();
  const UniqueId id = UniqueId::create();
  Processes processes(size, [&](const Child& self) { work_until_a_fault(self, id, size, blow); });
  for (int rank = 0; rank < size; ++rank) ASSERT_TRUE(processes.wait_until_said(rank, "working"));
  ::usleep(random() % 20'000);
  const auto begin = std::chrono::steady_clock::now();
  processes.signal(victim, blow.signal);
  int first_hand = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    ASSERT_TRUE(processes.wait_until_said(rank, "]")) << "rank " << rank << " goes on without rank " << victim;
  }
  noticed.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  processes.signal(victim, SIGKILL);  // also ends a rank that is only stopped
  const std::vector<Outcome> outcomes = processes.wait();
  const std::string direct = "[" + blow.first_hand + " " + std::to_string(victim) + " ";
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.exit_code, 0);
    first_hand += outcome.said.find(direct) != std::string::npos;
    if (outcome.said.find(direct) == std::string::npos) {
      // If the victim is only late, a rank may blame another rank that waits for the victim.
      const std::string whom = blow.signal == SIGKILL ? std::to_string(victim) + " " : "";
      expect_says(outcome.said, "[peer failed " + whom);
      expect_says(outcome.said, blow.first_hand + "]");
    }
  }
  EXPECT_GE(first_hand, 1) << "nobody named rank " << victim;
  EXPECT_EQ(shared_memory_names(), before);
}

// Prints a figure for docs/reliability.md. It is not checked, since the machine may be busy.
void tell(std::vector<double> noticed) {
  if (noticed.empty()) return;
  std::ranges::sort(noticed);
  const std::string text = fmt::format("{:.2f}", noticed[noticed.size() / 2]);
  testing::Test::RecordProperty("median_ms_from_signal_to_error", text);
  fmt::print("from the signal to the error of the last rank: median {} ms of {}, {:.2f} … {:.2f}\n", text,
             noticed.size(), noticed.front(), noticed.back());
}

// There is no deadline: the others must detect the death itself.
TEST(KilledRanks, AreNamedByTheOthers) {
  std::mt19937 random(20);
  std::vector<double> noticed;
  constexpr Algorithm algorithms[] = {Algorithm::multimem_one_shot, Algorithm::one_shot, Algorithm::multimem_two_shot,
                                      Algorithm::two_shot, Algorithm::pipelined};
  for (int round = 0; round < repeated(13) + 2; ++round) {
    const int size = 2 + round % 3;
    strike({.signal = SIGKILL,
            .deadline = 0ns,
            .first_hand = "peer died",
            .algorithm = algorithms[round % std::ssize(algorithms)]},
           size, round % size, random, noticed);
  }
  tell(noticed);
}

TEST(StoppedRanks, AreNamedAfterTheDeadline) {
  std::mt19937 random(21);
  std::vector<double> noticed;
  for (int round = 0; round < (kSanitized ? 2 : 4); ++round) {
    const int size = 2 + round % 2;
    strike({.signal = SIGSTOP,
            .deadline = kSanitized ? 3s : 700ms,
            .first_hand = "timeout",
            .algorithm = round % 2 == 0 ? Algorithm::multimem_two_shot : Algorithm::two_shot},
           size, round % size, random, noticed);
  }
  tell(noticed);
}

// A rank that is done may end. The others do not take this for a failure.
TEST(LeavingRanks, DoNotHarmTheOthers) {
  const UniqueId id = UniqueId::create();
  Processes processes(3, [&](const Child& self) {
    Communicator communicator = Communicator::from_id(id, self.rank(), 3, cpu_config());
    const Group group = communicator.split(self.rank() == 2 ? -1 : 0);
    work(communicator, self.rank(), 3);
    if (self.rank() == 2) return;
    ::usleep(300'000);  // rank 2 has ended by now
    const Prepared prepared = prepare({.count = 100}, 2);
    for (int i = 0; i < 20; ++i) {
      if (self.rank() == i % 2) ::usleep(5000);  // the other rank waits long enough to check for dead peers
      run_on_cpu_rank(group, prepared, self.rank());
    }
  });
  expect_all_well(processes.wait());
}

}  // namespace
}  // namespace weft::test
