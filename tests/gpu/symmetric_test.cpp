// Symmetric memory of GPU ranks: the host copies to and from every peer's part.
#include "weft/symmetric.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "gpu/support/gpu_world.hpp"
#include "kernel/cuda_error.hpp"
#include "support/ranks.hpp"
#include "symmetric/symmetric_state.hpp"
#include "weft/collectives.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

constexpr std::size_t kShare = 5000;

std::uint8_t mark(int from, int to, int seed) {
  return static_cast<std::uint8_t>(from * 31 + to * 7 + seed * 101 + 1);
}

void meet(Communicator& communicator, GpuRank& gpu) {
  barrier(communicator, {.stream = gpu.stream()});
  gpu.synchronize();
}

void write_to_all(Communicator& communicator, GpuRank& gpu, const SymmetricMemory& memory, int seed) {
  const int rank = communicator.rank();
  meet(communicator, gpu);
  for (int peer = 0; peer < communicator.size(); ++peer) {
    const std::vector<std::uint8_t> share(kShare, mark(rank, peer, seed));
    check_cuda(cudaMemcpy(static_cast<std::byte*>(memory.peer(peer)) + index(rank) * kShare, share.data(), kShare,
                          cudaMemcpyHostToDevice),
               "copy to a peer's part");
  }
  meet(communicator, gpu);
  std::vector<std::uint8_t> mine(memory.bytes());
  check_cuda(cudaMemcpy(mine.data(), memory.data(), mine.size(), cudaMemcpyDeviceToHost), "copy of the own part");
  for (std::size_t at = 0; at < mine.size(); ++at) {
    const int from = static_cast<int>(at / kShare);
    ensure(mine[at] == mark(from, rank, seed),
           "byte " + std::to_string(at) + " is not rank " + std::to_string(from) + "'s");
  }
}

// The table that kernels read.
void expect_table(const Communicator& communicator, const SymmetricMemory& memory) {
  const detail::SymmetricState* const found =
      detail::symmetric_at(communicator.world().state().communicator(), memory.data(), memory.bytes());
  ensure(found != nullptr, "not found");
  std::vector<const void*> table(detail::kMaxRanks);
  check_cuda(cudaMemcpy(table.data(), found->table(), table.size() * sizeof(void*), cudaMemcpyDeviceToHost), "table");
  for (int rank = 0; rank < static_cast<int>(table.size()); ++rank) {
    EXPECT_EQ(table[index(rank)], rank < communicator.size() ? memory.peer(rank) : nullptr) << rank;
  }
}

class GpuSymmetric : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuSymmetric, testing::Values(1, 2, 4));

TEST_P(GpuSymmetric, PeersReachEveryPart) {
  GpuWorld world = make_gpu_world(GetParam(), gpu_config());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    SymmetricMemory first = SymmetricMemory::allocate(communicator, kShare * index(communicator.size()));
    SymmetricMemory second = SymmetricMemory::allocate(communicator, kShare * index(communicator.size()));
    const auto use = [&](const SymmetricMemory& memory, int seed) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0u);
      write_to_all(communicator, gpu, memory, seed);
      expect_table(communicator, memory);
    };
    use(first, 1);
    use(second, 2);
    expect_code([&] { SymmetricMemory::allocate(communicator, std::size_t{1} << 46); }, Errc::system, "memory");
    use(first, 6);  // the failed call has changed nothing
    void* const before = first.data();
    communicator.release();
    const BroadcastArgs nowhere{.input = before, .output = before, .row_bytes = 16, .stream = gpu.stream()};
    expect_code([&] { broadcast(communicator.world(), nowhere); }, Errc::released, "broadcast");
    communicator.acquire();
    use(first, 3);
    use(second, 4);
    first.free();
    use(second, 5);
  }));
}

// NCCL's registration waits for all ranks, so no rank may begin it if one rank has no memory.
TEST(GpuSymmetricMemory, OneRankWithoutMemoryIsFoundByAll) {
  constexpr std::size_t kLeft = std::size_t{1} << 30, kAsked = std::size_t{2} << 30;
  if (gpu_count() < 2) GTEST_SKIP() << "ranks that share a GPU run out of memory together";
  GpuWorld world = make_gpu_world(2, gpu_config());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    void* hoard = nullptr;
    if (rank == 0) {
      std::size_t free = 0, all = 0;
      check_cuda(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
      check_cuda(cudaMalloc(&hoard, free - kLeft), "cudaMalloc of nearly everything");
    }
    expect_code([&] { SymmetricMemory::allocate(communicator, kAsked); }, rank == 0 ? Errc::system : Errc::rendezvous,
                "memory");
    check_cuda(cudaFree(hoard), "cudaFree");
    SymmetricMemory memory = SymmetricMemory::allocate(communicator, kShare * 2);
    write_to_all(communicator, gpu, memory, 1);
  }));
}

}  // namespace
}  // namespace weft::test
