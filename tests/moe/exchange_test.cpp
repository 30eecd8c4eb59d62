// Compares dispatch and combine on CPU ranks with the reference: contents, order, counts, sums, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "support/first_epoch.hpp"
#include "support/guarded.hpp"
#include "support/moe_batches.hpp"
#include "support/move_recordings.hpp"
#include "support/moving_windows.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

class Moe : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Moe, testing::Values(1, 2, 3, 4));

TEST_P(Moe, EveryKindOfRouting) {
  exchange_and_check(in_every_layout(every_kind_of_routing(GetParam()), GetParam()), GetParam());
}

TEST_P(Moe, RowsOfEveryTypeBitForBit) {
  exchange_and_check(in_every_layout(rows_of_every_type(GetParam()), GetParam()), GetParam());
}

TEST_P(Moe, RowsWithPayloads) {
  exchange_and_check(in_every_layout(rows_with_payloads(GetParam()), GetParam()), GetParam());
}

TEST_P(Moe, PayloadsOfEntriesInTallies) {
  exchange_and_check(payloads_of_entries_in_tallies(GetParam()), GetParam(), smallest_buffers(), 1);
}

TEST_P(Moe, CastOnTheWay) {
  exchange_and_check(in_every_layout(casts_on_the_way(GetParam()), GetParam()), GetParam());
}

TEST_P(Moe, EntriesInTallies) {
  exchange_and_check(entries_in_tallies(GetParam()), GetParam());
}

TEST_P(Moe, ExpertsWhereTheCallerWants) {
  exchange_and_check(in_every_layout(experts_where_the_caller_wants(GetParam()), GetParam()), GetParam());
}

// An exchange with replicas gives the bits of one whose experts are the replicas, if the caller chooses among them by
// the rule.
TEST_P(Moe, ReplicasServeTokensInTurn) {
  const std::uint32_t ranks = GetParam();
  for (const ReplicaCase& replicas : replicas_in_turn(ranks)) {
    std::vector<PreparedMoe> prepared;
    for (std::uint32_t i = 0; i < 4; ++i) prepared.push_back(prepare(replicas.call, ranks, i));
    expect_all_well(run_world(static_cast<int>(ranks), smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange of_replicas = MoeExchange::create(communicator, replicas.with);
      const MoeExchange of_experts = MoeExchange::create(communicator, replicas.call.args);
      EXPECT_EQ(of_replicas.local_experts(), of_experts.local_experts());
      for (const PreparedMoe& p : prepared) {
        CpuMoe moe(of_experts, p, rank);
        DispatchArgs args = moe.dispatch();
        args.topk_ids = p.tokens[rank].given.data();
        const DispatchHandle handle = of_replicas.dispatch(args);
        moe.check_dispatch();
        of_replicas.combine(moe.combine(handle));
        moe.check_combine();
      }
    }));
  }
}

TEST_P(Moe, SumsWithoutWeights) {
  exchange_and_check(in_every_layout(sums_without_weights(GetParam()), GetParam()), GetParam());
}

// All values of 16 bits, or pairs of bytes, at each place of a pack.
TEST(MoeRows, OfAllBitPatterns) {
  for (const PreparedMoe& p : all_bit_patterns()) {
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
      const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
      for (int call = 0; call < 3; ++call) dispatch_and_check(exchange, p, static_cast<std::uint32_t>(rank), true);
    }));
  }
}

// Counts are right and rows that fit arrive. Neither the next expert's rows nor anything else is overwritten.
TEST_P(Moe, RowsWithoutRoomAreDropped) {
  exchange_and_check(rows_without_room(), GetParam());
  exchange_and_check(with_payloads(rows_without_room()), GetParam());
}

TEST_P(Moe, EpochsWrap) {
  for (const std::uint32_t first : {0u, 0x7ffffffdu, 0xfffffffdu, 0xffffffffu}) {
    Config config = smallest_buffers();
    const FirstEpoch epoch(first);
    MoeExchangeArgs args = small_exchange();
    args.cast = RowCast::fp8;
    exchange_and_check(
        in_every_layout(
            {{{.args = args, .tokens = {2, 6}}, {.args = args, .tokens = {6, 0}}, {.args = args, .tokens = {4}}}},
            GetParam()),
        GetParam(), config);
  }
}

