// One process per GPU, on one host and as if on several: ranks are killed, late, or give up, and GPUs do not reach each
// other. Every wait ends.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "gpu/support/engine.hpp"
#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/gpu_world.hpp"
#include "gpu/support/links.hpp"
#include "kernel/cuda_error.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"
#include "support/spawned.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
using detail::check_cuda;

// Skips tests that one GPU cannot run, with the reason.
class GpuProcesses : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() < 2) GTEST_SKIP() << "NCCL needs a GPU for every rank, and here is one GPU";
  }
  const int ranks_ = gpu_count();
  // Processes start one after the other, almost two seconds each, so there are no more than needed.
  const int on_two_hosts_ = std::min(ranks_, 3), pair_ = 2;
};

// The actions of rank 0 between its calls.
void play(const std::string& part, Communicator& communicator) {
  if (part == "late" || part == "late in a half") std::this_thread::sleep_for(2500ms);  // longer than the deadline
  if (part == "abort") communicator.abort();
}

// One rank of a world of processes: works until a fault, and reports it. Disabled, since it is no test: tests start it
// in processes of their own.
TEST(GpuProcess, DISABLED_Worker) {
  answer_where();
  const PretendedPcie pretended(told_of_pcie());
  const int rank = variable("RANK"), size = variable("WORLD_SIZE"), calls = variable("WEFT_TEST_CALLS");
  const char* given = std::getenv("WEFT_TEST_PART");
  const std::string part = given != nullptr ? given : "";
  GpuRank gpu(rank);
  try {
    Communicator communicator = Communicator::from_environment(gpu_config(1500ms));
    const bool in_half = part == "late in a half";
    const Group group = in_half ? communicator.split(rank * 2 / size) : communicator.world();
    // NCCL adds in an order of its own, so sums must be exact in any order.
    const bool by_nccl = communicator.fabric().starts_with("NCCL") && !in_half;
    const Case c = by_nccl ? Case{.count = 5000, .algorithm = Algorithm::automatic, .fill = Fill::integers}
                           : Case{.count = 5000, .algorithm = kAlgorithms[size % 3], .fill = Fill::random};
    const Prepared prepared = prepare(c, group.size());
    run_on_gpu_rank(group, gpu, prepared, group.rank());
    fmt::print("working over {}\n", communicator.fabric());
    if (part.empty() && !by_nccl) {
      const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, static_cast<std::uint32_t>(size), 5);
      const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
      GpuMoe moe(gpu, communicator, exchange);
      moe.fill(p);
      run_on_gpu_rank(moe, gpu, p);
    }
    std::fflush(stdout);
    for (int call = 0; call < calls; ++call) {
      if (rank == 0 && call == 5) play(part, communicator);
      run_on_gpu_rank(group, gpu, prepared, group.rank());
    }
    fmt::print("[done]\n");
  } catch (const Error& error) {
    fmt::print("[{} {} {}]\n{}\n", name(error.code()), error.fault().peer, name(error.fault().reported), error.what());
  }
  std::fflush(stdout);
}

std::vector<Spawned> start_workers(int size, int calls, Variables more = {}) {
  more.emplace_back("WEFT_TEST_CALLS", std::to_string(calls));
  return start_ranks("GpuProcess.DISABLED_Worker", size, more);
}

Variables two_hosts_with(const std::string& part) {
  Variables variables = two_hosts;
  variables.emplace_back("WEFT_TEST_PART", part);
  return variables;
}

TEST_F(GpuProcesses, AProcessPerGpu) {
  std::vector<Spawned> workers = start_workers(ranks_, 200);
  for (Spawned& worker : workers) {
    const Outcome outcome = worker.wait(60s);
    expect_says(outcome.said, "[done]");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
  }
}

// Expects that all complete their work, over `way`.
void expect_done(std::vector<Spawned> workers, const std::string& way) {
  for (Spawned& worker : workers) {
    const Outcome outcome = worker.wait(60s);
    expect_says(outcome.said, "[done]");
    expect_says(outcome.said, "working over " + way);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
  }
}

// GPUs that cannot write to each other's memory: everything works through NCCL, and fabric() says so.
TEST_F(GpuProcesses, AcrossHosts) {
  expect_done(start_workers(on_two_hosts_, 20, two_hosts), "NCCL: only");
}

TEST_F(GpuProcesses, LinkedByPcie) {
  expect_done(start_workers(ranks_, 20, by_pcie), "NCCL: ranks 0 and 1 are linked by PCIe, not NVLink");
}

// A process that sees only its own GPU learns the links to the others from the driver's library.
TEST_F(GpuProcesses, ThatSeeTheirOwnGpuAloneReachEachOther) {
  expect_done(start_workers(pair_, 20, {{"CUDA_VISIBLE_DEVICES", "each its own"}}), "peer memory");
}

// ------------------------------------------------------------------------------------------------------------
// faults while NCCL carries the data

