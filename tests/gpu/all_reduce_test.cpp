// all_reduce on GPU ranks: the CPU tests' checks for kernels. Worlds with more ranks than GPUs share them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/kernels.hpp"
#include "kernel/cuda_error.hpp"
#include "support/case_lists.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

class GpuAllReduce : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuAllReduce, testing::Values(1, 2, 3, 4, 8));

TEST_P(GpuAllReduce, CountsAroundPacksShardsAndPieces) {
  GpuWorld world = make_gpu_world(GetParam(), small_gpu_pieces());
  expect_right(world, cases_around_pieces(GetParam()));
}

// Worlds with sizes that are no power of two, and one with more ranks than a kernel's argument holds.
class GpuOddWorlds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuOddWorlds, testing::Values(5, 6, 7, 9));

TEST_P(GpuOddWorlds, EveryTypeReductionAndAlgorithm) {
  const int ranks = GetParam();
  GpuWorld world = make_gpu_world(ranks, small_gpu_pieces());
  std::vector<Case> cases;
  for (const DataType type : kTypes) {
    for (const Algorithm algorithm : kAlgorithms) {
      const std::size_t whole = 8 * static_cast<std::size_t>(ranks), piece = piece_of(algorithm, type, ranks);
      for (const std::size_t count : {std::size_t{1}, whole - 1, whole, 5 * whole, piece + 3, 2 * piece + whole}) {
        const auto seed = static_cast<std::uint32_t>(cases.size());
        cases.push_back({.count = count,
                         .type = type,
                         .op = mostly_sum(seed),
                         .algorithm = algorithm,
                         .fill = seed % 2 == 0 ? Fill::random : Fill::special,
                         .in_place = seed % 3 == 0,
                         .seed = seed});
      }
    }
  }
  expect_right(world, cases);
}

TEST_P(GpuAllReduce, EveryTypeReductionAndAlgorithmOnEveryKindOfData) {
  constexpr std::size_t counts[] = {5120, 5017};  // whole packs, and others
  expect_right(lasting_gpu_world(GetParam()), cases_of_all_data(counts));
}

TEST_P(GpuAllReduce, PointersOfEveryAlignment) {
  expect_right(lasting_gpu_world(GetParam()), cases_of_all_alignments());
}

// Each rank chooses its own grid and alignment.
TEST_P(GpuAllReduce, RanksWithDifferentGridsAndAlignments) {
  GpuWorld& world = lasting_gpu_world(GetParam());
  std::vector<Case> cases;
  for (const std::size_t count : {99u, 640u, 30'000u}) {
    for (const Algorithm algorithm : kAlgorithms) cases.push_back({.count = count, .algorithm = algorithm});
  }
  const auto prepared = prepare_all(cases, GetParam());
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (Prepared p : prepared) {
      p.call.launch = {.blocks = 2 + rank % 5, .threads = 64 << rank % 3};
      p.call.input_shift = static_cast<std::size_t>(rank) % 3;
      p.call.output_shift = static_cast<std::size_t>(rank) / 3;
      p.call.in_place = rank % 5 == 4;
      run_on_gpu_rank(communicator, gpu, p, rank);
    }
  }));
}

// More chunks than a group has slots. On some ranks some blocks or warp groups move and others reduce. On other ranks
// each does both.
class GpuPipelined : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuPipelined, testing::Values(2, 3, 4, 8));
TEST_P(GpuPipelined, FewBlocksAndAll) {
  const int ranks = GetParam();
  constexpr std::size_t kCount = 160 * 16 * 1024;  // 40 chunks of each shard
  GpuWorld world = make_gpu_world(ranks, gpu_config());
  const int most = 66 / ((ranks + gpu_count() - 1) / gpu_count());  // of a group's call; a GPU's ranks share them
  const Launch launches[][2] = {{{.blocks = std::min(most, 17)}, {.blocks = 3}},
                                {{.blocks = 4, .threads = 128}, {.blocks = 2, .threads = 96}},  // one block, all duties
                                {{.blocks = 6, .threads = 96}, {.blocks = most, .threads = most > 64 ? 0 : 256}}};
  std::vector<Case> cases;
  for (const std::size_t extra : {0u, 8u * 1001u, 3u}) {
    cases.push_back(
        {.count = kCount + extra, .algorithm = Algorithm::pipelined, .fill = Fill::random, .in_place = extra != 0});
  }
  const auto prepared = prepare_all(cases, ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const Group group = communicator.split(0);
    for (std::size_t i = 0; i < prepared.size(); ++i) {
      Prepared p = prepared[i];
      p.call.launch = launches[i][rank % 2];
      for (int again = 0; again < 3; ++again) run_on_gpu_rank(group, gpu, p, rank);
    }
  }));
}

