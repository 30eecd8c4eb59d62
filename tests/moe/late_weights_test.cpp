// Weights that are given to combine: the calls of other tests, with the same results bit for bit. Dispatch gets no
// weights there (CpuMoe).
#include <gtest/gtest.h>

#include "support/first_epoch.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

class MoeLateWeights : public testing::TestWithParam<std::uint32_t> {
 protected:
  // Through slots and through a ring.
  static void run(const std::vector<Batch>& batches) {
    ASSERT_FALSE(weighed_late(batches).empty());
    exchange_and_check(weighed_late(batches), GetParam());
    exchange_and_check(on_ring(weighed_late(batches)), GetParam(), smallest_buffers(), 1);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeLateWeights, testing::Values(1, 2, 3, 5));

TEST_P(MoeLateWeights, EveryKindOfRouting) {
  run(in_every_layout(every_kind_of_routing(GetParam()), GetParam()));
}

TEST_P(MoeLateWeights, SpecialValues) {
  run(sums_of_special_values(GetParam()));
}

// A row without room has no number among its token's rows.
TEST_P(MoeLateWeights, RowsWithoutRoomAreDropped) {
  run(rows_without_room());
}

TEST_P(MoeLateWeights, ExpertsWhereTheCallerWants) {
  run(experts_where_the_caller_wants(GetParam()));
}

TEST_P(MoeLateWeights, MoreTokensThanARingHasPlaces) {
  exchange_and_check(on_ring(weighed_late({more_tokens_than_places(GetParam())})), GetParam(), smallest_buffers(), 1);
}

// Words of weights are compared by epochs, and are never put back to rest.
TEST_P(MoeLateWeights, EpochsWrap) {
  const MoeExchangeArgs args = small_exchange();
  for (const std::uint32_t first : {0u, 0x7ffffffdu, 0xfffffffdu}) {
    const FirstEpoch epoch(first);
    run({{{.args = args, .tokens = {2, 6}}, {.args = args, .tokens = {6, 0}}, {.args = args, .tokens = {4}}}});
  }
}

// The send reads the weights, and keeps none of them. The wait reads everything else.
TEST_P(MoeLateWeights, EachHalfLooksAtItsOwnTensors) {
  for (const bool ring : {false, true}) {
    const std::vector<Batch> all = weighed_late(in_every_layout(every_kind_of_routing(GetParam()), GetParam()));
    for (const Batch& batch : ring ? on_ring(all) : all) {
      const std::vector<PreparedMoe> prepared = prepare_all(batch, GetParam());
      expect_all_well(
          run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int rank) {
            const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
            for (const PreparedMoe& p : prepared) {
              CpuMoe moe(exchange, p, static_cast<std::uint32_t>(rank));
              const DispatchHandle handle = exchange.dispatch(moe.dispatch());
              moe.check_dispatch();
              CombineArgs back = moe.combine(handle);
              exchange.combine_send({.handle = handle, .topk_weights = back.topk_weights});
              moe.forget_tokens();
              back.topk_weights = nullptr;
              exchange.combine_wait(back);
              moe.check_combine();
            }
          }));
    }
  }
}

// A recording reads the weights anew in each replay.
TEST_P(MoeLateWeights, RecordingsReplay) {
  for (const Batch& batch : weighed_late(routings_for_two_graphs(GetParam()))) {
    std::vector<PreparedMoe> prepared = prepare_all(batch, GetParam());
    expect_all_well(
        run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int rank) {
          const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
          CpuMoe moe(exchange, prepared[0], static_cast<std::uint32_t>(rank));
          const Recording recording = Recording::capture(
              communicator, [&] { exchange.combine(moe.combine(exchange.dispatch(moe.dispatch()))); });
          for (std::size_t i = 0; i < prepared.size(); i += 2) {
            moe.fill(prepared[i]);
            recording.replay();
            moe.check_dispatch();
            moe.check_combine();
          }
        }));
  }
}

