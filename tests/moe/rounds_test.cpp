// Dispatch and combine on CPU ranks in rounds of experts.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <random>
#include <semaphore>
#include <thread>

#include "support/first_epoch.hpp"
#include "support/moe_rounds.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

class MoeRounds : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeRounds, testing::Values(1, 2, 3, 4));
class MoeRingRounds : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeRingRounds, testing::Values(1, 2, 3));

// Each call of a batch with each division. Results are those of one round, bit for bit, as the oracle knows no rounds.
void in_every_division(const std::vector<Batch>& batches, std::uint32_t ranks,
                       const Config& config = smallest_buffers()) {
  ASSERT_FALSE(batches.empty());
  for (const Batch& batch : batches) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    const std::vector<Division> divisions = every_division(batch.front().args, ranks);
    expect_all_well(run_world(static_cast<int>(ranks), config, [&](Communicator& communicator, int rank) {
      const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      // Made once, as in exchange_and_check().
      std::vector<std::unique_ptr<CpuMoe>> calls;
      for (const PreparedMoe& p : prepared)
        calls.push_back(std::make_unique<CpuMoe>(exchange, p, static_cast<std::uint32_t>(rank)));
      for (const Division& division : divisions) {
        for (const auto& call : calls) {
          call->fill();
          exchange_in_rounds(exchange, *call, division);
        }
      }
    }));
  }
}

TEST_P(MoeRounds, EveryKindOfRouting) {
  in_every_division(in_rounds(in_every_layout(every_kind_of_routing(GetParam()), GetParam())), GetParam());
}

TEST_P(MoeRingRounds, EveryKindOfRouting) {
  in_every_division(on_whole_ring(in_rounds(in_every_layout(every_kind_of_routing(GetParam()), GetParam()))),
                    GetParam());
}

TEST_P(MoeRounds, CastOnTheWay) {
  in_every_division(casts_on_the_way(GetParam()), GetParam());
}

TEST_P(MoeRingRounds, CastOnTheWay) {
  in_every_division(on_whole_ring(casts_on_the_way(GetParam())), GetParam());
}

TEST_P(MoeRounds, RowsOfEveryTypeBitForBit) {
  in_every_division(rows_of_every_type(GetParam()), GetParam());
}

TEST_P(MoeRounds, RowsWithPayloads) {
  in_every_division(in_rounds(in_every_layout(rows_with_payloads(GetParam()), GetParam())), GetParam());
}

TEST_P(MoeRingRounds, RowsWithPayloads) {
  in_every_division(on_whole_ring(in_rounds(in_every_layout(rows_with_payloads(GetParam()), GetParam()))), GetParam());
}

TEST_P(MoeRounds, ExpertsWhereTheCallerWants) {
  in_every_division(experts_where_the_caller_wants(GetParam()), GetParam());
}

TEST_P(MoeRingRounds, ExpertsWhereTheCallerWants) {
  in_every_division(on_whole_ring(experts_where_the_caller_wants(GetParam())), GetParam());
}

TEST_P(MoeRounds, SumsWithoutWeights) {
  in_every_division(sums_without_weights(GetParam()), GetParam());
}

TEST(MoeInRounds, RowsWithoutRoom) {
  in_every_division(in_rounds(rows_without_room()), 2);
  in_every_division(on_whole_ring(in_rounds(rows_without_room())), 2);
}

// The side of an exchange with replicas. Its results are those of an exchange whose experts are the replicas.
struct SideOfReplicas : CpuMoe {
  using CpuMoe::CpuMoe;
  DispatchArgs dispatch() {
    DispatchArgs args = CpuMoe::dispatch();
    args.topk_ids = given;
    return args;
  }
  const std::int32_t* given = nullptr;
};

