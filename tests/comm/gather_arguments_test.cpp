// Gathers and scatters that cannot be: rejected with the argument's name before anything is sent, so that the
// communicator works on as if they had never been made; and calls that differ between ranks, which are found.
#include <gtest/gtest.h>

#include <functional>

#include "support/moves.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

struct Rejection {
  std::string part;  // of the message
  std::function<void(const Group&)> call;
};

std::vector<Rejection> rejections(std::byte* memory, const std::int32_t* counts) {
  std::vector<Rejection> all;
  const auto add = [&](const std::string& part, auto args, auto function, auto&& spoil) {
    spoil(args);
    all.push_back({part, [args, function](const Group& group) { function(group, args); }});
  };
  const auto copies = [&](auto args, auto function) {
    args.input = memory;
    args.output = memory + 4096;
    args.rows = 2;
    args.row_bytes = 64;
    add("input: null, with", args, function, [](auto& a) { a.input = nullptr; });
    add("output: null, with", args, function, [](auto& a) { a.output = nullptr; });
    add("input_stride: 63 bytes", args, function, [](auto& a) { a.input_stride = 63; });
    add("output_stride: 1 bytes", args, function, [](auto& a) { a.output_stride = 1; });
    add("rows: ", args, function, [](auto& a) { a.rows = SIZE_MAX; });
    add("row_bytes: ", args, function, [](auto& a) { a.row_bytes = SIZE_MAX; });
    add("input: overlaps output", args, function, [&](auto& a) { a.output = memory + 32; });
    add("launch.blocks: 1 ", args, function, [](auto& a) { a.launch.blocks = 1; });
    add("launch.threads: 33 ", args, function, [](auto& a) { a.launch.threads = 33; });
    add("stream: ", args, function, [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory); });
  };
  copies(AllGatherArgs{}, all_gather_into_tensor);
  copies(AllToAllArgs{}, all_to_all);
  copies(BroadcastArgs{}, [](const Group& group, BroadcastArgs args) {
    args.root = group.rank();  // whose input is looked at
    broadcast(group, args);
  });
  add("root: 3 is not a rank", BroadcastArgs{}, broadcast, [](auto& a) { a.root = 3; });
  add("root: -1 is not a rank", BroadcastArgs{}, broadcast, [](auto& a) { a.root = -1; });
  add("input: overlaps output", AllToAllArgs{}, all_to_all,
      [&](auto& a) { a.input = a.output = memory, a.row_bytes = 16; });

  const ReduceScatterArgs scatter{.input = memory, .output = memory + 4096, .rows = 2, .width = 32};
  add("type: 9", scatter, reduce_scatter_tensor, [](auto& a) { a.type = static_cast<DataType>(9); });
  add("input: ", scatter, reduce_scatter_tensor, [&](auto& a) { a.input = memory + 1; });
  add("output: overlaps input", scatter, reduce_scatter_tensor, [&](auto& a) { a.output = memory + 2; });
  add("width: ", scatter, reduce_scatter_tensor, [](auto& a) { a.width = SIZE_MAX; });
  add("output_stride: 6 bytes", scatter, reduce_scatter_tensor, [](auto& a) { a.output_stride = 3; });

  static const GatheredTensor tensors[9] = {
      {.input = memory, .output = memory + 4096, .row_bytes = 16}};  // the first is good, the others are empty
  const AllGatherVArgs gather{
      .tensors = std::span(tensors, 1), .counts = {.rows = counts}, .input_rows = 2, .output_rows = 6};
  add("tensors: 0 is not between", gather, all_gather_v, [](auto& a) { a.tensors = {}; });
  add("tensors: 9 is not between", gather, all_gather_v, [](auto& a) { a.tensors = tensors; });
  add("counts.rows: null", gather, all_gather_v, [](auto& a) { a.counts.rows = nullptr; });
  add("counts.rows: ", gather, all_gather_v, [&](auto& a) {
    a.counts.rows = reinterpret_cast<const std::int32_t*>(reinterpret_cast<std::uintptr_t>(counts) + 1);
  });
  add("counts.slot: 7", gather, all_gather_v, [](auto& a) { a.counts.slot = static_cast<SlotKind>(7); });
  add("counts.split: 7", gather, all_gather_v, [](auto& a) { a.counts.split = static_cast<Split>(7); });
  add("counts.slot_rows: 0", gather, all_gather_v, [](auto& a) { a.counts.slot = SlotKind::aligned; });
  add("counts.slot_rows: ", gather, all_gather_v, [](auto& a) { a.counts.slot_rows = std::size_t{1} << 31; });
  const ReduceScatterVArgs scatter_v{.input = memory,
                                     .output = memory + 4096,
                                     .width = 8,
                                     .counts = {.rows = counts},
                                     .input_rows = 6,
                                     .output_rows = 2};
  add("counts.rows: null", scatter_v, reduce_scatter_v, [](auto& a) { a.counts.rows = nullptr; });
  add("type: 5", scatter_v, reduce_scatter_v, [](auto& a) { a.type = static_cast<DataType>(5); });
  add("stream: ", BarrierArgs{}, barrier, [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory); });
  return all;
}

