// Gathers and scatters on GPU ranks: the CPU tests' checks for kernels.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>

#include "gpu/support/gpu_move.hpp"
#include "gpu/support/gpu_side.hpp"
#include "gpu/support/gpu_way.hpp"
#include "gpu/support/graph.hpp"
#include "support/move_mixes.hpp"
#include "support/ragged_cases.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

void expect_right(GpuWorld& world, std::vector<Move> moves) {
  for (Move& move : moves) {
    if (move.launch.blocks == 0) move.launch = world.launch(move.seed);
  }
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    for (const Move& move : moves) run_on_gpu_rank(communicator, gpu, move);
  }));
}

class GpuGather : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuGather, testing::Values(1, 2, 3, 4, 8));

TEST_P(GpuGather, SizesAroundPacksSlotsAndChunks) {
  const std::vector<Move> moves = moves_around_packs(GetParam(), 20, Fill::special);
  expect_right(lasting_gpu_world(GetParam()), moves);
  expect_right(lasting_gpu_world(GetParam(), small_gpu_slots), moves);
}

TEST_P(GpuGather, RowsOfAnyShapeAtAnyAddressOnAnyGrid) {
  GpuWorld& world = lasting_gpu_world(GetParam());
  const AnyShape shape{.packs = 50, .elements = 700, .most_blocks = world.shared() ? 6 : 40};
  expect_right(world, equal_moves_of_any_shape(GetParam(), shape));
}

// The root alone has a result, which has the bits of an all-reduce. A large one goes in chunks.
TEST_P(GpuGather, ReducesOfEveryTypeAndOperationToEachRoot) {
  const std::vector<Move> moves = reduces_to_each_root(GetParam());
  expect_right(lasting_gpu_world(GetParam()), moves);
  expect_right(lasting_gpu_world(GetParam(), small_gpu_slots), moves);
}

TEST_P(GpuGather, GathersAndScattersOfEachRoot) {
  expect_right(lasting_gpu_world(GetParam()), rows_of_each_root(GetParam()));
}

TEST_P(GpuGather, RaggedShapesOfCountsAndSlots) {
  const std::vector<Move> moves = ragged_moves_of_any_shape(300, GetParam(), {.packs = 60, .elements = 500});
  expect_right(lasting_gpu_world(GetParam()), moves);
  expect_right(lasting_gpu_world(GetParam(), small_gpu_slots), moves);
}

TEST_P(GpuGather, EveryShapeOfCountsInEveryKindOfSlot) {
  const std::vector<Move> moves = moves_of_every_shape(GetParam());
  expect_right(lasting_gpu_world(GetParam()), moves);
  expect_right(lasting_gpu_world(GetParam(), small_gpu_slots), moves);
}

TEST_P(GpuGather, RowsThatRanksShareAreSplitByBothRules) {
  expect_right(lasting_gpu_world(GetParam()), moves_of_shared_rows(GetParam()));
}

TEST_P(GpuGather, CountsOnTheHost) {
  expect_right(lasting_gpu_world(GetParam()), moves_with_counts_on_host(GetParam()));
}

// Calls are enqueued far ahead of the GPU, each with other numbers, and a graph keeps those that it was captured with.
TEST_P(GpuGather, CountsOnTheHostOfManyCallsAtOnce) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  const std::vector<Move> moves = moves_with_counts_on_host(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    gpu.reset();
    std::vector<RankMove> prepared;
    const std::size_t count = world.shared() ? kMostAhead : 60;
    for (std::size_t i = 0; i < count; ++i) {
      Move move = moves[i * 7 % moves.size()];
      move.launch = world.launch();
      move.in_place = false;
      prepared.push_back(prepare(move, ranks, rank));
    }
    std::vector<std::unique_ptr<GpuMove>> calls;
    for (const RankMove& move : prepared) calls.push_back(std::make_unique<GpuMove>(gpu, move));
    GpuMove eager(gpu, prepared[1]);
    const auto check_all = [&] {
      gpu.synchronize();
      communicator.check();
      for (std::size_t i = 0; i < count; ++i) {
        calls[i]->check(prepared[i]);
        calls[i]->fill(prepared[i]);
      }
    };
    for (const auto& call : calls) call->call(communicator);
    check_all();
    const Graph graph(gpu, [&] {
      for (const auto& call : calls) call->call(communicator);
    });
    for (int replay = 0; replay < 3; ++replay) {
      eager.fill(prepared[1]);
      eager.call(communicator);
      graph.launch(gpu.stream());
      check_all();
      eager.check(prepared[1]);
    }
  }));
}

TEST_P(GpuGather, UpToEightTensorsOfAnyNumberOfBytes) {
  const std::vector<Move> moves = moves_of_many_tensors(GetParam());
  expect_right(lasting_gpu_world(GetParam()), moves);
  expect_right(lasting_gpu_world(GetParam(), small_gpu_slots), moves);
}

