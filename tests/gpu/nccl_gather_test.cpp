// Gathers and scatters between GPUs that do not reach each other's memory: NCCL serves the equal ones. There is a
// process per GPU, and NCCL believes that each half of them is on a host of its own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "gpu/support/gpu_move.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/links.hpp"
#include "gpu/support/nccl_sums.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"
#include "support/spawned.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

void say_and_flush(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

// NCCL adds in an order of its own, so sums must be exact in any order.
void move_everything(const Group& group, GpuRank& gpu) {
  std::uint32_t seed = 0;
  for (const Kind kind : kEqual) {
    for (const DataType type : kTypes) {
      if (!reduces(kind) && type != DataType::bf16 && type != DataType::f32) continue;
      for (const std::size_t width : {0, 1, 1000, 20'001}) {
        const ReduceOp op = kOps[seed % std::size(kOps)];
        run_on_gpu_rank(group, gpu,
                        {.kind = kind,
                         .rows = 1 + seed % 3,
                         .widths = {width},
                         .type = type,
                         .op = nccl_agrees(type, op, group.size()) ? op : ReduceOp::sum,
                         .fill = Fill::integers,
                         .in_place = (seed + seed / 4) % 2 == 0 && kind != Kind::all_to_all,
                         .root = static_cast<int>(seed) / 3 % group.size(),
                         .seed = seed});
        ++seed;
      }
    }
  }
}

// Messages of ranks on both sides, each with both its neighbours and with itself; then of two ranks alone.
void send_and_receive(const Group& group, GpuRank& gpu) {
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    run_on_gpu_rank(group, gpu, ring(group.size(), seed % 2 == 0 ? 100 : 3'000'001, seed));
    run_on_gpu_rank(group, gpu, everyone(group.size(), seed));
    run_on_gpu_rank(group, gpu, several_to_one_peer(group.size(), 50'000, seed));
    run_on_gpu_rank(group, gpu, pair_of(0, group.size() - 1, 1000, seed));
  }
}

// One graph of all moves, with new data each time.
void replay(const Group& group, GpuRank& gpu) {
  gpu.reset();
  const auto moves_of = [&](std::uint32_t batch) {
    std::vector<RankMove> moves;
    for (const Kind kind : kEqual)
      moves.push_back(prepare({.kind = kind, .rows = 2, .widths = {3000}, .fill = Fill::integers, .seed = batch},
                              group.size(), group.rank()));
    moves.push_back(prepare(ring(group.size(), 5000, batch), group.size(), group.rank()));
    return moves;
  };
  const std::vector<RankMove> first = moves_of(0);
  std::vector<GpuMove> on_gpu;
  for (const RankMove& move : first) on_gpu.emplace_back(gpu, move);
  const Graph graph(gpu, [&] {
    for (GpuMove& move : on_gpu) move.call(group);
    barrier(group, {.stream = gpu.stream()});
  });
  for (std::uint32_t batch = 1; batch < 4; ++batch) {
    const std::vector<RankMove> moves = moves_of(batch);
    for (std::size_t i = 0; i < moves.size(); ++i) on_gpu[i].fill(moves[i]);
    graph.launch(gpu.stream());
    gpu.synchronize();
    group.check();
    for (std::size_t i = 0; i < moves.size(); ++i) on_gpu[i].check(moves[i]);
  }
}

// No rank's barrier ends before every rank's has begun. Files record which ranks have begun.
void hold_back(const Group& group, GpuRank& gpu) {
  const std::filesystem::path folder = std::getenv("WEFT_TEST_FOLDER");
  const auto file = [&](int round, int rank) { return folder / fmt::format("{}.{}", round, rank); };
  for (int round = 0; round < 8; ++round) {
    if (round % group.size() == group.rank()) std::this_thread::sleep_for(20ms);
    std::ofstream(file(round, group.rank())) << "here";
    barrier(group, {.stream = gpu.stream()});
    gpu.synchronize();
    group.check();
    for (int rank = 0; rank < group.size(); ++rank)
      ensure(std::filesystem::exists(file(round, rank)), fmt::format("round {}: rank {} has not come", round, rank));
  }
}

void expect_refused(const Group& group, GpuRank& gpu, const Move& move, const std::string& reason) {
  const std::string error = error_of([&] { run_on_gpu_rank(group, gpu, move); });
  ensure(error.find(reason) != std::string::npos, fmt::format("{}: {}", describe(move), error));
}

// One rank. Disabled, since it is no test: the test below starts it in processes of their own.
TEST(GpuProcess, DISABLED_GatherWorker) {
  answer_where();
  const PretendedPcie pretended(told_of_pcie());
  const int rank = variable("RANK");
  GpuRank gpu(rank);
  try {
    Communicator communicator = Communicator::from_environment(gpu_config(20s));
    ensure(communicator.fabric().starts_with("NCCL"), communicator.fabric());
    move_everything(communicator, gpu);
    send_and_receive(communicator, gpu);
    const Group half = communicator.split(rank % 2);
    move_everything(half, gpu);
    send_and_receive(half, gpu);
    hold_back(communicator, gpu);
    expect_refused(communicator, gpu, {.rows = 2, .widths = {8}, .output_gap = 4},
                   "output_stride: 24 bytes from row to row are not the 16 of a row");
    const std::vector<std::int32_t> counts(static_cast<std::size_t>(communicator.size()), 2);
    expect_refused(communicator, gpu, {.kind = Kind::all_gather_v, .widths = {8}, .counts = counts},
                   "NCCL would need them on the host");
    move_everything(communicator, gpu);
    replay(communicator, gpu);
    say_and_flush("[done]");
  } catch (const Error& error) {
    say_and_flush(fmt::format("[{} {}]\n{}", name(error.code()), error.fault().peer, error.what()));
  }
}

// The parameter: only PCIe links the GPUs, or they are on two hosts.
class GpuNcclGather : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (gpu_count() < 2) GTEST_SKIP() << "NCCL needs a GPU for every rank, and here is one GPU";
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ = testing::TempDir() + "weft-nccl-gather-" + std::to_string(::getpid());
};

INSTANTIATE_TEST_SUITE_P(LinkedByPcie, GpuNcclGather, testing::Bool());

TEST_P(GpuNcclGather, EverythingEqualArrivesAlsoInGraphs) {
  Variables variables = GetParam() ? by_pcie : two_hosts;
  variables.emplace_back("WEFT_TEST_FOLDER", folder_.string());
  for (Spawned& rank : start_ranks("GpuProcess.DISABLED_GatherWorker", gpu_count(), variables)) {
    const Outcome outcome = rank.wait(90s);
    expect_says(outcome.said, "[done]");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
  }
}

}  // namespace
}  // namespace weft::test