TEST(GatherArguments, MistakesAreRejectedByNameAndLeaveNoTrace) {
  constexpr int ranks = 3;
  alignas(64) static std::byte memory[8192];
  static const std::int32_t counts[4] = {1, 1, 1, 1};
  const std::vector<Rejection> all = rejections(memory, counts);
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      try {
        all[i].call(communicator);
        ADD_FAILURE() << "not rejected: " << all[i].part;
        return;  // the others would wait
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument) << error.what();
        expect_says(error.what(), all[i].part);
      }
      ASSERT_FALSE(communicator.status().has_value());
    }
    EXPECT_TRUE(communicator.world().recent_calls().empty());  // rejected calls are no calls
    run_on_cpu_rank(communicator, {.rows = 3, .widths = {20}});
  }));
}

// Everything that defines an exchange is compared.
TEST(GatherArguments, DifferentCallsAreFound) {
  const Move base{.kind = Kind::all_gather, .rows = 2, .widths = {40}};
  const auto changed = [&](auto&& change) {
    Move move = base;
    change(move);
    return move;
  };
  const std::pair<Move, Move> pairs[] = {
      {base, changed([](Move& m) { m.kind = Kind::all_to_all; })},
      {base, changed([](Move& m) { m.rows = 3; })},
      {base, changed([](Move& m) { m.widths = {48}; })},
      {base, changed([](Move& m) { m.tag = 1; })},
      {changed([](Move& m) { m.kind = Kind::broadcast; }),
       changed([](Move& m) { m.kind = Kind::broadcast, m.root = 1; })},
      {changed([](Move& m) { m.kind = Kind::reduce_scatter; }),
       changed([](Move& m) { m.kind = Kind::reduce_scatter, m.type = DataType::f16; })},
      {changed([](Move& m) {
         m.kind = Kind::all_gather_v, m.counts = {1, 1};
       }),
       changed([](Move& m) {
         m.kind = Kind::all_gather_v, m.counts = {1, 1}, m.slot = SlotKind::max;
       })},
      {changed([](Move& m) {
         m.kind = Kind::all_gather_v, m.counts = {1, 1};
       }),
       changed([](Move& m) {
         m.kind = Kind::all_gather_v, m.counts = {1, 1}, m.widths = {40, 1};
       })},
  };
  for (const auto& pair : pairs) {
    const auto endings = run_world(2, cpu_config(), [&](Communicator& communicator, int rank) {
      const RankMove prepared = prepare(rank == 0 ? pair.first : pair.second, 2, rank);
      HostMove host(prepared);
      host.call(communicator);
    });
    for (const Ending& ending : endings) {
      expect_fault(ending, {Errc::mismatch, Errc::peer_failed},
                   describe(pair.first) + " beside " + describe(pair.second));
    }
  }
}

TEST(GatherArguments, ReleasedMemoryIsNamed) {
  auto communicators = Communicator::local(1, cpu_config());
  communicators[0].release();
  expect_says(error_of([&] { barrier(communicators[0], {}); }), "barrier: the communicator's memory is released");
  communicators[0].acquire();
  run_on_cpu_rank(communicators[0], {.rows = 2, .widths = {9}});
}

}  // namespace
}  // namespace weft::test