// The equal and the ragged operation give the same bits with any grid.
TEST_P(GpuGather, CountsThatAreAlikeGiveWhatTheEqualFormGives) {
  std::vector<Move> moves;
  for (const auto& [equal, ragged] : alike_moves(GetParam())) moves.insert(moves.end(), {equal, ragged});
  expect_right(lasting_gpu_world(GetParam()), moves);
  expect_right(lasting_gpu_world(GetParam(), small_gpu_slots), moves);
}

// Enough rows on one rank for relays over all ranks' links, and a few less. A broadcast is such a call, too.
TEST_P(GpuGather, OneBusyRank) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  std::vector<Move> moves;
  for (const std::int32_t busy : {5, 60, 300}) {
    for (const Kind kind : kRagged) {
      for (const std::size_t width : {std::size_t{4096}, std::size_t{4095}}) {
        const auto seed = static_cast<std::uint32_t>(moves.size());
        std::vector<std::int32_t> counts(static_cast<std::size_t>(ranks), static_cast<std::int32_t>(seed % 3));
        counts[seed % counts.size()] = busy;
        moves.push_back({.kind = kind,
                         .widths = {width},
                         .fill = Fill::special,
                         .counts = counts,
                         .padding = seed % 2 == 0 ? Padding::none : Padding::aligned,
                         .slot_rows = seed % 2 == 0 ? 0u : 8u,
                         .seed = seed,
                         .launch = world.launch(seed)});
      }
    }
    moves.push_back({.kind = Kind::broadcast,
                     .rows = static_cast<std::size_t>(busy),
                     .widths = {4096},
                     .fill = Fill::special,
                     .root = busy % ranks,
                     .launch = world.launch(1)});
  }
  expect_right(world, moves);
}

// Relays pass on some of the chunks.
TEST_P(GpuGather, OneVeryBusyRank) {
  const int ranks = GetParam();
  if (ranks < 3) GTEST_SKIP() << "detours are for three ranks or more";
  GpuWorld& world = lasting_gpu_world(ranks, small_gpu_slots);
  std::vector<Move> moves;
  for (const Kind kind : {Kind::all_gather_v, Kind::reduce_scatter_v, Kind::broadcast}) {
    for (const int busy : {0, ranks - 1}) {
      const auto seed = static_cast<std::uint32_t>(moves.size());
      std::vector<std::int32_t> counts(static_cast<std::size_t>(ranks), 1);
      counts[static_cast<std::size_t>(busy)] = 1000;
      moves.push_back({.kind = kind,
                       .rows = 1000,
                       .widths = {4096},
                       .fill = Fill::special,
                       .root = busy,
                       .counts = kind == Kind::broadcast ? std::vector<std::int32_t>{} : counts,
                       .seed = seed,
                       .launch = world.launch(seed)});
      ASSERT_EQ(way_of(world.communicators[0], moves.back()), Way::detour_in_chunks) << describe(moves.back());
    }
  }
  expect_right(world, moves);
}

// More chunks than slots, so that senders wait for credits. Ranks differ in grids and warp groups.
class GpuGatherFlows : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuGatherFlows, testing::Values(2, 4));
TEST_P(GpuGatherFlows, MessagesManyTimesTheSlots) {
  const int ranks = GetParam();
  constexpr std::size_t kRowBytes = 8192;
  Config config = gpu_config();
  config.group_two_shot_bytes = 256;
  GpuWorld world = make_gpu_world(ranks, config);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const Group group = communicator.split(0);
    const detail::RegionLayout& layout = group.state().layout();
    const std::size_t slots =
        layout.pipeline_slots * layout.pipeline_packs * sizeof(detail::Pack) / kRowBytes;  // in rows
    const std::size_t rows = ranks == 2 ? 900 : 460;
    ensure(3 * slots < rows, "slots for so many rows");
    std::uint32_t seed = 0;
    for (const Kind kind : {Kind::all_gather, Kind::all_to_all, Kind::reduce_scatter, Kind::all_gather_v,
                            Kind::reduce_scatter_v, Kind::reduce, Kind::gather, Kind::scatter}) {
      for (const Launch& launch : {Launch{.blocks = 2, .threads = 128}, Launch{.blocks = 3, .threads = 512},
                                   Launch{.blocks = 6 + rank % 3, .threads = 256}}) {
        gpu.reset();
        const bool counted = kind == Kind::all_gather_v || kind == Kind::reduce_scatter_v;
        std::vector<std::int32_t> counts(static_cast<std::size_t>(ranks), static_cast<std::int32_t>(rows));
        counts.back() -= 50;
        run_on_gpu_rank(group, gpu,
                        {.kind = kind,
                         .rows = rows,
                         .widths = {kRowBytes / 2},
                         .fill = Fill::special,
                         .counts = counted ? counts : std::vector<std::int32_t>{},
                         .seed = ++seed,
                         .launch = launch});
      }
    }
  }));
}

