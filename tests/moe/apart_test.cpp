// Dispatch and combine on CPU ranks whose sends and waits are separate calls.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "support/first_epoch.hpp"
#include "support/moe_batches.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

class MoeApart : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeApart, testing::Values(1, 2, 3, 4));

// The send of a dispatch comes between the halves of the combine before it, and joined calls between rounds.
void interleave(const std::vector<Batch>& batches, std::uint32_t ranks, const Config& config = smallest_buffers()) {
  for (const Batch& batch : batches) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    expect_all_well(run_world(static_cast<int>(ranks), config, [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      std::unique_ptr<CpuMoe> last;
      DispatchHandle of_last;
      for (const PreparedMoe& p : prepared) {
        auto moe = std::make_unique<CpuMoe>(exchange, p, rank);
        if (last) exchange.combine_send(last->combine(of_last));
        const DispatchHandle handle = exchange.dispatch_send(moe->dispatch());
        if (last) {
          exchange.combine_wait(last->combine(of_last));
          last->check_combine();
        }
        exchange.dispatch_wait(handle, moe->dispatch());
        moe->check_dispatch();
        last = std::move(moe);
        of_last = handle;
      }
      exchange.combine(last->combine(of_last));
      last->check_combine();
      exchange_and_check(exchange, prepared[0], rank);
    }));
  }
}

TEST_P(MoeApart, DispatchesAndCombinesInterleave) {
  interleave(in_every_layout(every_kind_of_routing(GetParam()), GetParam()), GetParam());
}

TEST_P(MoeApart, RowsWithPayloadsInterleave) {
  const std::vector<Batch> batches = in_every_layout(rows_with_payloads(GetParam()), GetParam());
  interleave(batches, GetParam());
  interleave(on_ring(batches), GetParam());
}

// Own rows stay out of the slots in joined calls of so many tokens, and not between halves.
TEST_P(MoeApart, ManyTokensInterleave) {
  interleave(entries_in_tallies(GetParam()), GetParam());
}

// A send determines the epoch of its wait, also if it is the last one before 0 or before the upper half.
TEST_P(MoeApart, EpochsWrap) {
  for (const std::uint32_t first : {0x7ffffffdu, 0xfffffffdu}) {
    Config config = smallest_buffers();
    const FirstEpoch epoch(first);
    interleave(every_kind_of_routing(GetParam()), GetParam(), config);
  }
}

// The arguments with only the input tensors, and with only the output tensors.
DispatchArgs sent_by(DispatchArgs args) {
  args.output = args.output_scales = nullptr;
  args.counts = args.offsets = args.output_sources = args.source_tokens = args.output_ids = nullptr;
  args.output_weights = nullptr;
  return args;
}
DispatchArgs received_by(DispatchArgs args) {
  args.input = args.scales = args.topk_ids = nullptr;
  args.topk_weights = nullptr;
  args.tokens = 0;
  return args;
}

// A send reads the input tensors and keeps none of them. A wait reads the output tensors, and the residual, which it
// adds.
TEST_P(MoeApart, EachHalfLooksAtItsOwnTensors) {
  for (const Batch& batch : in_every_layout(every_kind_of_routing(GetParam()), GetParam())) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, GetParam());
    expect_all_well(
        run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int rank) {
          const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
          for (const PreparedMoe& p : prepared) {
            CpuMoe moe(exchange, p, static_cast<std::uint32_t>(rank));
            const DispatchHandle handle = exchange.dispatch_send(sent_by(moe.dispatch()));
            moe.forget_tokens();
            exchange.dispatch_wait(handle, received_by(moe.dispatch()));
            moe.check_dispatch();
            CombineArgs back = moe.combine(handle);
            exchange.combine_send({.handle = handle, .input = back.input});
            moe.forget_results();
            back.input = nullptr;
            exchange.combine_wait(back);
            moe.check_combine();
          }
        }));
  }
}

