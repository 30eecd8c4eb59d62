// Copies on GPU ranks with outputs in symmetric memory: the CPU tests' checks for kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gpu/support/gpu_move.hpp"
#include "gpu/support/gpu_side.hpp"
#include "gpu/support/graph.hpp"
#include "gpu/support/kernels.hpp"
#include "kernel/cuda_error.hpp"
#include "support/move_mixes.hpp"
#include "support/ranks.hpp"
#include "support/symmetric_cases.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

class GpuSymmetricGather : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuSymmetricGather, testing::Values(1, 2, 3, 4, 8));

TEST_P(GpuSymmetricGather, GivesTheBytesOfAnyOtherOutput) {
  const int ranks = GetParam();
  std::vector<Move> moves = symmetric_moves(ranks);
  using MakeConfig = Config (*)();
  for (const MakeConfig config : {MakeConfig{nullptr}, MakeConfig{small_gpu_slots}}) {
    GpuWorld& world = lasting_gpu_world(ranks, config);
    for (Move& move : moves) move.launch = world.launch();
    expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
      auto memory = SymmetricMemory::allocate(communicator, kSymmetricBytes);
      for (const Move& move : moves) run_on_gpu_rank(communicator, gpu, move, static_cast<std::byte*>(memory.data()));
      memory.free();
    }));
  }
}

// So many rows that they take relays in chunks. Relays pass them on from their own outputs.
TEST_P(GpuSymmetricGather, OneBusyRank) {
  const int ranks = GetParam();
  if (ranks < 3) GTEST_SKIP() << "two ranks have no third one to go by";
  GpuWorld& world = lasting_gpu_world(ranks, small_gpu_slots);
  const std::int32_t busy = 118 / (ranks - 2) + 1;  // rows of 64 KiB: more than the 7 MiB that chunks must spare
  std::vector<Move> moves;
  for (int owner : {0, ranks - 1}) {
    Move gather{.kind = Kind::all_gather_v, .widths = {65536}, .fill = Fill::bits, .launch = world.launch()};
    gather.counts.assign(static_cast<std::size_t>(ranks), 1);
    gather.counts[static_cast<std::size_t>(owner)] = busy;
    moves.push_back(with_slots(gather, ranks));
    moves.push_back({.kind = Kind::broadcast,
                     .rows = static_cast<std::size_t>(busy),
                     .widths = {65536},
                     .fill = Fill::bits,
                     .root = owner,
                     .launch = world.launch()});
  }
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    auto memory = SymmetricMemory::allocate(communicator, kSymmetricBytes);
    for (const Move& move : moves) run_on_gpu_rank(communicator, gpu, move, static_cast<std::byte*>(memory.data()));
    memory.free();
  }));
}

// One graph for all counts. Its replays send the data that a rank has written anew.
TEST_P(GpuSymmetricGather, OneGraphServesEveryCount) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks, small_gpu_slots);
  const auto n = static_cast<std::size_t>(ranks);
  const auto with = [&](std::vector<std::int32_t> counts, std::uint32_t seed) {
    return Move{.kind = Kind::all_gather_v,
                .widths = {512, 64},
                .fill = Fill::bits,
                .counts = std::move(counts),
                .padding = Padding::max,
                .seed = seed,
                .launch = world.launch()};
  };
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    auto memory = SymmetricMemory::allocate(communicator, kSymmetricBytes);
    const RankMove largest = prepare(with(std::vector<std::int32_t>(n, 12), 1), ranks, rank);
    GpuMove gather(gpu, largest, static_cast<std::byte*>(memory.data()));
    {
      const Graph graph(gpu, [&] { gather.call(communicator); });
      std::mt19937 random(7);  // the same on every rank
      for (std::uint32_t turn = 0; turn < 40; ++turn) {
        std::vector<std::int32_t> counts;
        for (int i = 0; i < ranks; ++i) {
          counts.push_back(static_cast<std::int32_t>(random() % 3 == 0 ? 0 : random() % 13));
        }
        const RankMove now = prepare(with(counts, turn), ranks, rank);
        gather.fill(now);
        graph.launch(gpu.stream());
        gather.check(now);
        communicator.check();
      }
    }
    memory.free();
  }));
}

class GpuSymmetricGraphs : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuSymmetricGraphs, testing::Values(2, 3, 4));

// Ranks have captured different capacities. If their actions depended on capacities and not on counts, they would not
// meet. Two graphs and eager calls take turns, all with the same output.
TEST_P(GpuSymmetricGraphs, ServeEveryBatch) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks, small_gpu_slots);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    auto memory = SymmetricMemory::allocate(communicator, kSymmetricBytes);
    const GpuSide side(world, gpu, communicator, static_cast<std::byte*>(memory.data()));
    gather_every_batch_to_one_place(side, ranks, rank);
    memory.free();
  }));
}

