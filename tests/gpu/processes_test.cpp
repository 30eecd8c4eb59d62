// GPU ranks as processes of one host: at work, killed or stopped at a moment that nobody chose, and beside an engine.
#include <gtest/gtest.h>
#include <nccl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "executors/cuda_error.hpp"
#include "gpu/support/players.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
using detail::check_cuda;

const Part at_work("at work", [](GpuRank& gpu) {
  const int rank = variable("RANK"), size = variable("WORLD_SIZE");
  Communicator communicator = Communicator::from_environment(gpu_config(1500ms));
  const Prepared prepared =
      prepare({.count = 5000, .algorithm = kAlgorithms[size % 3], .fill = Fill::random}, communicator.size());
  for (int call = 0; call < 200; ++call) run_on_gpu_rank(communicator, gpu, prepared, rank);
});

// Works until a fault, says what it was, and that it stays.
const Part until_a_fault("until a fault", [](GpuRank& gpu) {
  const int rank = variable("RANK");
  Communicator communicator = Communicator::from_environment(gpu_config(1500ms));
  std::vector<Case> cases;
  for (const Algorithm algorithm : kAlgorithms) {
    for (const std::size_t count : {9u, 5000u, 100'003u}) {
      cases.push_back({.count = count, .algorithm = algorithm, .fill = Fill::random});
    }
  }
  const std::vector<Prepared> prepared = prepare_all(cases, communicator.size());
  for (const Prepared& p : prepared) run_on_gpu_rank(communicator, gpu, p, rank);
  say("working");
  try {
    for (std::size_t call = 0;; ++call) run_on_gpu_rank(communicator, gpu, prepared[call % prepared.size()], rank);
  } catch (const Error& error) {
    say(fmt::format("ended: [{} {} {}]", name(error.code()), error.fault().peer, error.fault().theirs));
    expect_says(error_of([&] { run_on_gpu_rank(communicator, gpu, prepared[0], rank); }), name(error.code()).data());
  }
});

// An engine's communicator, on which one rank stays away.
const Part all_but_one_from_nccl("all but one from an engine's communicator", [](GpuRank& gpu) {
  const int rank = variable("RANK"), size = variable("WORLD_SIZE");
  Communicator communicator = Communicator::from_environment(gpu_config());
  ncclUniqueId id{};
  if (rank == 0) ensure(ncclGetUniqueId(&id) == ncclSuccess, "ncclGetUniqueId");
  gpu.reset();
  std::byte *const host = gpu.host_memory(sizeof(id)), *const device = gpu.device_memory(sizeof(id));
  std::memcpy(host, &id, sizeof(id));
  check_cuda(cudaMemcpyAsync(device, host, sizeof(id), cudaMemcpyHostToDevice, gpu.stream()), "upload");
  broadcast(communicator, {.input = device, .output = device, .row_bytes = sizeof(id), .stream = gpu.stream()});
  check_cuda(cudaMemcpyAsync(host, device, sizeof(id), cudaMemcpyDeviceToHost, gpu.stream()), "download");
  gpu.synchronize();
  communicator.check();
  std::memcpy(&id, host, sizeof(id));
  ncclComm_t engine = nullptr;
  ensure(ncclCommInitRank(&engine, size, id, rank) == ncclSuccess, "ncclCommInitRank");
  if (rank == size - 1) return;
  Config config = gpu_config();
  config.rendezvous_deadline = 2s;
  say(fmt::format("[{}]", error_of([&] { Communicator::from_nccl(engine, config); })));
});

// Waits for the end of the part: the others end by themselves, and one at least has waited for the victim itself.
void expect_named(Players& ranks, int victim) {
  int first_hand = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == victim) continue;
    const std::string said = ranks.finish(rank);
    const bool direct = said.find(fmt::format("[timeout {} ", victim)) != std::string::npos;
    first_hand += direct;
    if (!direct) expect_says(said, "[peer failed ");
  }
  EXPECT_GE(first_hand, 1) << "nobody named rank " << victim;
}

class GpuProcesses : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() < 2) GTEST_SKIP() << "processes do not share a GPU";
  }
  // All of them at work, and one, which it returns, that has just been struck.
  void strike(Players& ranks, int signal, int& victim) {
    victim = static_cast<int>(random_() % static_cast<unsigned>(ranks.size()));
    ranks.begin(until_a_fault);
    for (int rank = 0; rank < ranks.size(); ++rank) ASSERT_TRUE(ranks.rank(rank).wait_until_said("working", 60s));
    ::usleep(static_cast<useconds_t>(random_() % 200'000));
    ranks.rank(victim).signal(signal);
  }

 private:
  std::mt19937 random_{static_cast<unsigned>(::getpid())};  // moments are never the same
};

TEST_F(GpuProcesses, AProcessPerGpu) {
  players_on_one_host().play(at_work);
}

// Past the deadline it goes on: the others have ended the communicator, and it learns that.
TEST_F(GpuProcesses, AStoppedOneIsNamedByTheOthersAndLearnsItToo) {
  Players& ranks = players_on_one_host();
  int victim = 0;
  ASSERT_NO_FATAL_FAILURE(strike(ranks, SIGSTOP, victim));
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == victim) continue;
    EXPECT_TRUE(ranks.rank(rank).wait_until_said("ended: ", 30s))
        << "rank " << rank << " goes on without the stopped one";
  }
  ranks.rank(victim).signal(SIGCONT);
  expect_says(ranks.finish(victim), "[peer failed ");
  expect_named(ranks, victim);
}

TEST_F(GpuProcesses, AKilledOneIsNamedByTheOthers) {
  Players ranks(std::min(gpu_count(), 3));
  int victim = 0;
  ASSERT_NO_FATAL_FAILURE(strike(ranks, SIGKILL, victim));
  expect_named(ranks, victim);
  EXPECT_EQ(ranks.rank(victim).wait(10s).signal, SIGKILL);
  ranks.expect_good_end(victim);
}

// The last part of its processes: the engine's kernels still wait, and are the engine's to end.
TEST_F(GpuProcesses, FromNcclWithoutOneRankEndsByTheDeadline) {
  Players& ranks = players_on_one_host();
  std::vector<std::string> said = ranks.play(all_but_one_from_nccl);
  said.pop_back();
  expect_all_say(said, "has every rank called?");
  ranks.kill();
}

}  // namespace
}  // namespace weft::test