// As many dispatches under way as there are handle slots, of two exchanges that differ in every property. Their halves
// come in any permitted order, with delays between all of them.
TEST_P(MoeApart, HandlesOfTwoExchangesInterleave) {
  const std::uint32_t ranks = GetParam();
  for (const auto& [one, other] : batches_that_differ(ranks)) {
    const Batch &batch = one, &second = other;  // clang 14's lambdas can capture these
    const std::vector<PreparedMoe> prepared[] = {prepare_all(batch, ranks), prepare_all(second, ranks)};
    const std::size_t handle_slots = batch.size();
    expect_all_well(run_world(static_cast<int>(ranks), smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchanges[] = {MoeExchange::create(communicator, batch.front().args),
                                       MoeExchange::create(communicator, second.front().args)};
      std::mt19937 delays(rank);
      const auto nap = [&] { std::this_thread::sleep_for(std::chrono::microseconds(delays() % 3 == 0 ? 300 : 0)); };
      for (int round = 0; round < 4; ++round) {
        std::vector<std::unique_ptr<CpuMoe>> calls[2];
        std::vector<DispatchHandle> handles[2];
        for (std::size_t handle_slot = 0; handle_slot < handle_slots; ++handle_slot) {
          for (int i : {0, 1}) {
            calls[i].push_back(std::make_unique<CpuMoe>(exchanges[i], prepared[i][handle_slot], rank));
            handles[i].push_back(exchanges[i].dispatch_send(calls[i].back()->dispatch()));
            nap();
          }
          for (int i : {1, 0}) {
            exchanges[i].dispatch_wait(handles[i].back(), calls[i].back()->dispatch());
            calls[i].back()->check_dispatch();
            nap();
          }
        }
        for (std::size_t turn = 0; turn < handle_slots; ++turn) {
          const std::size_t handle_slot = (turn + static_cast<std::size_t>(round)) % handle_slots;
          for (int i : {0, 1}) {
            exchanges[i].combine_send(calls[i][handle_slot]->combine(handles[i][handle_slot]));
            nap();
          }
          for (int i : {1, 0}) {
            exchanges[i].combine_wait(calls[i][handle_slot]->combine(handles[i][handle_slot]));
            calls[i][handle_slot]->check_combine();
            nap();
          }
        }
      }
    }));
  }
}

// A rank that calls both halves at once meets one that separates them: their bytes on the wire are the same.
TEST(MoeHalves, RanksChooseForThemselves) {
  // By the ring a rank that makes the joined call may have more tokens than there are places.
  const MoeCase by_slots{.args = small_exchange(), .tokens = {6, 3}};
  MoeCase by_ring = on_ring({{by_slots}}).front().front();
  by_ring.args.tokens = 70;
  by_ring.tokens = {70, kRingPlaces};
  MoeCase other = by_ring;
  other.tokens = {kRingPlaces, 70};
  for (const auto& cases : {std::pair{by_slots, by_slots}, {other, by_ring}}) {
    const MoeCase &even = cases.first, &odd = cases.second;  // clang 14 captures no structured bindings
    const PreparedMoe prepared[] = {prepare(even, 2, 5), prepare(odd, 2, 6)};
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchange = MoeExchange::create(communicator, even.args);
      for (std::uint32_t round = 0; round < 6; ++round) {
        if (round % 2 != rank) {
          exchange_and_check(exchange, prepared[round % 2], rank);
        } else {
          exchange_by_halves_and_check(exchange, prepared[round % 2], rank);
        }
      }
    }));
  }
}

// A call out of turn is rejected with its reason, and changes nothing.
TEST(MoeHalves, MisuseIsRejected) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuMoe moe(exchange, p, rank), other(exchange, p, rank);
    const auto rejected = [](Errc code, const char* says, auto call) {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
        return;
      }
      ADD_FAILURE() << "nothing says: " << says;
    };
    rejected(Errc::invalid_argument, "dispatch_wait: nothing was sent",
             [&] { exchange.dispatch_wait({}, moe.dispatch()); });
    const DispatchHandle handle = exchange.dispatch_send(moe.dispatch());
    rejected(Errc::in_flight, "dispatch: the dispatch before", [&] { exchange.dispatch_send(other.dispatch()); });
    rejected(Errc::in_flight, "dispatch: the dispatch before", [&] { exchange.dispatch(other.dispatch()); });
    rejected(Errc::invalid_argument, "not the one that was sent",
             [&] { exchange.dispatch_wait({handle.slot + 1}, moe.dispatch()); });
    rejected(Errc::invalid_argument, "not been waited for", [&] { exchange.combine(moe.combine(handle)); });
    exchange.dispatch_wait(handle, moe.dispatch());
    moe.check_dispatch();
    rejected(Errc::invalid_argument, "dispatch_wait: nothing was sent",
             [&] { exchange.dispatch_wait(handle, moe.dispatch()); });
    rejected(Errc::invalid_argument, "combine_wait: nothing was sent",
             [&] { exchange.combine_wait(moe.combine(handle)); });
    exchange.combine_send(moe.combine(handle));
    rejected(Errc::in_flight, "combine: the combine before", [&] { exchange.combine_send(moe.combine(handle)); });
    rejected(Errc::in_flight, "combine: the combine before", [&] { exchange.combine(moe.combine(handle)); });
    exchange.combine_wait(moe.combine(handle));
    moe.check_combine();
  }));
}

