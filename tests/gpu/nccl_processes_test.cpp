// A process per GPU where NCCL carries the data, as GPUs do not reach each other: as if on several hosts, with ranks
// that are late or give up, and on machines that lack something. Every wait has an end.
#include <gtest/gtest.h>

#include <thread>

#include "gpu/support/players.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr int kEndless = 1 << 30;

struct Work {
  int calls;
  bool in_halves = false;  // each half of the ranks is a group
  // What rank 0 does in between.
  std::function<void(Communicator& communicator)> between = {};
};

// Until it is done or a fault comes: says what it was.
void run(GpuRank& gpu, const Work& work) {
  const int rank = variable("RANK"), size = variable("WORLD_SIZE");
  try {
    Communicator communicator = Communicator::from_environment(gpu_config(1500ms));
    const Group group = work.in_halves ? communicator.split(rank * 2 / size) : communicator.world();
    // NCCL adds in an order of its own: sums that are exact in any order.
    const bool by_nccl = communicator.fabric().starts_with("NCCL") && !work.in_halves;
    const Case c = by_nccl ? Case{.count = 5000, .algorithm = Algorithm::automatic, .fill = Fill::integers}
                           : Case{.count = 5000, .algorithm = kAlgorithms[size % 3], .fill = Fill::random};
    const Prepared prepared = prepare(c, group.size());
    run_on_gpu_rank(group, gpu, prepared, group.rank());
    say(fmt::format("working over {}", communicator.fabric()));
    for (int call = 0; call < work.calls; ++call) {
      if (rank == 0 && call == 5 && work.between) work.between(communicator);
      run_on_gpu_rank(group, gpu, prepared, group.rank());
    }
    say("[done]");
  } catch (const Error& error) {
    say(fmt::format("[{} {} {}]\n{}", name(error.code()), error.fault().peer, error.fault().theirs, error.what()));
  }
}

void be_late(Communicator&) {
  std::this_thread::sleep_for(2500ms);  // longer than the deadline
}

const Part twenty_calls("twenty calls", [](GpuRank& gpu) { run(gpu, {.calls = 20}); });
const Part a_late_rank("a late rank", [](GpuRank& gpu) { run(gpu, {.calls = kEndless, .between = be_late}); });
const Part a_late_rank_in_a_half("a late rank in a half",
                                 [](GpuRank& gpu) { run(gpu, {.calls = 50, .in_halves = true, .between = be_late}); });
const Part an_abort("an abort", [](GpuRank& gpu) {
  run(gpu, {.calls = kEndless, .between = [](Communicator& communicator) { communicator.abort(); }});
});

// Skips, with the reason, what one GPU cannot do.
class GpuNcclProcesses : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() < 2) GTEST_SKIP() << "NCCL needs a GPU for every rank, and here is one GPU";
  }
};

// GPUs that cannot write to each other's memory: everything still works, through NCCL, and says so.
TEST_F(GpuNcclProcesses, AcrossHosts) {
  for (const std::string& said : players_on_two_hosts().play(twenty_calls)) {
    expect_says(said, "[done]");
    expect_says(said, "working over NCCL: only");
  }
}

// ------------------------------------------------------------------------------------------------------------
// faults where NCCL carries the data

// It ended by itself, with a fault that a rank may see when a peer of NCCL's does not answer, and with its history.
void expect_ended(const std::string& all, std::size_t rank) {
  const auto said = [&](const char* what) { return all.find(what) != std::string::npos; };
  EXPECT_TRUE(said("[timeout -1 ") || said("[peer failed ") || said("[system ")) << "rank " << rank << ": " << all;
  expect_says(all, "all_reduce sum bf16[5000] nccl tag 0");
}

TEST_F(GpuNcclProcesses, AcrossHostsALateRankEndsAll) {
  const std::vector<std::string> said = players_on_two_hosts().play(a_late_rank);
  for (std::size_t rank = 0; rank < said.size(); ++rank) expect_ended(said[rank], rank);
}

TEST_F(GpuNcclProcesses, AcrossHostsAnAbortEndsAll) {
  const std::vector<std::string> said = players_on_two_hosts().play(an_abort);
  expect_says(said.front(), "[aborted 0 ");
  for (std::size_t rank = 1; rank < said.size(); ++rank) expect_ended(said[rank], rank);
}

// A fault of a group on one host, whose ranks reach each other: ranks that are out of reach are no place for poison.
TEST_F(GpuNcclProcesses, AcrossHostsAFaultOnOneHostStaysThere) {
  const std::size_t ranks = static_cast<std::size_t>(gpu_count());
  if (ranks < 4) GTEST_SKIP() << "two hosts of two GPUs each are needed";
  const std::vector<std::string> said = players_on_two_hosts().play(a_late_rank_in_a_half);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const bool there = rank * 2 / ranks == 0;
    if (!there) expect_says(said[rank], "[done]");
    if (rank == 0) expect_says(said[rank], "[peer failed ");
    if (there && rank != 0 && said[rank].find("[peer failed ") == std::string::npos) {
      expect_says(said[rank], "[timeout 0 ");
    }
  }
}

// Behind the other parts, of which faults have ended most.
TEST_F(GpuNcclProcesses, AcrossHostsProcessesEndWellAfterFaults) {
  if (!players_on_two_hosts().started()) players_on_two_hosts().play(a_late_rank);
  players_on_two_hosts().expect_good_end();
}

// ------------------------------------------------------------------------------------------------------------
// machines that lack something: it works through NCCL, or creation says why not

void expect_works_or_says_why(const Variables& lacking) {
  Players pair(2, lacking);
  for (const std::string& all : pair.play(twenty_calls)) {
    const auto said = [&](const char* what) { return all.find(what) != std::string::npos; };
    const bool works = said("working over ") && said("[done]");
    const bool refused = said("[rendezvous ") || said("[unsupported ") || said("[system ");
    EXPECT_TRUE(works || (refused && !said("working over "))) << all;
    const std::size_t begin = all.find(works ? "working over" : "[rendezvous ");
    if (begin != std::string::npos) fmt::print("{}\n", all.substr(begin, all.find('\n', begin) - begin));
  }
  pair.expect_good_end();
}

TEST_F(GpuNcclProcesses, WithoutPeerAccess) {
  expect_works_or_says_why({{"NCCL_P2P_DISABLE", "1"}});
}

TEST_F(GpuNcclProcesses, WithoutVirtualMemory) {
  expect_works_or_says_why({{"NCCL_CUMEM_ENABLE", "0"}});
}

}  // namespace
}  // namespace weft::test