TEST_P(GpuAllReduce, GroupsSideBySideAndInTurnsWithTheWorld) {
  const int ranks = GetParam();
  GpuWorld world = make_gpu_world(ranks, gpu_config());
  const auto group_case = [&](std::size_t call, int color) {
    return Case{.count = call * 37 % 400,
                .type = kTypes[call % std::size(kTypes)],
                .algorithm = kAlgorithms[call / 4 % 3],
                .seed = static_cast<std::uint32_t>(call * 8) + static_cast<std::uint32_t>(color),
                .launch = world.launch()};
  };
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const int color = rank % 3 == 2 ? -1 : rank % 2;
    const Group group = communicator.split(color);
    for (std::size_t call = 0; call < 40; ++call) {
      if (color >= 0) run_on_gpu_rank(group, gpu, prepare(group_case(call, color), group.size()), group.rank());
      if (call % 4 == 0) run_on_gpu_rank(communicator, gpu, prepare(group_case(call, 7), ranks), rank);
    }
  }));
}

// The same calls on CPU ranks have the same bits.
TEST_P(GpuAllReduce, HasTheBitsOfTheCpu) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  std::vector<Case> cases;
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const Fill fill : {Fill::random, Fill::bits, Fill::special}) {
        if (fill == Fill::bits && op != ReduceOp::sum) continue;
        cases.push_back({.count = 3001, .type = type, .op = op, .fill = fill, .seed = 12});
      }
    }
  }
  const auto prepared = prepare_for(world, cases);
  const auto hash = [](std::uint64_t h, std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) h = (h ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
    return h;
  };
  std::vector<std::uint64_t> on_gpu(static_cast<std::size_t>(ranks), 1), on_cpu = on_gpu;
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    std::uint64_t& mine = on_gpu[static_cast<std::size_t>(rank)];
    for (const Prepared& p : prepared) {
      gpu.reset();
      GpuTensors tensors(gpu, p, rank);
      all_reduce(communicator, tensors.arguments(gpu.stream()));
      tensors.download(gpu.stream());
      gpu.synchronize();
      tensors.check();
      mine = hash(mine, tensors.result());
    }
  }));
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    std::uint64_t& mine = on_cpu[static_cast<std::size_t>(rank)];
    for (const Prepared& p : prepared) {
      Tensors tensors(p.call, p.inputs[static_cast<std::size_t>(rank)]);
      AllReduceArgs args = arguments(p.call, tensors.input.content().data(), tensors.output.content().data());
      args.launch = {};
      all_reduce(communicator, args);
      mine = hash(mine, tensors.output.content());
    }
  }));
  EXPECT_EQ(on_gpu, on_cpu);
  EXPECT_EQ(on_gpu, std::vector<std::uint64_t>(on_gpu.size(), on_gpu[0]));
}

unsigned long long wrong_sums(GpuRank& gpu, const std::uint16_t* data, std::size_t count, int ranks) {
  gpu.use();
  gpu.reset();
  auto* wrong = reinterpret_cast<unsigned long long*>(gpu.device_memory(sizeof(unsigned long long)));
  auto* result = reinterpret_cast<unsigned long long*>(gpu.host_memory(sizeof(unsigned long long)));
  check_cuda(cudaMemsetAsync(wrong, 0, sizeof(*wrong), gpu.stream()), "cudaMemsetAsync");
  count_wrong_sums(data, count, ranks, wrong, gpu.stream());
  check_cuda(cudaMemcpyAsync(result, wrong, sizeof(*wrong), cudaMemcpyDeviceToHost, gpu.stream()), "download");
  gpu.synchronize();
  return *result;
}