void fill_with_canaries(GpuRank& gpu, const SymmetricMemory& memory) {
  check_cuda(cudaMemsetAsync(memory.data(), std::to_integer<int>(kNanCanary), memory.bytes(), gpu.stream()),
             "cudaMemsetAsync");
}

// Throws if any byte outside `bytes` from `begin` on has changed.
void expect_canaries_around(GpuRank& gpu, const SymmetricMemory& memory, std::size_t begin, std::size_t bytes) {
  std::byte* const got = gpu.host_memory(memory.bytes());
  check_cuda(cudaMemcpyAsync(got, memory.data(), memory.bytes(), cudaMemcpyDeviceToHost, gpu.stream()), "download");
  gpu.synchronize();
  std::fill_n(got + begin, bytes, kNanCanary);
  std::byte* const end = got + memory.bytes();
  std::byte* const changed = std::find_if(got, end, [](std::byte byte) { return byte != kNanCanary; });
  ensure(changed == end, fmt::format("byte {} was written, outside of {} from {} on", changed - got, bytes, begin));
}

// A copy of rows of integers. Kernels increment them before it and compare behind it, without the host.
class CountedUpMove {
 public:
  CountedUpMove(GpuRank& gpu, const RankMove& move, std::byte* outputs, unsigned long long* wrong)
      : stream_(gpu.stream()), on_gpu_(gpu, move, outputs), wrong_(wrong) {
    const std::size_t width = move.move.widths[0], ranks = move.places.size();
    const Memory& input = move.memory[move.input(0)];
    const Memory& output = move.memory[move.output(0)];
    sent_ = move.move.kind == Kind::all_to_all ? ranks * width : width;
    received_ = move.move.kind == Kind::broadcast ? width : ranks * width;
    input_ = reinterpret_cast<std::int32_t*>(on_gpu_.place_of(input) + input.begin);
    output_ = on_gpu_.place_of(output) + output.begin;
    wanted_ = gpu.device_memory(received_ * sizeof(std::int32_t));
    check_cuda(cudaMemcpyAsync(wanted_, output.after.data() + output.begin, received_ * sizeof(std::int32_t),
                               cudaMemcpyHostToDevice, stream_),
               "upload");
    gpu.synchronize();
  }

  void enqueue(const Group& group) {
    increment(input_, sent_, stream_);
    increment(reinterpret_cast<std::int32_t*>(wanted_), received_, stream_);
    on_gpu_.call(group);
    count_differences(output_, wanted_, received_ * sizeof(std::int32_t), wrong_, stream_);
  }

 private:
  cudaStream_t stream_;
  GpuMove on_gpu_;
  unsigned long long* wrong_;
  std::size_t sent_, received_;  // integers
  std::int32_t* input_;
  std::byte* output_;
  std::byte* wanted_;
};

// Every replay moves other data than the one before. No host waits between, so peers are at the next call while a rank
// still compares. A write without that rank's ready flag, or by an older call's, is found.
TEST_P(GpuSymmetricGraphs, InTurnsWithEagerCallsBackToBack) {
  const int ranks = GetParam();
  constexpr std::size_t longest = 40'000;
  GpuWorld& world = lasting_gpu_world(ranks, small_gpu_slots);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    auto memory = SymmetricMemory::allocate(communicator, std::size_t{1} << 20);
    auto* const outputs = static_cast<std::byte*>(memory.data());
    fill_with_canaries(gpu, memory);
    auto* const wrong = reinterpret_cast<unsigned long long*>(gpu.device_memory(sizeof(unsigned long long)));
    check_cuda(cudaMemsetAsync(wrong, 0, sizeof(*wrong), gpu.stream()), "cudaMemsetAsync");
    const auto move = [&](Kind kind, std::size_t width) {
      return prepare({.kind = kind,
                      .widths = {width},
                      .type = DataType::i32,
                      .fill = Fill::integers,
                      .root = ranks - 1,
                      .launch = world.launch()},
                     ranks, rank);
    };
    const RankMove gather = move(Kind::all_gather, longest), spread = move(Kind::broadcast, 50'000),
                   shuffle = move(Kind::all_to_all, 10'000), in_lines = move(Kind::all_gather, 24);
    CountedUpMove gathering(gpu, gather, outputs, wrong), spreading(gpu, spread, outputs, wrong),
        shuffling(gpu, shuffle, outputs, wrong), eager(gpu, in_lines, outputs, wrong);
    {
      const Graph first(gpu, [&] {
        gathering.enqueue(communicator);
        spreading.enqueue(communicator);
      });
      const Graph second(gpu, [&] { shuffling.enqueue(communicator); });
      std::mt19937 delays(static_cast<unsigned>(rank)), choices(8);
      for (int turn = 0; turn < 200; ++turn) {
        if (delays() % 8 == 0) delay(std::chrono::microseconds(delays() % 100), gpu.stream());
        const auto choice = choices() % 4;
        if (choice == 0) first.launch(gpu.stream());
        if (choice == 1) second.launch(gpu.stream());
        if (choice == 2) eager.enqueue(communicator);
        if (choice == 3) shuffling.enqueue(communicator);
        if (world.shared()) gpu.synchronize();  // a call is several launches: see kMostAhead
      }
      gpu.synchronize();
    }
    communicator.check();
    auto* const found = reinterpret_cast<unsigned long long*>(gpu.host_memory(sizeof(*wrong)));
    check_cuda(cudaMemcpyAsync(found, wrong, sizeof(*wrong), cudaMemcpyDeviceToHost, gpu.stream()), "download");
    gpu.synchronize();
    ensure(*found == 0, fmt::format("{} bytes are not as they should be", *found));
    expect_canaries_around(gpu, memory, gather.memory[gather.output(0)].begin,
                           static_cast<std::size_t>(ranks) * longest * sizeof(std::int32_t));
    memory.free();
  }));
}