// A rank without tokens may have empty tensors, which many callers represent by null pointers.
TEST(MoeIdle, RanksWithoutTokensNeedNoTensorsOfThem) {
  for (const Batch& batch : in_every_layout({{{.args = small_exchange(), .tokens = {6, 0}, .residual = true}}}, 2)) {
    const PreparedMoe p = prepare(batch[0], 2, 5);
    expect_all_well(run_world(2, cpu_config(short_deadline), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchange = MoeExchange::create(communicator, batch[0].args);
      CpuMoe moe(exchange, p, rank);
      DispatchArgs to = moe.dispatch();
      CombineArgs back = moe.combine({});
      if (to.tokens == 0) {
        to.input = to.topk_ids = to.topk_weights = nullptr;
        back.residual = back.output = nullptr;
      }
      back.handle = exchange.dispatch(to);
      moe.check_dispatch();
      exchange.combine(back);
      moe.check_combine();
      back.handle = exchange.dispatch_send(to);
      exchange.dispatch_wait(back.handle, to);
      exchange.combine_send(back);
      exchange.combine_wait(back);
      moe.check_combine();
    }));
  }
}

// One recording for the largest number of tokens serves fewer. An id of −1 names no expert, and such a token is not
// sent.
TEST_P(Moe, ARecordingServesFewerTokensThanItWasMadeFor) {
  const std::uint32_t ranks = GetParam();
  for (const std::vector<PreparedMoe>& prepared : fewer_tokens_than_recorded(ranks)) {
    expect_all_well(run_world(static_cast<int>(ranks), smallest_buffers(), [&](Communicator& communicator, int number) {
      const MoeExchange exchange = MoeExchange::create(communicator, prepared[0].call.args);
      CpuMoe moe(exchange, prepared[0], static_cast<std::uint32_t>(number));
      const Recording recording =
          Recording::capture(communicator, [&] { exchange.combine(moe.combine(exchange.dispatch(moe.dispatch()))); });
      for (int round = 0; round < 2; ++round) {
        for (const PreparedMoe& p : prepared) {
          moe.fill(p);
          recording.replay();
          moe.check_dispatch();
          moe.check_combine();
        }
      }
    }));
  }
}

// The state that a call leaves behind must suit any next call, however long ranks take between calls.
TEST_P(Moe, CountsChangeFromCallToCall) {
  std::mt19937 random(GetParam());
  Batch calls;
  for (std::uint32_t i = 0; i < 40; ++i) {
    calls.push_back(
        {.args = small_exchange(), .tokens = {}, .choice = random() % 4 == 0 ? Choice::holes : Choice::uniform});
    for (std::uint32_t rank = 0; rank < GetParam(); ++rank) calls.back().tokens.push_back(random() % 7);
  }
  for (const Batch& batch : in_every_layout({calls}, GetParam())) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, GetParam());
    expect_all_well(
        run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int rank) {
          const MoeExchange exchange = MoeExchange::create(communicator, batch[0].args);
          std::mt19937 delays(static_cast<std::uint32_t>(rank));
          for (const PreparedMoe& p : prepared) {
            const auto nap = [&] {
              std::this_thread::sleep_for(std::chrono::microseconds(delays() % 3 == 0 ? 300 : 0));
            };
            nap();
            const DispatchHandle handle = dispatch_and_check(exchange, p, static_cast<std::uint32_t>(rank));
            nap();
            combine_and_check(exchange, p, static_cast<std::uint32_t>(rank), handle);
          }
        }));
  }
}

// Two exchanges, and two handle slots of one exchange, in every order that their handles allow.
TEST_P(Moe, ExchangesAndHandlesInterleave) {
  MoeExchangeArgs a = small_exchange(), b = small_exchange();
  b.top_k = 1;
  b.hidden = 64;
  const PreparedMoe first = prepare({.args = a, .tokens = {5, 2}}, GetParam(), 1);
  const PreparedMoe second = prepare({.args = a, .tokens = {1, 6}}, GetParam(), 2);
  const PreparedMoe other = prepare({.args = b, .tokens = {6, 3}}, GetParam(), 3);
  expect_all_well(
      run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
        const auto rank = static_cast<std::uint32_t>(number);
        const MoeExchange x = MoeExchange::create(communicator, a), y = MoeExchange::create(communicator, b);
        for (int round = 0; round < 5; ++round) {
          const DispatchHandle one = dispatch_and_check(x, first, rank);
          const DispatchHandle of_other = dispatch_and_check(y, other, rank);
          const DispatchHandle two = dispatch_and_check(x, second, rank);
          combine_and_check(x, round % 2 == 0 ? first : second, rank, round % 2 == 0 ? one : two);
          combine_and_check(y, other, rank, of_other);
          combine_and_check(x, round % 2 == 0 ? second : first, rank, round % 2 == 0 ? two : one);
          combine_and_check(x, first, rank, one);  // no dispatch has taken its handle slot since
        }
      }));
}

