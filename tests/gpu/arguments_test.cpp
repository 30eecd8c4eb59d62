// Impossible calls on GPU ranks: those of the CPU tests, and memory and streams of the wrong device. Each is rejected
// with the argument's name before anything is sent, and the communicator works on.
#include <gtest/gtest.h>

#include "gpu/support/gpu_move.hpp"
#include "gpu/support/gpu_world.hpp"
#include "support/ranks.hpp"
#include "support/rejections.hpp"

namespace weft::test {
namespace {

constexpr int kRanks = 3;

// False if the call succeeded: then the other ranks would wait for this one.
bool expect_rejected(const std::string& part, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "not rejected: " << part;
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument) << error.what();
    expect_says(error.what(), part);
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << part;  // the host program's error state is unchanged
  return true;
}

// Faults that only GPU ranks can make. `other`: memory and stream of another rank, which may share the GPU.
std::vector<RejectedAllReduce> of_the_wrong_place(std::byte* memory, std::byte* other, const GpuRank& mine,
                                                  const GpuRank& theirs) {
  static std::byte pageable[8192];
  std::vector<RejectedAllReduce> all;
  for (const DataType type : kTypes) {
    for (const Algorithm algorithm :
         {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined, Algorithm::nccl}) {
      const AllReduceArgs good{.input = memory,
                               .output = memory + 4096,
                               .count = 64,
                               .type = type,
                               .algorithm = algorithm,
                               .stream = mine.stream()};
      const auto add = [&](const std::string& part, auto&& spoil) {
        all.push_back({part, good});
        spoil(all.back().args);
      };
      const std::string host = "is host memory that the GPU cannot reach";
      add(host, [&](auto& a) { a.input = pageable; });
      add("output: ", [&](auto& a) { a.output = pageable + 4096; });
      // The number of calls is the same if ranks share a GPU. A rank with more rejections than another would report a
      // different call. A wrong stream is not reported to peers.
      const bool apart = mine.device() != theirs.device();
      const std::string of_other = apart ? "is memory of GPU " + std::to_string(theirs.device()) : host;
      add(of_other, [&](auto& a) { a.input = apart ? other : pageable; });
      add(apart ? of_other : "output: ", [&](auto& a) { a.output = (apart ? other : pageable) + 4096; });
      if (!apart) continue;
      add("stream: belongs to GPU " + std::to_string(theirs.device()), [&](auto& a) { a.stream = theirs.stream(); });
    }
  }
  return all;
}

TEST(GpuArguments, AHundredMistakesAreRejectedByNameAndLeaveNoTrace) {
  GpuWorld& world = lasting_gpu_world(kRanks);
  const Prepared good = prepare_for(world, {{.count = 100, .seed = 3}})[0];
  std::vector<std::byte*> memory;
  for (const auto& gpu : world.gpus) memory.push_back((gpu->reset(), gpu->device_memory(8192)));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    // A rank of another GPU, if there is one: else ranks would have lists of different lengths.
    const auto mine = static_cast<std::size_t>(rank);
    std::size_t next = (mine + 1) % kRanks;
    if (world.gpus[next]->device() == gpu.device()) next = (mine + 2) % kRanks;
    std::vector<RejectedAllReduce> all = rejected_all_reduces(memory[mine], Device::cuda);
    for (RejectedAllReduce& one : all) one.args.stream = gpu.stream();
    EXPECT_GE(all.size(), 100u);
    for (RejectedAllReduce& one : of_the_wrong_place(memory[mine], memory[next], gpu, *world.gpus[next])) {
      all.push_back(std::move(one));
    }
    // Good calls on every rank, the same number each.
    constexpr std::size_t rounds = 8;
    for (std::size_t round = 0; round < rounds; ++round) {
      for (std::size_t i = all.size() * round / rounds; i < all.size() * (round + 1) / rounds; ++i) {
        if (!expect_rejected(all[i].part, [&] { all_reduce(communicator, all[i].args); })) return;
      }
      run_on_gpu_rank(communicator, gpu, good, rank);
    }
  }));
}