// Counts that do not fit. Rank 1 has captured its own capacity, the others two rows for each rank.
struct Excess {
  const char* name;
  std::vector<std::int32_t> capacity;  // of rank 1
  std::vector<std::int32_t> found;
  bool everywhere = false;  // true: every rank's capacity is exceeded; false: only rank 1's
  Padding padding = Padding::none;
};

class GpuSymmetricCapacity : public testing::TestWithParam<Excess> {};
INSTANTIATE_TEST_SUITE_P(Counts, GpuSymmetricCapacity,
                         testing::Values(Excess{"OfOneOutput", {2, 2, 1}, {2, 2, 2}},
                                         Excess{"OfOneInput", {3, 1, 2}, {2, 2, 2}},
                                         Excess{"OfOneOutputByPads", {2, 2, 0}, {1, 1, 1}, false, Padding::aligned},
                                         Excess{"OfEveryOutput", {2, 2, 2}, {2, 2, 3}, true},
                                         Excess{"NegativeCount", {2, 2, 2}, {2, -1, 2}, true}),
                         [](const auto& info) { return std::string(info.param.name); });

// A graph's counts have grown. No rank knows a peer's capacity, so none may write to a rank that has not confirmed its
// room. If there is room, nothing is written outside the output, also not by later replays.
TEST_P(GpuSymmetricCapacity, IsNotExceededByAReplay) {
  constexpr int ranks = 3, small = 1;
  constexpr std::size_t row_bytes = 32768;
  const Excess& excess = GetParam();
  GpuWorld world = make_gpu_world(ranks, small_gpu_slots());
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const auto memory = SymmetricMemory::allocate(communicator, 4 * ranks * row_bytes);
    fill_with_canaries(gpu, memory);
    const auto move = [&](const std::vector<std::int32_t>& counts) {
      return prepare({.kind = Kind::all_gather_v,
                      .widths = {row_bytes / size_of(DataType::bf16)},
                      .fill = Fill::bits,
                      .counts = counts,
                      .padding = excess.padding,
                      .slot_rows = 2,
                      .launch = world.launch()},
                     ranks, rank);
    };
    const RankMove mine = move(rank == small ? excess.capacity : std::vector<std::int32_t>(ranks, 2));
    const RankMove fitting = move({1, 1, 0});
    RankMove exceeding = mine;
    exceeding.counts = move(excess.found).counts;
    GpuMove gather(gpu, mine, static_cast<std::byte*>(memory.data()));
    const Graph graph(gpu, [&] { gather.call(communicator); });
    gather.fill(fitting);
    graph.launch(gpu.stream());
    gather.check(fitting);
    communicator.check();
    gather.fill(exceeding);
    for (int replay = 0; replay < 2; ++replay) graph.launch(gpu.stream());
    gpu.meet();  // every writer is done
    const Place& last = mine.places.back();
    const bool has_room = rank != small && !excess.everywhere;
    expect_canaries_around(gpu, memory, mine.memory[mine.output(0)].begin,
                           has_room ? (last.begin + last.slot) * row_bytes : 0);
    communicator.check();
  });
  int seen = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Ending& ending = endings[index(rank)];
    const bool alone = rank == small && !excess.everywhere;
    expect_fault(ending, alone ? std::vector{Errc::capacity} : std::vector{Errc::capacity, Errc::peer_failed},
                 excess.name);
    seen += ending.error && ending.error->code() == Errc::capacity;
  }
  EXPECT_GE(seen, 1);
}

}  // namespace
}  // namespace weft::test