TEST(MoeGroups, EachHasAnExchange) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(4, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const Group group = communicator.split(rank % 2);
    const MoeExchange exchange = MoeExchange::create(group, args);
    for (int round = 0; round < 3; ++round) {
      const auto place = static_cast<std::uint32_t>(group.rank());
      exchange_and_check(exchange, p, place);
    }
  }));
}

TEST(MoeLife, GoesOnAfterReleaseAndAcquire) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    exchange_and_check(exchange, p, rank);
    communicator.release();
    EXPECT_THROW(dispatch_and_check(exchange, p, rank), Error);
    communicator.acquire();
    exchange_and_check(exchange, p, rank);
  }));
}

// The tables went with the window. An eager call reports it. The host does not know when a recording runs, so a
// recorded combine finds no tokens.
TEST(MoeLife, ADispatchBeforeAReleaseIsVoidForACombineAfterIt) {
  const WindowsStay stay;  // so the recording stays valid
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, cpu_config(short_deadline), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuMoe late(exchange, p, rank);
    const DispatchHandle handle = dispatch_and_check(exchange, p, rank);
    Guarded untouched(p.results[rank].size(), 0);
    CombineArgs recorded = late.combine(handle);
    recorded.output = untouched.content().data();
    const Recording combine = Recording::capture(communicator, [&] { exchange.combine(recorded); });
    communicator.release();
    communicator.acquire();
    const std::string is_void = "handle: what was dispatched before release() is void";
    expect_says(error_of([&] { exchange.combine(late.combine(handle)); }), is_void);
    expect_says(error_of([&] { exchange.combine_send(late.combine(handle)); }), is_void);
    combine.replay();
    for (const std::byte byte : untouched.content()) ensure(byte == Guarded::kCanary, "a combine of no tokens wrote");
    exchange_and_check(exchange, p, rank);
  }));
}

// A recording keeps pointers, so routing and rows may change between replays.
TEST(MoeRecording, ReplaysWithOtherRoutings) {
  const MoeExchangeArgs args = small_exchange();
  std::vector<PreparedMoe> prepared;
  for (std::uint32_t i = 0; i < 5; ++i) prepared.push_back(prepare({.args = args, .tokens = {6, 4}}, 2, i));
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    Tokens now = prepared[0].tokens[rank];
    const std::size_t rows =
        std::size_t{exchange.local_experts()} * exchange.capacity() * oracle::MoeRules(args).row_bytes;
    Guarded output(rows, 0), result(now.rows.size(), 0);
    std::vector<std::int32_t> counts(exchange.local_experts());
    const Recording recording = Recording::capture(communicator, [&] {
      const DispatchHandle handle = exchange.dispatch({.input = now.rows.data(),
                                                       .topk_ids = now.ids.data(),
                                                       .topk_ids_are_i64 = true,
                                                       .topk_weights = now.weights.data(),
                                                       .tokens = now.count,
                                                       .output = output.content().data(),
                                                       .counts = counts.data()});
      exchange.combine({.handle = handle, .input = output.content().data(), .output = result.content().data()});
    });
    for (const PreparedMoe& p : prepared) {
      std::ranges::copy(p.tokens[rank].rows, now.rows.begin());
      std::ranges::copy(p.tokens[rank].ids, now.ids.begin());
      std::ranges::copy(p.tokens[rank].weights, now.weights.begin());
      recording.replay();
      // Experts that give back what they got.
      const auto same = [&](std::uint32_t expert, std::size_t place) {
        const Arrival& arrival = p.routing[expert][place];
        return cast_row(args, p.tokens[arrival.rank], arrival.token);
      };
      const Bytes wanted = oracle::combined(args, p.rank_of, p.routing, p.placed, same, rank, now.count, {});
      ASSERT_TRUE(std::ranges::equal(result.content(), wanted));
      exchange_and_check(exchange, p, rank);  // eager calls in between
    }
  }));
}

// In every layout. Another recording with other tokens, and eager calls in the same memory, take turns with it.
TEST_P(Moe, RecordingsReplayedWithOtherRoutings) {
  const std::uint32_t ranks = GetParam();
  for (const Batch& batch : routings_for_two_graphs(ranks)) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    expect_all_well(run_world(static_cast<int>(ranks), smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      CpuMoe even(exchange, prepared[0], rank), odd(exchange, prepared[1], rank);
      const auto call = [&](CpuMoe& moe, const PreparedMoe&) {
        exchange.combine(moe.combine(exchange.dispatch(moe.dispatch())));
      };
      const auto check = [](CpuMoe& moe, const PreparedMoe&) {
        moe.check_dispatch();
        moe.check_combine();
      };
      exchange_other_routings(HostSide(communicator), prepared, even, odd, call, check);
    }));
  }
}

}  // namespace
}  // namespace weft::test