TEST_P(MoeRounds, ReplicasServeInTurn) {
  const std::uint32_t ranks = GetParam();
  for (ReplicaCase replicas : replicas_in_turn(ranks)) {
    if (replicas.with.layout == RowLayout::rank_compact) continue;  // has one round
    serve_rounds(replicas);
    const PreparedMoe p = prepare(replicas.call, ranks, 3);
    const std::vector<Division> divisions = every_division(replicas.with, ranks);
    expect_all_well(run_world(static_cast<int>(ranks), smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange of_replicas = MoeExchange::create(communicator, replicas.with);
      const MoeExchange of_experts = MoeExchange::create(communicator, replicas.call.args);
      SideOfReplicas side(of_experts, p, rank);
      side.given = p.tokens[rank].given.data();
      for (const Division& division : divisions) {
        side.fill();
        exchange_in_rounds(of_replicas, side, division);
      }
    }));
  }
}

TEST_P(MoeRounds, EpochsWrap) {
  for (const std::uint32_t first : {0x7ffffffdu, 0xfffffffdu}) {
    const FirstEpoch epoch(first);
    in_every_division({every_kind_of_routing(GetParam())[0]}, GetParam());
  }
}

TEST_P(MoeRingRounds, EpochsWrap) {
  for (const std::uint32_t first : {0x7ffffffdu, 0xfffffffdu}) {
    const FirstEpoch epoch(first);
    in_every_division(on_whole_ring({every_kind_of_routing(GetParam())[0]}), GetParam());
  }
}

// Two threads of a rank: one dispatches and waits, the other one sends the sums of each round as soon as it has come,
// beside the next round. The next dispatch begins while sums of this one are still to come.
void combine_beside_later_rounds(const std::vector<Batch>& batches, std::uint32_t ranks) {
  for (const Batch& batch : batches) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    const Division division = every_division(batch.front().args, ranks)[2];
    expect_all_well(run_world(static_cast<int>(ranks), smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      std::vector<std::unique_ptr<CpuMoe>> calls;
      for (const PreparedMoe& p : prepared) calls.push_back(std::make_unique<CpuMoe>(exchange, p, rank));
      std::vector<DispatchHandle> handles(calls.size());
      std::counting_semaphore<> arrived(0), combined(static_cast<std::ptrdiff_t>(batch.front().args.handles));
      const auto dispatch_all = [&] {
        for (std::size_t i = 0; i < calls.size(); ++i) {
          combined.acquire();
          DispatchArgs args = calls[i]->dispatch();
          args.rounds = rounds_of(division);
          handles[i] = exchange.dispatch_send(args);
          for (args.round = 0; args.round < division.size(); ++args.round) {
            exchange.dispatch_wait(handles[i], args);
            arrived.release();
          }
        }
      };
      const auto combine_all = [&] {
        std::mt19937 delays(rank);
        for (std::size_t i = 0; i < calls.size(); ++i) {
          CombineArgs args;
          for (std::uint32_t round = 0; round < division.size(); ++round) {
            arrived.acquire();
            std::this_thread::sleep_for(std::chrono::microseconds(delays() % 3 == 0 ? 200 : 0));
            calls[i]->check_rows(end_of(division, round));
            args = calls[i]->combine(handles[i]);
            args.rounds = rounds_of(division);
            args.round = round;
            exchange.combine_send(args);
          }
          exchange.combine_wait(args);
          calls[i]->check_combine();
          combined.release();
        }
      };
      // A thread that fails lets the other one go on to its own error.
      constexpr std::ptrdiff_t kAll = 1000;
      std::exception_ptr failure;
      std::thread there([&] {
        try {
          dispatch_all();
        } catch (...) {
          failure = std::current_exception();
          arrived.release(kAll);
        }
      });
      const std::string error = error_of(combine_all);
      combined.release(kAll);
      there.join();
      if (failure) std::rethrow_exception(failure);
      ensure(error.empty(), error);
      for (const auto& call : calls) call->check_dispatch();
    }));
  }
}

TEST_P(MoeRounds, CombineRunsBesideLaterRounds) {
  combine_beside_later_rounds(in_rounds(in_every_layout(every_kind_of_routing(GetParam()), GetParam())), GetParam());
}