// One graph of each move. A batch's rows go in any way: none at all, at once, in chunks, by relays of two ranks.
TEST_P(GpuGatherFlows, OneGraphForEveryWay) {
  const int ranks = GetParam() == 2 ? 3 : GetParam();
  GpuWorld& world = lasting_gpu_world(ranks, small_gpu_slots);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (const Kind kind : kRagged) {
      gpu.reset();
      move_every_way(GpuSide(world, gpu, communicator), ranks, rank, kind, 1000, 100);
    }
  }));
}

class GpuGatherGraphs : public testing::TestWithParam<std::tuple<int, Padding>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuGatherGraphs,
                         testing::Combine(testing::Values(1, 2, 3, 4, 8),
                                          testing::Values(Padding::max, Padding::per_rank)));

// Each rank captures its own capacity. Two graphs and eager calls take turns, with new counts and given slots each
// time: gathers and scatters, and crossings of pairs and of all ranks.
TEST_P(GpuGatherGraphs, OneForEveryBatch) {
  const int ranks = std::get<0>(GetParam());
  const Padding padding = std::get<1>(GetParam());
  for (GpuWorld* world : {&lasting_gpu_world(ranks), &lasting_gpu_world(ranks, small_gpu_slots)}) {
    expect_all_well(run_gpu_world(*world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
      for (const int group_ranks : std::set{0, ranks % 2 == 0 ? 2 : 0, ranks}) {
        gpu.reset();
        const Batches batches{.padding = padding, .widths = {3584, 56, 3}, .turns = 40, .group_ranks = group_ranks};
        gather_and_scatter_every_batch(GpuSide(*world, gpu, communicator), ranks, rank, batches);
      }
    }));
  }
}

TEST_P(GpuGather, AThousandCallsBackToBack) {
  const int ranks = GetParam();
  GpuWorld& world = lasting_gpu_world(ranks);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    std::vector<RankMove> moves;
    for (std::uint32_t i = 0; i < 2 * std::size(kEqual); ++i) {
      moves.push_back(prepare({.kind = kEqual[i % std::size(kEqual)],
                               .widths = {i < std::size(kEqual) ? 1000u : 200'000u},
                               .op = mostly_sum(i),
                               .fill = Fill::special,
                               .seed = i,
                               .launch = world.launch(i)},
                              ranks, rank));
    }
    std::vector<GpuMove> on_gpu;
    for (const RankMove& move : moves) on_gpu.emplace_back(gpu, move);
    std::mt19937 random(5);
    for (int call = 0; call < 1000; ++call) {
      on_gpu[random() % moves.size()].call(communicator);
      if (call % 50 == 49) barrier(communicator, {.stream = gpu.stream()});
      if (world.shared() && call % 4 == 3) gpu.synchronize();
    }
    gpu.synchronize();
    communicator.check();
    for (std::size_t i = 0; i < moves.size(); ++i) on_gpu[i].check(moves[i]);
  }));
}

// Half of the misfits: each takes a world of its own, and CPU ranks run all of them.
std::vector<Misfit> half_of_the_misfits() {
  const std::vector<Misfit> all = misfits();
  std::vector<Misfit> half;
  for (std::size_t i = 0; i < all.size(); i += 2) half.push_back(all[i]);
  return half;
}

class GpuGatherMisfits : public testing::TestWithParam<Misfit> {};
INSTANTIATE_TEST_SUITE_P(Counts, GpuGatherMisfits, testing::ValuesIn(half_of_the_misfits()),
                         [](const auto& info) { return std::string(info.param.name); });

// Every rank gets an error, and nothing is written outside the outputs: in a graph's second replay, after a first one
// that fitted.
TEST_P(GpuGatherMisfits, EndTheCallEverywhereAndWriteNothing) {
  const Misfit& misfit = GetParam();
  GpuWorld world = make_gpu_world(kMisfitRanks, gpu_config());
  const auto endings = run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    const MisfitMove prepared = prepare(misfit, rank, world.launch());
    GpuMove move(gpu, prepared.capacity);
    const Graph graph(gpu, [&] { move.call(communicator); });
    graph.launch(gpu.stream());  // fits
    move.check(prepared.capacity);
    move.fill(prepared.untouched);
    graph.launch(gpu.stream());
    gpu.synchronize();
    if (misfit.leaves_untouched(rank)) move.check(prepared.untouched);
    communicator.check();
  });
  expect_misfit(endings, misfit.reason, misfit.name);
}

}  // namespace
}  // namespace weft::test
