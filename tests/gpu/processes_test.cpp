// GPU ranks as processes, one of which is killed or stopped at a random moment.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "gpu/support/gpu_norm.hpp"
#include "support/free_port.hpp"
#include "support/ranks.hpp"
#include "support/spawned.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

// One rank: works until a fault, and reports it and that it stays. Disabled, since it is no test: tests start it in
// processes of their own.
TEST(GpuStruckProcess, DISABLED_Worker) {
  answer_where();
  const int rank = std::atoi(std::getenv("RANK")), size = std::atoi(std::getenv("WORLD_SIZE"));
  GpuRank gpu(rank);
  Communicator communicator = Communicator::from_environment(gpu_config(1500ms));
  std::vector<Case> cases;
  for (const Algorithm algorithm : kAlgorithms) {
    for (const std::size_t count : {9u, 5000u, 100'003u}) {
      cases.push_back({.count = count, .algorithm = algorithm, .fill = Fill::random});
    }
  }
  const std::vector<Prepared> prepared = prepare_all(cases, size);
  const Norm rows{.tokens = 40, .hidden = 1024, .fp8 = true};
  const auto run_all = [&] {
    for (const Prepared& p : prepared) run_on_gpu_rank(communicator, gpu, p, rank);
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
      Norm norm = rows;
      norm.algorithm = algorithm;
      run_on_gpu_rank(communicator, gpu, norm);
    }
  };
  run_all();
  fmt::print("working\n");
  std::fflush(stdout);
  try {
    while (true) run_all();
  } catch (const Error& error) {
    fmt::print("ended: [{} {} {}]\n", name(error.code()), error.fault().peer, name(error.fault().reported));
    expect_says(error_of([&] { run_on_gpu_rank(communicator, gpu, prepared[0], rank); }), name(error.code()).data());
  }
  std::fflush(stdout);
}

struct Ranks {
  std::vector<Spawned> workers;
  std::size_t victim;
};

// Starts all ranks, and kills or stops one while they work.
void strike(Ranks& ranks, int signal, std::mt19937& random) {
  const int size = gpu_count();
  const std::string port = std::to_string(free_master_port());
  for (int rank = 0; rank < size; ++rank) {
    ranks.workers.emplace_back("GpuStruckProcess.DISABLED_Worker",
                               std::vector<std::pair<std::string, std::string>>{{"RANK", std::to_string(rank)},
                                                                                {"LOCAL_RANK", std::to_string(rank)},
                                                                                {"WORLD_SIZE", std::to_string(size)},
                                                                                {"MASTER_ADDR", "127.0.0.1"},
                                                                                {"MASTER_PORT", port}});
  }
  for (Spawned& worker : ranks.workers) ASSERT_TRUE(worker.wait_until_said("working", 60s));
  ::usleep(static_cast<useconds_t>(random() % 200'000));
  ranks.workers[ranks.victim].signal(signal);
}

// The others end by themselves, and at least one has waited for the victim itself.
void expect_named(Ranks& ranks) {
  int first_hand = 0;
  for (std::size_t rank = 0; rank < ranks.workers.size(); ++rank) {
    if (rank == ranks.victim) continue;
    const Outcome outcome = ranks.workers[rank].wait(60s);
    EXPECT_FALSE(outcome.too_slow) << "rank " << rank << " does not end";
    EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
    const bool direct = outcome.said.find(fmt::format("[timeout {} ", ranks.victim)) != std::string::npos;
    first_hand += direct;
    if (!direct) expect_says(outcome.said, fmt::format("[peer failed {} timeout]", ranks.victim));
  }
  EXPECT_GE(first_hand, 1) << "nobody named rank " << ranks.victim;
}

class GpuStruckProcesses : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() < 2) GTEST_SKIP() << "processes do not share a GPU";
  }
  std::mt19937 random_{static_cast<unsigned>(::getpid())};  // other moments in every run
};

TEST_F(GpuStruckProcesses, AKilledOneIsNamedByTheOthers) {
  Ranks ranks{{}, random_() % static_cast<unsigned>(gpu_count())};
  ASSERT_NO_FATAL_FAILURE(strike(ranks, SIGKILL, random_));
  expect_named(ranks);
  EXPECT_EQ(ranks.workers[ranks.victim].wait(10s).signal, SIGKILL);
}

// After the deadline the stopped rank continues: the others have ended the communicator, and it learns that.
TEST_F(GpuStruckProcesses, AStoppedOneIsNamedByTheOthersAndLearnsItToo) {
  Ranks ranks{{}, random_() % static_cast<unsigned>(gpu_count())};
  ASSERT_NO_FATAL_FAILURE(strike(ranks, SIGSTOP, random_));
  for (std::size_t rank = 0; rank < ranks.workers.size(); ++rank) {
    if (rank == ranks.victim) continue;
    EXPECT_TRUE(ranks.workers[rank].wait_until_said("ended: ", 30s))
        << "rank " << rank << " goes on without the stopped one";
  }
  ranks.workers[ranks.victim].signal(SIGCONT);
  const Outcome outcome = ranks.workers[ranks.victim].wait(60s);
  EXPECT_FALSE(outcome.too_slow) << "the stopped rank does not end: " << outcome.said;
  EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
  expect_says(outcome.said, "[peer failed ");
  expect_named(ranks);
}

}  // namespace
}  // namespace weft::test