TEST_P(MoeRingRounds, CombineRunsBesideLaterRounds) {
  combine_beside_later_rounds(on_whole_ring(in_rounds(in_every_layout(every_kind_of_routing(GetParam()), GetParam()))),
                              GetParam());
}

// A rank that makes all rounds at once meets one that takes them apart.
void joined_beside_rounds(const MoeExchangeArgs& args) {
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  const Division division{1, 2, 1};
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    for (int turn = 0; turn < 6; ++turn) {
      CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
      if (turn % 2 == number) {
        exchange_in_rounds(exchange, moe, division);
        continue;
      }
      DispatchArgs there = moe.dispatch();
      there.rounds = rounds_of(division);
      CombineArgs back = moe.combine(exchange.dispatch(there));
      moe.check_dispatch();
      back.rounds = rounds_of(division);
      exchange.combine(back);
      moe.check_combine();
    }
  }));
}

TEST(MoeInRounds, RanksChooseForThemselves) {
  MoeExchangeArgs args = small_exchange();
  joined_beside_rounds(args);
  args.path = RowPath::ring;
  joined_beside_rounds(args);
}

// A recording of all rounds serves other routings.
TEST(MoeInRounds, RecordingsReplayedWithOtherRoutings) {
  std::vector<Batch> batches = in_rounds(routings_for_two_graphs(2));
  std::ranges::copy(on_whole_ring(batches), std::back_inserter(batches));
  for (const Batch& batch : batches) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, 2);
    const Division division = every_division(batch.front().args, 2)[2];
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
      const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      CpuMoe moe(exchange, prepared[0], static_cast<std::uint32_t>(rank));
      const Recording recording = Recording::capture(communicator, [&] {
        DispatchArgs there = moe.dispatch();
        there.rounds = rounds_of(division);
        CombineArgs back = moe.combine(exchange.dispatch_send(there));
        back.rounds = rounds_of(division);
        for (std::uint32_t round = 0; round < division.size(); ++round) {
          there.round = back.round = round;
          exchange.dispatch_wait(back.handle, there);
          exchange.combine_send(back);
        }
        exchange.combine_wait(back);
      });
      for (std::size_t i = 0; i < prepared.size(); i += 2) {
        moe.fill(prepared[i]);
        recording.replay();
        moe.check_dispatch();
        moe.check_combine();
      }
    }));
  }
}