TEST(GpuArguments, AGpuThatDoesNotExist) {
  Config config = gpu_config();
  config.cuda_device = gpu_count() + 3;
  expect_says(error_of([&] { Communicator::local(1, config); }),
              fmt::format("Config::cuda_device: {} is not between −1 and {}", gpu_count() + 3, gpu_count() - 1));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// CUDA refuses to launch into an invalidated capture. The error lists this rank's earlier calls.
TEST(GpuArguments, ALaunchThatFailsHasTheHistory) {
  GpuWorld world = make_gpu_world(1, gpu_config());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    const AllReduceArgs args{.input = gpu.device_memory(4096),
                             .output = gpu.device_memory(4096),
                             .count = 1024,
                             .type = DataType::f32,
                             .stream = gpu.stream()};
    all_reduce(communicator, args);
    gpu.synchronize();
    ASSERT_EQ(cudaStreamBeginCapture(gpu.stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_NE(cudaStreamSynchronize(gpu.stream()), cudaSuccess);  // a capture forbids it
    static_cast<void>(cudaGetLastError());
    const std::string said = error_of([&] { all_reduce(communicator, args); });
    cudaGraph_t graph = nullptr;
    EXPECT_NE(cudaStreamEndCapture(gpu.stream(), &graph), cudaSuccess);
    static_cast<void>(cudaGetLastError());
    expect_says(said, "last calls of this rank on this group:\n  0 … 1 all_reduce sum f32[1024] one-shot tag 0 (× 2)");
    all_reduce(communicator, args);
    gpu.synchronize();
    communicator.check();
  }));
}

// Multicast objects are only made on request, since not every machine allows them. Ranks that share GPUs cannot have
// one.
TEST(GpuArguments, MultimemNeedsConfigMulticastAndGpusOfTheirOwn) {
  GpuWorld& world = lasting_gpu_world(kRanks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    EXPECT_EQ(communicator.multicast().rfind("not asked for (Config::multicast); ", 0), 0u) << communicator.multicast();
    std::byte* const memory = gpu.device_memory(256);
    for (const Algorithm algorithm : {Algorithm::multimem_one_shot, Algorithm::multimem_two_shot}) {
      try {
        all_reduce(communicator,
                   {.input = memory, .output = memory, .count = 64, .algorithm = algorithm, .stream = gpu.stream()});
        ADD_FAILURE() << "not rejected";
        return;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::unsupported) << error.what();
        expect_says(error.what(), std::string(name(algorithm)) + " needs multicast: not asked for");
      }
    }
  }));
  Config config = gpu_config();
  config.multicast = true;
  expect_says(error_of([&] { Communicator::local(gpu_count() + 1, config); }), "Config::multicast: ranks share GPUs");
}

TEST(GpuArguments, MistakesOfGathersAreRejectedByName) {
  GpuWorld& world = lasting_gpu_world(kRanks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    std::byte* const memory = gpu.device_memory(8192);
    const auto* counts = reinterpret_cast<const std::int32_t*>(gpu.device_memory(16));
    static std::byte pageable[256];
    std::vector<RejectedMove> all = rejected_moves(memory, counts, Device::cuda);
    all.push_back({"input: ", [&](const Group& group) {
                     all_gather_into_tensor(group, {.input = pageable, .output = memory, .row_bytes = 64});
                   }});
    all.push_back({"output: ", [&](const Group& group) {
                     all_to_all(group, {.input = memory, .output = pageable, .row_bytes = 64});
                   }});
    all.push_back({"counts.rows: ", [&](const Group& group) {
                     const auto* on_host = reinterpret_cast<const std::int32_t*>(pageable);
                     reduce_scatter_v(group, {.input = memory,
                                              .output = memory + 4096,
                                              .width = 8,
                                              .counts = {.rows = on_host},
                                              .input_rows = 6,
                                              .output_rows = 2});
                   }});
    for (const RejectedMove& one : all) {
      if (!expect_rejected(one.part, [&] { one.call(communicator); })) return;
    }
    run_on_gpu_rank(communicator, gpu, {.rows = 3, .widths = {20}, .launch = world.launch()});
  }));
}

}  // namespace
}  // namespace weft::test
