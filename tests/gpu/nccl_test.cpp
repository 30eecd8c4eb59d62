// Beside NCCL: its all-reduce as a choice, an engine's communicator, and a process per GPU, one of which is killed.
#include <gtest/gtest.h>
#include <nccl.h>
#include <signal.h>

#include <cmath>
#include <cstdlib>

#include "executors/cuda_error.hpp"
#include "gpu/support/gpu_world.hpp"
#include "gpu/support/spawned.hpp"
#include "support/free_port.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
using detail::check_cuda;

// Skips, with the reason, what one GPU cannot do.
class GpuNccl : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() < 2) GTEST_SKIP() << "NCCL needs a GPU for every rank, and here is one GPU";
  }
  const int ranks_ = gpu_count();
};

TEST_F(GpuNccl, AllReduceByChoice) {
  GpuWorld& world = lasting_gpu_world(ranks_);
  std::vector<Case> cases;
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      // Sums of small integers are exact whatever NCCL's order.
      cases.push_back({.count = 10'001, .type = type, .op = op, .algorithm = Algorithm::nccl});
      cases.push_back({.count = 10'001, .type = type, .op = op, .in_place = true});
    }
  }
  const auto prepared = prepare_for(world, cases);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (const Prepared& p : prepared) run_on_gpu_rank(communicator, gpu, p, rank);
  }));
}

TEST_F(GpuNccl, FromAnEnginesCommunicator) {
  std::vector<ncclComm_t> engine(static_cast<std::size_t>(ranks_));
  ASSERT_EQ(ncclCommInitAll(engine.data(), ranks_, nullptr), ncclSuccess);
  std::vector<std::unique_ptr<GpuRank>> gpus;
  for (int rank = 0; rank < ranks_; ++rank) gpus.push_back(std::make_unique<GpuRank>(rank));
  const auto prepared = prepare_all({{.count = 5000, .algorithm = Algorithm::one_shot, .fill = Fill::random},
                                     {.count = 5000, .algorithm = Algorithm::two_shot, .fill = Fill::random},
                                     {.count = 5000, .algorithm = Algorithm::nccl}},
                                    ranks_);
  expect_no_errors(run_ranks(ranks_, [&](int rank) {
    GpuRank& gpu = *gpus[static_cast<std::size_t>(rank)];
    gpu.use();
    Communicator communicator = Communicator::from_nccl(engine[static_cast<std::size_t>(rank)], gpu_config());
    if (communicator.rank() != rank || communicator.size() != ranks_) throw std::runtime_error("another rank");
    for (const Prepared& p : prepared) run_on_gpu_rank(communicator, gpu, p, rank);
    communicator.split(rank % 2);
  }));
  // The engine's communicator is the engine's: it works on.
  expect_no_errors(run_ranks(ranks_, [&](int rank) {
    GpuRank& gpu = *gpus[static_cast<std::size_t>(rank)];
    gpu.use();
    gpu.reset();
    auto* data = gpu.device_memory(400);
    check_cuda(cudaMemsetAsync(data, 0, 400, gpu.stream()), "cudaMemsetAsync");
    if (ncclAllReduce(data, data, 100, ncclInt32, ncclSum, engine[static_cast<std::size_t>(rank)], gpu.stream()) !=
        ncclSuccess) {
      throw std::runtime_error("ncclAllReduce");
    }
    gpu.synchronize();
  }));
  for (ncclComm_t comm : engine) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// Both sums against the exact one: NCCL's within the bound of any order, ours within that of f32 and one rounding.
TEST_F(GpuNccl, RandomSumsAreWithinTheirBounds) {
  GpuWorld& world = lasting_gpu_world(ranks_);
  for (const Algorithm algorithm : {Algorithm::nccl, Algorithm::two_shot}) {
    const Case c{.count = 20'000, .algorithm = algorithm, .fill = Fill::random, .seed = 3};
    const Prepared prepared = prepare(c, ranks_);
    const Format f = format_of(c.type);
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      GpuTensors tensors(gpu, prepared, rank);
      all_reduce(communicator, tensors.arguments(gpu.stream()));
      tensors.download(gpu.stream());
      gpu.synchronize();
      const std::span<const std::byte> got = tensors.downloaded();
      for (std::size_t i = 0; i < c.count; ++i) {
        double exact = 0, magnitudes = 0;
        for (const Bytes& input : prepared.inputs) {
          exact += value_of(f, get(input, c.type, i));
          magnitudes += std::fabs(value_of(f, get(input, c.type, i)));
        }
        const double once = 0x1p-8 * std::fabs(exact) + ranks_ * 0x1p-23 * magnitudes;
        const double bound = algorithm == Algorithm::nccl ? ranks_ * 0x1p-8 * magnitudes : once;
        const double error = std::fabs(value_of(f, get(got, c.type, i)) - exact);
        if (!(error <= bound)) {
          throw std::runtime_error(fmt::format("{} [{}]: off by {}, bound {}", name(algorithm), i, error, bound));
        }
      }
    }));
  }
}