// More than 2^32 elements, 2^33 bytes, in place.
TEST(GpuLargeMessages, MoreThanTwoToThe32Elements) {
  constexpr int ranks = 2;
  constexpr std::size_t count = (std::size_t{1} << 32) + 12345;
  GpuWorld& world = lasting_gpu_world(ranks);
  std::vector<std::uint16_t*> data(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {  // allocated beforehand: see GpuRank
    world.gpus[rank]->use();
    check_cuda(cudaMalloc(&data[rank], count * sizeof(std::uint16_t)), "cudaMalloc");
  }
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    std::uint16_t* mine = data[static_cast<std::size_t>(rank)];
    fill_pattern(mine, count, rank, gpu.stream());
    all_reduce(communicator,
               {.input = mine, .output = mine, .count = count, .stream = gpu.stream(), .launch = world.launch()});
    gpu.synchronize();
    communicator.check();
  }));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    GpuRank& gpu = *world.gpus[rank];
    EXPECT_EQ(wrong_sums(gpu, data[rank], count, ranks), 0u);
    // Checks the checker: one changed element is one wrong element.
    check_cuda(cudaMemsetAsync(data[rank] + count - 1, 0x42, sizeof(std::uint16_t), gpu.stream()), "cudaMemsetAsync");
    EXPECT_EQ(wrong_sums(gpu, data[rank], count, ranks), 1u);
    check_cuda(cudaFree(data[rank]), "cudaFree");
  }
}

constexpr Algorithm kOfTheSwitch[] = {Algorithm::multimem_one_shot, Algorithm::multimem_two_shot};

// The reason why this machine makes no multicast object, or an empty text. A GPU that supports them is not enough: one
// may put the host's GPUs, which others share, out of service. So the user must allow it.
std::string why_no_multicast() {
  const auto variable_is = [](const char* variable, std::string_view value) {
    const char* const set = std::getenv(variable);
    return set != nullptr && set == value;
  };
  if (gpu_count() < 2) return "multimem needs a GPU for every rank, and here is one GPU";
  if (variable_is("NCCL_NVLS_ENABLE", "0")) return "NCCL_NVLS_ENABLE=0 forbids NVLink multicast here";
  if (!variable_is("WEFT_TEST_MULTICAST", "1")) return "WEFT_TEST_MULTICAST=1 has to allow NVLink multicast here";
  const std::string known = lasting_gpu_world(gpu_count()).communicators.front().multicast();
  return known.ends_with("nothing is known against it") ? "" : "no NVLink multicast: " + known;
}

// The switch's sums are right around packs and pieces. Integers are exact in any order.
TEST(GpuMultimem, SumsOfTheSwitchAreRight) {
  const std::string why_not = why_no_multicast();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  Config config = gpu_config();
  config.multicast = true;
  config.two_shot_bytes = 64 << 10;
  GpuWorld world = make_gpu_world(gpu_count(), config);
  std::vector<Case> cases;
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32}) {
    for (const Algorithm algorithm : kOfTheSwitch) {
      for (const std::size_t count : {0u, 1u, 517u, 5120u, 40'001u}) {
        const auto seed = static_cast<std::uint32_t>(cases.size());
        cases.push_back(
            {.count = count, .type = type, .algorithm = algorithm, .in_place = seed % 2 == 0, .seed = seed});
      }
    }
  }
  expect_right(world, cases);
}

// A multicast object needs the Config's consent. Without it the call is rejected with the reason, before a kernel reads
// the missing memory.
TEST(GpuMultimem, NeedsConfigMulticast) {
  constexpr int world_size = 2;
  GpuWorld& world = lasting_gpu_world(world_size);
  const Prepared good = prepare_for(world, {{.count = 100}})[0];
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    std::byte* const memory = gpu.device_memory(256);
    for (const Algorithm algorithm : kOfTheSwitch) {
      const AllReduceArgs args{.input = memory, .output = memory, .count = 64, .algorithm = algorithm};
      expect_code([&] { all_reduce(communicator, args); }, Errc::unsupported,
                  fmt::format("algorithm: {} needs multicast: not asked for (Config::multicast)", name(algorithm)));
    }
    run_on_gpu_rank(communicator, gpu, good, rank);
  }));
}

}  // namespace
}  // namespace weft::test
