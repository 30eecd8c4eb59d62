// Faults of dispatch and combine on GPU ranks: every rank ends with an error that names the rank and the cause.
#include <gtest/gtest.h>

#include <functional>

#include "gpu/support/gpu_moe.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

std::vector<Ending> run_small(const PreparedMoe& p, std::chrono::nanoseconds deadline,
                              const std::function<void(const GpuMoe& moe, GpuRank& gpu, int rank)>& body) {
  GpuWorld world = make_gpu_world(2, gpu_config(deadline));
  return run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    GpuMoe moe(gpu, communicator, exchange, world.launch());
    moe.fill(p);
    body(moe, gpu, rank);
  });
}

void expect_one_dispatch_too_many(const MoeCase& c) {
  const PreparedMoe p = prepare(c, 2, 5);
  for (const Ending& ending : run_small(p, 5s, [&](const GpuMoe&moe, GpuRank&gpu, int) {
         for (int i = 0; i < 4; ++i) moe.dispatch(p, gpu.stream(), i >= 2);  // the last two discard
         moe.check_dispatch(p);
         moe.dispatch(p, gpu.stream());
         moe.check_dispatch(p);
       })) {
    expect_fault(ending, {Errc::in_flight, Errc::peer_failed}, "third dispatch");
  }
}

TEST(GpuMoeFaults, OneDispatchTooMany) {
  const MoeCase c = {.args = small_exchange(), .tokens = {6, 3}};
  expect_one_dispatch_too_many(c);
  expect_one_dispatch_too_many(on_ring({{c}})[0][0]);
}

// An overflow overwrites nothing.
TEST(GpuMoeFaults, OverflowIsAnError) {
  for (const MoeCase& c : more_rows_than_room()) {
    const PreparedMoe p = prepare(c, 2, 5);
    const auto endings = run_small(p, 5s, [&](const GpuMoe& moe, GpuRank& gpu, int) {
      try {
        run_on_gpu_rank(moe, gpu, p);
      } catch (const Error&) {
        moe.check_neighbours(p);
        throw;
      }
    });
    expect_fault(endings[0], {Errc::peer_failed}, "the rank that only sends");
    expect_fault(endings[1], {Errc::overflow}, "the experts' rank");
  }
}

// A call that the other rank leaves out, by slots and through a ring. Weights that are given to combine are waited for
// by the warps that send sums, and there one warp may fail alone.
std::vector<PreparedMoe> small_calls() {
  const std::vector<Batch> early = {{{.args = small_exchange(), .tokens = {6}}}};
  std::vector<PreparedMoe> all;
  for (const std::vector<Batch>& batches : {early, weighed_late(early)}) {
    EXPECT_FALSE(batches.empty());
    for (const std::vector<Batch>& by : {batches, on_ring(batches)}) all.push_back(prepare(by[0][0], 2, 5));
  }
  return all;
}
void expect_missed(const Ending& ending, int peer, const char* operation) {
  expect_fault(ending, {Errc::timeout}, "the rank that waits");
  ASSERT_TRUE(ending.error.has_value());
  EXPECT_EQ(ending.error->fault().peer, peer);
  expect_says(ending.error->fault().operation, operation);
}

TEST(GpuMoeFaults, AMissingDispatchIsNamed) {
  for (const PreparedMoe& p : small_calls()) {
    const auto endings = run_small(p, 500ms, [&](const GpuMoe& moe, GpuRank& gpu, int rank) {
      if (rank == 0) run_on_gpu_rank(moe, gpu, p);
    });
    expect_missed(endings[0], 1, "dispatch");
    EXPECT_EQ(endings[1].what, "");
  }
}

TEST(GpuMoeFaults, AMissingCombineIsNamed) {
  for (const PreparedMoe& p : small_calls()) {
    const auto endings = run_small(p, 500ms, [&](const GpuMoe& moe, GpuRank& gpu, int rank) {
      const DispatchHandle handle = moe.dispatch(p, gpu.stream());
      moe.check_dispatch(p);
      if (rank == 1) moe.combine(p, handle, gpu.stream());
      gpu.synchronize();
      if (rank == 1) moe.check_combine(p);
    });
    EXPECT_EQ(endings[0].what, "");
    expect_missed(endings[1], 0, "combine");
  }
}

TEST(GpuMoeFaults, AMissingCombineIsNamedByAHalf) {
  for (const PreparedMoe& p : small_calls()) {
    const auto endings = run_small(p, 500ms, [&](const GpuMoe& moe, GpuRank& gpu, int rank) {
      const DispatchHandle handle = moe.dispatch(p, gpu.stream());
      moe.check_dispatch(p);
      if (rank == 1) {
        moe.combine_send(p, handle, gpu.stream());
        moe.combine_wait(p, handle, gpu.stream());
      }
      gpu.synchronize();
      if (rank == 1) moe.check_combine(p);
    });
    EXPECT_EQ(endings[0].what, "");
    expect_missed(endings[1], 0, "combine");
  }
}

// Checks the checker: one wrong bit of an expert's result is found.
TEST(GpuMoeFaults, AWrongBitIsSeen) {
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6}}, 2, 5);
  PreparedMoe other = p;
  for (Bytes& result : other.results) result.back() ^= std::byte{1};
  for (const Ending& ending : run_small(p, 5s, [&](const GpuMoe&moe, GpuRank&gpu, int) {
         const DispatchHandle handle = moe.dispatch(p, gpu.stream());
         moe.combine(p, handle, gpu.stream());
         moe.check_dispatch(p);
         moe.check_combine(other);
       })) {
    expect_says(ending.what, "combined rows: byte");
  }
}

}  // namespace
}  // namespace weft::test
