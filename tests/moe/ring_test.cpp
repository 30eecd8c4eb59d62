// Dispatch and combine on CPU ranks through a ring: the same calls as through slots with the same reference, and more
// tokens than the ring has places.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/first_epoch.hpp"
#include "support/moe_batches.hpp"
#include "support/moe_rounds.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

void run_through_ring(const std::vector<Batch>& batches, std::uint32_t ranks) {
  exchange_and_check(on_ring(batches), ranks, smallest_buffers(), 1);
}

class MoeRing : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeRing, testing::Values(1, 2, 3, 4));

TEST_P(MoeRing, EveryKindOfRouting) {
  run_through_ring(in_every_layout(every_kind_of_routing(GetParam()), GetParam()), GetParam());
}

TEST_P(MoeRing, RowsOfEveryTypeBitForBit) {
  run_through_ring(in_every_layout(rows_of_every_type(GetParam()), GetParam()), GetParam());
}

TEST_P(MoeRing, RowsWithPayloads) {
  run_through_ring(in_every_layout(rows_with_payloads(GetParam()), GetParam()), GetParam());
}

TEST_P(MoeRing, CastOnTheWay) {
  run_through_ring(in_every_layout(casts_on_the_way(GetParam()), GetParam()), GetParam());
}

TEST_P(MoeRing, RowsOfManyPieces) {
  run_through_ring(in_every_layout(rows_of_many_pieces(GetParam()), GetParam()), GetParam());
}

TEST_P(MoeRing, ExpertsWhereTheCallerWants) {
  run_through_ring(in_every_layout(experts_where_the_caller_wants(GetParam()), GetParam()), GetParam());
}

TEST_P(MoeRing, SumsWithoutWeights) {
  run_through_ring(in_every_layout(sums_without_weights(GetParam()), GetParam()), GetParam());
}

TEST_P(MoeRing, RowsWithoutRoomAreDropped) {
  run_through_ring(rows_without_room(), GetParam());
  run_through_ring(with_payloads(rows_without_room()), GetParam());
}

// Three rounds and a part of one through 32 places. Ranks have different numbers of tokens, and one has none.
TEST_P(MoeRing, ManyTokensFlowThroughFewPlaces) {
  const std::vector<Batch> batches = in_every_layout({more_tokens_than_places(GetParam())}, GetParam());
  run_through_ring(batches, GetParam());
  run_through_ring(with_payloads(batches), GetParam());
}

// An epoch of a signal or a credit is compared across the wrap.
TEST_P(MoeRing, EpochsWrap) {
  Batch batch = more_tokens_than_places(GetParam());
  batch.resize(2);
  for (const std::uint32_t first : {0u, 0x7ffffffeu, 0xfffffffdu, 0xffffffffu}) {
    const FirstEpoch epoch(first);
    run_through_ring({batch}, GetParam());
  }
}

// Calls by slots and by the ring of one exchange: neither finds what the other has left.
TEST_P(MoeRing, FewTokensTakeSlots) {
  const std::vector<Batch> batches = in_every_layout({few_and_many_tokens(GetParam())}, GetParam());
  exchange_and_check(batches, GetParam());
  exchange_and_check(weighed_late(batches), GetParam());
  exchange_and_check(with_payloads(batches), GetParam());
  for (const std::uint32_t first : {0x7ffffffcu, 0xfffffffdu}) {
    const FirstEpoch epoch(first);
    exchange_and_check({batches[0]}, GetParam());
  }
}

TEST_P(MoeRing, EveryKindOfRoutingBySlotsBesideIt) {
  exchange_and_check(with_slots(on_ring(every_kind_of_routing(GetParam()))), GetParam(), smallest_buffers(), 1);
}

// Only slots serve rounds.
TEST_P(MoeRing, FewTokensInRounds) {
  const Batch batch = few_and_many_tokens(GetParam());
  const std::vector<PreparedMoe> prepared = prepare_all({batch[0], batch[1]}, GetParam());
  const Division division{1, (batch.front().args.experts + GetParam() - 1) / GetParam() - 1};
  expect_all_well(
      run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
        const auto rank = static_cast<std::uint32_t>(number);
        const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
        for (int round = 0; round < 3; ++round) {
          CpuMoe moe(exchange, prepared[0], rank);
          exchange_in_rounds(exchange, moe, division);
          exchange_and_check(exchange, prepared[1], rank);
        }
      }));
}

// A recording keeps the handle slot and the number of tokens, and nothing of the rows.
TEST_P(MoeRing, RecordingsReplay) {
  const Batch batch = on_ring({more_tokens_than_places(GetParam())})[0];
  const std::vector<PreparedMoe> prepared = prepare_all({batch[0], batch[2]}, GetParam());
  expect_all_well(
      run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
        const MoeExchange exchange = MoeExchange::create(communicator, batch[0].args);
        CpuMoe moe(exchange, prepared[0], static_cast<std::uint32_t>(number));
        const Recording recording =
            Recording::capture(communicator, [&] { exchange.combine(moe.combine(exchange.dispatch(moe.dispatch()))); });
        for (int round = 0; round < 4; ++round) {
          moe.fill(prepared[static_cast<std::size_t>(round) % 2]);
          recording.replay();
          moe.check_dispatch();
          moe.check_combine();
        }
      }));
}