TEST(MoeLateWeightsArguments, AreAskedForWhereTheyBelong) {
  MoeExchangeArgs late = small_exchange(), early = small_exchange();
  late.weights_at_combine = true;
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    for (const MoeExchangeArgs& args : {late, early}) {
      const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
      const MoeExchange exchange = MoeExchange::create(communicator, args);
      CpuMoe moe(exchange, p, rank);
      const DispatchHandle handle = exchange.dispatch(moe.dispatch());
      CombineArgs call = moe.combine(handle);
      if (args.weights_at_combine) {
        call.topk_weights = nullptr;
        expect_says(error_of([&] { exchange.combine(call); }), "topk_weights: null");
        expect_says(error_of([&] { exchange.combine_send(call); }), "topk_weights: null");
        call.topk_weights = reinterpret_cast<const float*>(2);
        expect_says(error_of([&] { exchange.combine(call); }), "topk_weights: 0x2 is not aligned to 4 bytes");
        exchange.combine_send(moe.combine(handle));
        call = moe.combine(handle);
        call.input = nullptr;
        expect_says(error_of([&] { exchange.combine_wait(call); }), "input: null");
        exchange.combine_wait(moe.combine(handle));
      } else {
        const float weight = 1;
        call.topk_weights = &weight;
        const char* const reason = "topk_weights: not null, and MoeExchangeArgs::weights_at_combine is false";
        expect_says(error_of([&] { exchange.combine(call); }), reason);
        expect_says(error_of([&] { exchange.combine_send(call); }), reason);
        exchange.combine(moe.combine(handle));
      }
      moe.check_combine();
    }
  }));
}

// A rank's wait sends rows: peers that wait for them learn why they do not come.
TEST(MoeLateWeightsArguments, ARejectedWaitIsToldToThePeers) {
  MoeExchangeArgs args = small_exchange();
  args.weights_at_combine = true;
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  const auto endings = run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuMoe moe(exchange, p, static_cast<std::uint32_t>(rank));
    CombineArgs call = moe.combine(exchange.dispatch(moe.dispatch()));
    exchange.combine_send(call);
    if (rank == 1) call.input = nullptr;
    exchange.combine_wait(call);
  });
  expect_fault(endings[0], {Errc::mismatch}, "the rank that waits");
  expect_says(endings[0].what, "input: null");
  expect_says(endings[1].what, "input: null");
}

// A rank that makes both halves at once meets one that separates them. Handles come in any order, and one of them
// twice, after a release as well.
TEST(MoeLateWeightsCalls, HandlesAndHalvesInAnyOrder) {
  for (const RowPath path : {RowPath::slots, RowPath::ring}) {
    MoeExchangeArgs args = small_exchange();
    args.weights_at_combine = true;
    args.path = path;
    args.handles = 2;
    const PreparedMoe first = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
    const PreparedMoe second = prepare({.args = args, .tokens = {1, 6}}, 2, 6);
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchange = MoeExchange::create(communicator, args);
      for (int round = 0; round < 6; ++round) {
        CpuMoe one(exchange, first, rank), two(exchange, second, rank);
        const DispatchHandle handles[] = {exchange.dispatch(one.dispatch()), exchange.dispatch(two.dispatch())};
        for (const int which : {1, 0, 1}) {
          CpuMoe& moe = which == 0 ? one : two;
          if ((round + which) % 2 == number) {
            exchange.combine(moe.combine(handles[which]));
          } else {
            exchange.combine_send(moe.combine(handles[which]));
            exchange.combine_wait(moe.combine(handles[which]));
          }
          moe.check_combine();
        }
        if (round != 2) continue;
        communicator.release();
        communicator.acquire();
      }
    }));
  }
}

// A rank without tokens has none to give.
TEST(MoeLateWeightsArguments, ARankWithoutTokensNeedsNone) {
  MoeExchangeArgs args = small_exchange();
  args.weights_at_combine = true;
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 0}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    for (int round = 0; round < 3; ++round) {
      CpuMoe moe(exchange, p, static_cast<std::uint32_t>(rank));
      CombineArgs call = moe.combine(exchange.dispatch(moe.dispatch()));
      if (rank == 1) call.topk_weights = nullptr;
      exchange.combine(call);
      moe.check_combine();
    }
  }));
}

}  // namespace
}  // namespace weft::test