// The rank ended by itself, with its history and a fault that a silent NCCL peer may cause.
void expect_ended(const Outcome& outcome, int rank) {
  EXPECT_FALSE(outcome.too_slow) << "rank " << rank << " does not end: " << outcome.said;
  EXPECT_EQ(outcome.exit_code, 0) << "rank " << rank << ": " << outcome.said;
  const auto said = [&](const char* what) { return outcome.said.find(what) != std::string::npos; };
  EXPECT_TRUE(said("[timeout -1 ") || said("[peer failed ") || said("[system "))
      << "rank " << rank << ": " << outcome.said;
  expect_says(outcome.said, "all_reduce sum bf16[5000] nccl tag 0");
}

TEST_F(GpuProcesses, AcrossHostsALateRankEndsAll) {
  std::vector<Spawned> workers = start_workers(on_two_hosts_, 1 << 30, two_hosts_with("late"));
  for (int rank = 0; rank < on_two_hosts_; ++rank)
    expect_ended(workers[static_cast<std::size_t>(rank)].wait(90s), rank);
}

TEST_F(GpuProcesses, AcrossHostsAnAbortEndsAll) {
  std::vector<Spawned> workers = start_workers(on_two_hosts_, 1 << 30, two_hosts_with("abort"));
  const Outcome first = workers.front().wait(90s);
  EXPECT_EQ(first.exit_code, 0) << first.said;
  expect_says(first.said, "[aborted 0 ");
  for (int rank = 1; rank < on_two_hosts_; ++rank)
    expect_ended(workers[static_cast<std::size_t>(rank)].wait(90s), rank);
}

// A group on one host fails. Its ranks reach each other, and no poison goes to ranks that they do not reach.
TEST_F(GpuProcesses, AcrossHostsAFaultOnOneHostStaysThere) {
  if (ranks_ < 4) GTEST_SKIP() << "two hosts of two GPUs each are needed";
  std::vector<Spawned> workers = start_workers(ranks_, 50, two_hosts_with("late in a half"));
  for (int rank = 0; rank < ranks_; ++rank) {
    const Outcome outcome = workers[static_cast<std::size_t>(rank)].wait(90s);
    EXPECT_FALSE(outcome.too_slow) << "rank " << rank << " does not end: " << outcome.said;
    EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
    const bool there = rank * 2 / ranks_ == 0;
    if (!there) expect_says(outcome.said, "[done]");
    if (rank == 0) expect_says(outcome.said, "[peer failed ");
    if (there && rank != 0 && outcome.said.find("[peer failed ") == std::string::npos) {
      expect_says(outcome.said, "[timeout 0 ");
    }
  }
}

// ------------------------------------------------------------------------------------------------------------
// machines that lack something: it works through NCCL, or creation says why not

void expect_works_or_says_why(std::vector<Spawned> workers) {
  for (Spawned& worker : workers) {
    const Outcome outcome = worker.wait(150s);
    EXPECT_FALSE(outcome.too_slow) << "does not end: " << outcome.said;
    EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
    const auto said = [&](const char* what) { return outcome.said.find(what) != std::string::npos; };
    const bool works = said("working over ") && said("[done]");
    const bool refused = said("[rendezvous ") || said("[unsupported ") || said("[system ");
    EXPECT_TRUE(works || (refused && !said("working over "))) << outcome.said;
    const std::size_t begin = outcome.said.find(works ? "working over" : "[rendezvous ");
    if (begin != std::string::npos) {
      fmt::print("{}\n", outcome.said.substr(begin, outcome.said.find('\n', begin) - begin));
    }
  }
}

TEST_F(GpuProcesses, WithoutPeerAccess) {
  expect_works_or_says_why(start_workers(pair_, 20, {{"NCCL_P2P_DISABLE", "1"}}));
}

TEST_F(GpuProcesses, WithoutVirtualMemory) {
  expect_works_or_says_why(start_workers(pair_, 20, {{"NCCL_CUMEM_ENABLE", "0"}}));
}

// ------------------------------------------------------------------------------------------------------------
// an engine's communicator, on which one rank stays away

// Disabled, like the worker above.
TEST(GpuProcess, DISABLED_FromNcclWithoutOneRank) {
  answer_where();
  const int ranks = gpu_count();
  const std::vector<ncclComm_t> engine = engine_communicators(ranks);
  const auto errors = run_ranks(ranks - 1, [&](int rank) {
    check_cuda(cudaSetDevice(rank), "cudaSetDevice");
    Config config = gpu_config();
    config.rendezvous_deadline = 2s;
    Communicator::from_nccl(engine[static_cast<std::size_t>(rank)], config);
  });
  for (const std::string& error : errors) fmt::print("[{}]\n", error);
  std::fflush(stdout);
  ::_exit(0);  // the engine's kernels still wait, and the engine must end them
}

TEST_F(GpuProcesses, FromNcclWithoutOneRankEndsByTheDeadline) {
  const Outcome outcome = Spawned("GpuProcess.DISABLED_FromNcclWithoutOneRank", {}).wait(60s);
  EXPECT_FALSE(outcome.too_slow) << outcome.said;
  EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
  expect_says(outcome.said, "has every rank called?");
  EXPECT_EQ(outcome.said.find("[]"), std::string::npos) << outcome.said;
}

}  // namespace
}  // namespace weft::test