// Halves take as many tokens as a ring has places. With more, nobody would free a place before the wait.
TEST_P(MoeRing, HalvesTakeAsManyTokensAsThereArePlaces) {
  const MoeCase most = on_ring({more_tokens_than_places(GetParam())})[0][0];
  EXPECT_EQ(moe_exchange_memory(static_cast<int>(GetParam()), most.args).half_tokens, kRingPlaces);
  MoeCase fits = most;
  fits.tokens = {kRingPlaces, 3};
  const PreparedMoe p = prepare(fits, GetParam(), 1), more = prepare(most, GetParam(), 2);
  expect_all_well(
      run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
        const auto rank = static_cast<std::uint32_t>(number);
        const MoeExchange exchange = MoeExchange::create(communicator, most.args);
        for (int round = 0; round < 3; ++round) {
          exchange_by_halves_and_check(exchange, p, rank);
        }
        CpuMoe moe(exchange, more, rank);
        const DispatchHandle handle = exchange.dispatch(moe.dispatch());
        moe.check_dispatch();
        if (handle.tokens > kRingPlaces) {
          try {
            exchange.combine_send(moe.combine(handle));
            ADD_FAILURE() << "a half of " << handle.tokens << " tokens";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::invalid_argument);
            const std::string reason = error.what();
            const std::string wanted =
                "tokens: " + std::to_string(handle.tokens) + " is more than the 32 of MoeExchangeArgs::ring_rows";
            EXPECT_NE(reason.find(wanted), std::string::npos) << reason;
          }
        }
      }));
}

// A rank that sends by slots would wait for ever for one that sends by the ring.
TEST(MoeRingArguments, RanksThatKnowOtherMostTokensFindOut) {
  const Batch batch = few_and_many_tokens(2);
  for (const std::uint32_t other : {0u, 7u}) {
    const std::vector<PreparedMoe> prepared = prepare_all({batch[2]}, 2);
    for (const Ending& ending : run_world(2, smallest_buffers(), [&](Communicator&communicator, int number) {
           const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
           CpuMoe moe(exchange, prepared[0], static_cast<std::uint32_t>(number));
           DispatchArgs args = moe.dispatch();
           if (number == 1) args.most_tokens = other;
           exchange.dispatch(args);
         })) {
      expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "ranks whose most_tokens differ");
    }
  }
}

// A combine goes the way of its dispatch, which its handle knows.
TEST(MoeRingArguments, AHandleKnowsTheWay) {
  const Batch batch = few_and_many_tokens(2);
  const PreparedMoe few = prepare(batch[0], 2, 1), many = prepare(batch[1], 2, 2);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
    const DispatchHandle first = dispatch_and_check(exchange, few, rank);
    const DispatchHandle second = dispatch_and_check(exchange, many, rank);
    EXPECT_EQ(first.most_tokens, 8u);
    EXPECT_EQ(second.most_tokens, 0u);
    combine_and_check(exchange, many, rank, second);
    combine_and_check(exchange, few, rank, first);
  }));
}

// Warps must divide a ring's places, or be those of whole warp groups.
TEST(MoeRingArguments, ThreadsMustSuitTheRing) {
  const MoeCase c = on_ring({{{.args = small_exchange(), .tokens = {6, 3}}}})[0][0];
  const PreparedMoe p = prepare(c, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, c.args);
    CpuMoe moe(exchange, p, rank);
    DispatchArgs args = moe.dispatch();
    args.launch.threads = 96;
    try {
      exchange.dispatch(args);
      ADD_FAILURE() << "96 threads";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      const std::string reason = error.what();
      EXPECT_NE(reason.find("launch.threads: 96 is not 0, 32, 64 or a multiple of 128"), std::string::npos) << reason;
    }
    exchange_and_check(exchange, p, rank);
  }));
}

// The largest number of tokens, in one call.
TEST(MoeRingMost, TokensOfARank) {
  MoeExchangeArgs args{.tokens = 16384, .hidden = 128, .experts = 16, .top_k = 4, .cast = RowCast::fp8};
  args.layout = RowLayout::expert_contiguous;
  const PreparedMoe p = prepare({.args = args, .tokens = {16384, 16383}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    const auto number = static_cast<std::uint32_t>(rank);
    exchange_and_check(exchange, p, number);
  }));
  // Buffers are those of 2048 tokens.
  MoeExchangeArgs fewer = args;
  fewer.tokens = 1025;
  const MoeExchangeMemory most = moe_exchange_memory(2, args), least = moe_exchange_memory(2, fewer);
  EXPECT_EQ(most.dispatch, least.dispatch);
  EXPECT_EQ(most.combine, least.combine);
}

}  // namespace
}  // namespace weft::test