// The tables belong to the combine until its wait.
TEST(MoeHalves, AHandleSlotIsTakenUntilItsCombineWasWaitedFor) {
  MoeExchangeArgs args = small_exchange();
  args.handles = 1;
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  for (const Ending& ending : run_world(2, smallest_buffers(), [&](Communicator&communicator, int number) {
         const auto rank = static_cast<std::uint32_t>(number);
         const MoeExchange exchange = MoeExchange::create(communicator, args);
         CpuMoe moe(exchange, p, rank);
         exchange.combine_send(moe.combine(dispatch_and_check(exchange, p, rank)));
         exchange.dispatch_send(moe.dispatch());
       })) {
    expect_fault(ending, {Errc::in_flight, Errc::peer_failed}, "a dispatch before the combine was waited for");
  }
}

// A replayed wait without its send, and a send that is replayed twice, end with a fitting error.
TEST(MoeHalves, RecordingsOutOfTurnAreFound) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  for (const bool sends : {false, true}) {
    for (const Ending& ending : run_world(2, smallest_buffers(), [&](Communicator&communicator, int number) {
           const auto rank = static_cast<std::uint32_t>(number);
           const MoeExchange exchange = MoeExchange::create(communicator, args);
           CpuMoe moe(exchange, p, rank);
           DispatchHandle handle;
           const Recording send =
               Recording::capture(communicator, [&] { handle = exchange.dispatch_send(moe.dispatch(true)); });
           const Recording wait =
               Recording::capture(communicator, [&] { exchange.dispatch_wait(handle, moe.dispatch()); });
           for (int i = 0; i < 3; ++i) {
             send.replay();
             wait.replay();
             moe.check_dispatch();
           }
           if (sends) send.replay();
           (sends ? send : wait).replay();
         })) {
      expect_fault(ending, {Errc::overlap, Errc::peer_failed}, "a half of a dispatch out of turn");
    }
    for (const Ending& ending : run_world(2, smallest_buffers(), [&](Communicator&communicator, int number) {
           const auto rank = static_cast<std::uint32_t>(number);
           const MoeExchange exchange = MoeExchange::create(communicator, args);
           CpuMoe moe(exchange, p, rank);
           const DispatchHandle handle = exchange.dispatch(moe.dispatch());
           const Recording send = Recording::capture(communicator, [&] { exchange.combine_send(moe.combine(handle)); });
           const Recording wait = Recording::capture(communicator, [&] { exchange.combine_wait(moe.combine(handle)); });
           for (int i = 0; i < 3; ++i) {
             send.replay();
             wait.replay();
             moe.check_combine();
           }
           if (sends) send.replay();
           (sends ? send : wait).replay();
         })) {
      expect_fault(ending, {Errc::overlap, Errc::peer_failed}, "a half of a combine out of turn");
    }
  }
}

// A release makes earlier sends void.
TEST(MoeHalves, ReleaseVoidsWhatWasSent) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuMoe moe(exchange, p, rank);
    const DispatchHandle handle = exchange.dispatch_send(moe.dispatch());
    communicator.release();
    communicator.acquire();
    EXPECT_THROW(exchange.dispatch_wait(handle, moe.dispatch()), Error);
    exchange_and_check(exchange, p, rank);
  }));
}

}  // namespace
}  // namespace weft::test