// Impossible rounds are rejected with the range, and nothing has happened.
TEST(MoeInRounds, MisuseIsRejected) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
    const Division division{2, 1, 1}, other{1, 3};
    DispatchArgs there = moe.dispatch();
    there.rounds = rounds_of(division);
    const DispatchHandle handle = exchange.dispatch_send(there);
    CombineArgs back = moe.combine(handle);
    back.rounds = rounds_of(division);
    there.round = 1;
    expect_says(error_of([&] { exchange.dispatch_wait(handle, there); }),
                "round: 1 is out of turn: round 0 of 0 to 2 comes next");
    expect_says(error_of([&] { exchange.combine_send(back); }), "handle: its dispatch has not been waited for");
    there.round = 0;
    exchange.dispatch_wait(handle, there);
    back.round = 1;
    expect_says(error_of([&] { exchange.combine_send(back); }),
                "handle: its dispatch has not been waited for: round 1 of 0 to 2 comes next");
    expect_says(error_of([&] { exchange.combine(moe.combine(handle)); }), "round 1 of 0 to 2 comes next");
    back.rounds = rounds_of(other);  // its first round has fewer experts than have come
    back.round = 0;
    moe.make_results(1);
    exchange.combine_send(back);
    expect_says(error_of([&] { exchange.combine_wait(back); }), "combine_wait: round 1 of 0 to 1 has not been sent");
    back.round = 1;
    expect_says(error_of([&] { exchange.combine_send(back); }), "round 1 of 0 to 2 comes next");
    for (there.round = 1; there.round < 3; ++there.round) exchange.dispatch_wait(handle, there);
    moe.check_dispatch();
    moe.make_results(4);
    back.round = 2;
    expect_says(error_of([&] { exchange.combine_send(back); }),
                "round: 2 is out of turn: round 1 of 0 to 1 comes next");
    back.round = 1;
    exchange.combine_send(back);
    exchange.combine_wait(back);
    moe.check_combine();
    exchange_in_rounds(exchange, moe, division);
  }));
  const auto rejected = [&](const MoeExchangeArgs& of, const ExpertRounds& rounds, const char* says) {
    expect_all_well(run_world(1, smallest_buffers(), [&](Communicator& communicator, int) {
      const MoeExchange exchange = MoeExchange::create(communicator, of);
      const PreparedMoe one = prepare({.args = of, .tokens = {3}}, 1, 5);
      CpuMoe moe(exchange, one, 0);
      DispatchArgs there = moe.dispatch();
      there.rounds = rounds;
      expect_says(error_of([&] { exchange.dispatch_send(there); }), says);
      expect_says(error_of([&] { exchange.dispatch(there); }), says);
    }));
  };
  const Division few{4, 3}, more{4, 5};
  rejected(args, {.count = 0}, "rounds.count: 0 is not between 1 and 16");
  rejected(args, {.count = 17}, "rounds.count: 17 is not between 1 and 16");
  rejected(args, rounds_of(few), "rounds.experts: all rounds together have 7 experts, and not the 8");
  rejected(args, rounds_of(more), "rounds.experts: all rounds together have 9 experts, and not the 8");
  MoeExchangeArgs of_ring = args, late = args;
  of_ring.path = RowPath::ring;
  of_ring.tokens = 64;
  of_ring.ring_rows = 32;
  late.weights_at_combine = true;
  rejected(of_ring, {.count = 2},
           "rounds.count: 2 rounds serve most_tokens up to the 32 of MoeExchangeArgs::ring_rows, and not 64");
  rejected(late, {.count = 2}, "rounds.count: 2 rounds ask for weights at dispatch");
}

// A wait may have to send rows if a peer has more tokens than a ring has places. In rounds none has.
TEST(MoeInRounds, AWaitForSumsAsksForNoRows) {
  MoeExchangeArgs args = small_exchange();
  args.path = RowPath::ring;
  args.tokens = 64;
  args.ring_rows = 32;
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
    DispatchArgs there = moe.dispatch();
    there.most_tokens = 32;
    there.rounds = {.count = 2};
    const DispatchHandle handle = exchange.dispatch(there);
    moe.check_dispatch();
    CombineArgs back = moe.combine(handle);
    back.rounds = there.rounds;
    for (back.round = 0; back.round < 2; ++back.round) exchange.combine_send(back);
    back.input = nullptr;
    exchange.combine_wait(back);
    moe.check_combine();
  }));
}

// Ranks that divide differently would hide nothing behind anything: a mistake that both learn of.
TEST(MoeInRounds, RanksThatDivideDifferentlyFindOut) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  for (const Ending& ending : run_world(2, smallest_buffers(), [&](Communicator&communicator, int number) {
         const MoeExchange exchange = MoeExchange::create(communicator, args);
         CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
         const Division division{1, 3}, other{3, 1};
         exchange_in_rounds(exchange, moe, number == 0 ? division : other);
       })) {
    expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "ranks that divide differently");
  }
}

// The error of a rank whose peer stays away names the call, and the round that waits.
TEST(MoeInRounds, AFaultNamesTheRound) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  const std::vector<Ending> endings =
      run_world(2, cpu_config(short_deadline), [&](Communicator& communicator, int number) {
        const MoeExchange exchange = MoeExchange::create(communicator, args);
        CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
        const Division division{1, 2, 1};
        exchange_in_rounds(exchange, moe, division);
        if (number == 0) exchange_in_rounds(exchange, moe, division);
      });
  ASSERT_TRUE(endings[0].error.has_value());
  EXPECT_EQ(endings[0].error->code(), Errc::timeout);
  expect_says(endings[0].error->what(), "dispatch, its wait, round 0 of 0 to 2");
}

}  // namespace
}  // namespace weft::test