// ------------------------------------------------------------------------------------------------------------
// processes

int variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set");
  return std::atoi(value);
}

// One rank of a world of processes: works until a fault, and says what it was.
TEST(GpuProcess, DISABLED_Worker) {
  const int rank = variable("RANK"), size = variable("WORLD_SIZE"), calls = variable("WEFT_TEST_CALLS");
  GpuRank gpu(rank);
  Communicator communicator = Communicator::from_environment(gpu_config(3s));
  // Across hosts NCCL adds, in an order of its own: sums that are exact in any order.
  const bool one_host = std::getenv("NCCL_HOSTID") == nullptr;
  const Prepared prepared =
      one_host ? prepare({.count = 5000, .algorithm = kAlgorithms[size % 3], .fill = Fill::random}, size)
               : prepare({.count = 5000, .algorithm = Algorithm::automatic, .fill = Fill::integers}, size);
  run_on_gpu_rank(communicator, gpu, prepared, rank);
  fmt::print("working over {}\n", communicator.fabric());
  std::fflush(stdout);
  try {
    for (int call = 0; call < calls; ++call) run_on_gpu_rank(communicator, gpu, prepared, rank);
    fmt::print("[done]\n");
  } catch (const Error& error) {
    fmt::print("[{} {} {}]\n", name(error.code()), error.fault().peer, error.fault().theirs);
  }
  std::fflush(stdout);
}

// As torchrun would. With several hosts, NCCL takes equal parts of the ranks to be on different machines.
std::vector<Spawned> start_workers(int size, int calls, int hosts = 1) {
  const std::string port = std::to_string(free_port());
  std::vector<Spawned> workers;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::pair<std::string, std::string>> environment{{"RANK", std::to_string(rank)},
                                                                 {"LOCAL_RANK", std::to_string(rank)},
                                                                 {"WORLD_SIZE", std::to_string(size)},
                                                                 {"MASTER_ADDR", "127.0.0.1"},
                                                                 {"MASTER_PORT", port},
                                                                 {"WEFT_RENDEZVOUS", "127.0.0.1:" + port},
                                                                 {"WEFT_TEST_CALLS", std::to_string(calls)}};
    if (hosts > 1) environment.emplace_back("NCCL_HOSTID", "host" + std::to_string(rank * hosts / size));
    workers.emplace_back("GpuProcess.DISABLED_Worker", environment);
  }
  return workers;
}

TEST_F(GpuNccl, AProcessPerGpu) {
  std::vector<Spawned> workers = start_workers(ranks_, 200);
  for (Spawned& worker : workers) {
    const Outcome outcome = worker.wait(60s);
    expect_says(outcome.said, "[done]");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
  }
}

// GPUs that cannot write to each other's memory: everything still works, through NCCL, and says so.
TEST_F(GpuNccl, AcrossHosts) {
  std::vector<Spawned> workers = start_workers(ranks_, 20, 2);
  for (Spawned& worker : workers) {
    const Outcome outcome = worker.wait(60s);
    expect_says(outcome.said, "[done]");
    expect_says(outcome.said, "working over NCCL: only");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
  }
}

TEST_F(GpuNccl, AKilledProcessIsNamedByTheOthers) {
  const int victim = ranks_ - 1;
  std::vector<Spawned> workers = start_workers(ranks_, 1 << 30);
  for (Spawned& worker : workers) ASSERT_TRUE(worker.wait_until_said("working", 60s));
  workers[static_cast<std::size_t>(victim)].signal(SIGKILL);
  int first_hand = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Outcome outcome = workers[static_cast<std::size_t>(rank)].wait(60s);
    if (rank == victim) {
      EXPECT_EQ(outcome.signal, SIGKILL);
      continue;
    }
    EXPECT_FALSE(outcome.too_slow) << "rank " << rank << " does not end";
    EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
    const bool direct = outcome.said.find(fmt::format("[timeout {} ", victim)) != std::string::npos;
    first_hand += direct;
    if (!direct) expect_says(outcome.said, "[peer failed ");
  }
  EXPECT_GE(first_hand, 1) << "nobody named rank " << victim;
}

}  // namespace
}  // namespace weft::test
