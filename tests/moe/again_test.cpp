// Dispatches on CPU ranks that are made again with the routing of an earlier one (DispatchArgs::again).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/first_epoch.hpp"
#include "support/moe_batches.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

DispatchArgs made_again(CpuMoe& moe, DispatchHandle handle, bool discard = false) {
  DispatchArgs args = moe.dispatch(discard);
  args.again = handle;
  return args;
}

// Each dispatch, and then twice another one with its routing and other rows, whose other outputs stay those of the
// first. Combine gives the same bits behind each of them.
void make_again_and_check(const std::vector<Batch>& batches, std::uint32_t ranks) {
  for (const Batch& batch : repeatable(batches)) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    std::vector<PreparedMoe> others;
    for (const PreparedMoe& p : prepared) others.push_back(with_other_rows(p));
    expect_all_well(run_world(static_cast<int>(ranks), smallest_buffers(), [&](Communicator& communicator, int number) {
      const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      for (std::size_t i = 0; i < prepared.size(); ++i) {
        CpuMoe moe(exchange, prepared[i], static_cast<std::uint32_t>(number));
        const DispatchHandle handle = exchange.dispatch(moe.dispatch());
        moe.check_dispatch();
        exchange.combine(moe.combine(handle));
        moe.check_combine();
        for (int time = 0; time < 2; ++time) {
          moe.fill_again(others[i]);
          EXPECT_EQ(exchange.dispatch(made_again(moe, handle)), handle);
          moe.check_dispatch();
          exchange.combine(moe.combine(handle));
          moe.check_combine();
        }
      }
    }));
  }
}

class MoeAgain : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeAgain, testing::Values(1, 2, 3, 4));

TEST_P(MoeAgain, EveryKindOfRouting) {
  make_again_and_check(in_every_layout(every_kind_of_routing(GetParam()), GetParam()), GetParam());
}

TEST_P(MoeAgain, RowsOfEveryTypeBitForBit) {
  make_again_and_check(in_every_layout(rows_of_every_type(GetParam()), GetParam()), GetParam());
}

TEST_P(MoeAgain, RowsWithPayloads) {
  make_again_and_check(in_every_layout(rows_with_payloads(GetParam()), GetParam()), GetParam());
}

TEST_P(MoeAgain, CastOnTheWay) {
  make_again_and_check(in_every_layout(casts_on_the_way(GetParam()), GetParam()), GetParam());
}

TEST_P(MoeAgain, RowsWithoutRoomAreDropped) {
  make_again_and_check(rows_without_room(), GetParam());
  make_again_and_check(with_payloads(rows_without_room()), GetParam());
}

// Ranks have different numbers of tokens, one of them none; the weights come with dispatch, or with combine.
TEST_P(MoeAgain, ManyTokensFlowThroughFewPlaces) {
  const std::vector<Batch> batches = in_every_layout({more_tokens_than_places(GetParam())}, GetParam());
  make_again_and_check(batches, GetParam());
  make_again_and_check(weighed_late(batches), GetParam());
}

// The epoch of a routing, and flags of counts.
TEST_P(MoeAgain, EpochsWrap) {
  Batch batch = more_tokens_than_places(GetParam());
  batch.resize(2);
  for (const std::uint32_t first : {0x7ffffffeu, 0xfffffffdu, 0xffffffffu}) {
    const FirstEpoch epoch(first);
    make_again_and_check({batch}, GetParam());
  }
}

// Other dispatches lie between, whose handle slots are others. No call takes a turn among them.
TEST_P(MoeAgain, BetweenOthers) {
  Batch batch = repeatable({more_tokens_than_places(GetParam())})[0];
  batch.resize(3);
  for (MoeCase& c : batch) c.args.handles = 3;
  const std::vector<PreparedMoe> p = prepare_all(batch, GetParam());
  const PreparedMoe first = with_other_rows(p[0]), second = with_other_rows(p[1]);
  expect_all_well(
      run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
        const auto rank = static_cast<std::uint32_t>(number);
        const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
        CpuMoe a(exchange, p[0], rank), b(exchange, p[1], rank);
        const DispatchHandle of_a = exchange.dispatch(a.dispatch()), of_b = exchange.dispatch(b.dispatch());
        a.fill_again(first);
        exchange.dispatch(made_again(a, of_a, true));
        const DispatchHandle of_c = dispatch_and_check(exchange, p[2], rank);
        EXPECT_NE(of_c.slot, of_a.slot);
        EXPECT_NE(of_c.slot, of_b.slot);
        b.fill_again(second);
        exchange.dispatch(made_again(b, of_b, true));
        b.check_dispatch();
        a.check_dispatch();
        for (const auto& [moe, handle] : {std::pair(&a, of_a), std::pair(&b, of_b)}) {
          exchange.combine(moe->combine(handle));
          moe->check_combine();
        }
        combine_and_check(exchange, p[2], rank, of_c);
      }));
}

TEST_P(MoeAgain, InHalves) {
  MoeCase c = repeatable({more_tokens_than_places(GetParam())})[0][0];
  c.tokens = {kRingPlaces, 3, 0};
  const PreparedMoe p = prepare(c, GetParam(), 1), other = with_other_rows(p);
  expect_all_well(
      run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
        const MoeExchange exchange = MoeExchange::create(communicator, c.args);
        CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
        const DispatchHandle handle = exchange.dispatch_send(moe.dispatch());
        const std::string early = error_of([&] { exchange.dispatch(made_again(moe, handle)); });
        expect_says(early, "again: its dispatch has not been waited for");
        exchange.dispatch_wait(handle, moe.dispatch());
        for (int time = 0; time < 3; ++time) {
          exchange.combine_send(moe.combine(handle));
          exchange.combine_wait(moe.combine(handle));
          moe.check_combine();
          moe.fill_again(other);
          EXPECT_EQ(exchange.dispatch_send(made_again(moe, handle)), handle);
          moe.forget_tokens();
          exchange.dispatch_wait(handle, moe.dispatch());
          moe.check_dispatch();
        }
      }));
}

// A recording has the handle slot and the numbers of tokens. So each replay takes the routing that its dispatch of the
// same recording has just left.
TEST_P(MoeAgain, RecordingsReplayWithOtherRoutings) {
  const Batch batch = repeatable({more_tokens_than_places(GetParam())})[0];
  const std::vector<PreparedMoe> prepared = prepare_all({batch[0], batch[2]}, GetParam());
  expect_all_well(
      run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
        const MoeExchange exchange = MoeExchange::create(communicator, batch[0].args);
        CpuMoe moe(exchange, prepared[0], static_cast<std::uint32_t>(number));
        DispatchHandle handle;
        const Recording whole = Recording::capture(communicator, [&] {
          handle = exchange.dispatch(moe.dispatch());
          exchange.combine(moe.combine(handle));
        });
        const Recording rows = Recording::capture(communicator, [&] {
          exchange.dispatch(made_again(moe, handle));
          exchange.combine(moe.combine(handle));
        });
        for (std::size_t round = 0; round < 4; ++round) {
          const PreparedMoe& p = prepared[round % 2];
          moe.fill(p);
          whole.replay();
          moe.check_combine();
          const PreparedMoe other = with_other_rows(p);
          moe.fill_again(other);
          rows.replay();
          moe.check_dispatch();
          moe.check_combine();
          moe.fill(p);  // `other` ends here
        }
      }));
}

TEST(MoeAgainArguments, MisuseIsRejected) {
  MoeExchangeArgs args = small_exchange();
  args.path = RowPath::ring;
  MoeExchangeArgs repeats = args;
  repeats.repeatable = true;
  repeats.maps = 2;
  for (std::int32_t place = 0; place < 2 * static_cast<std::int32_t>(repeats.experts); ++place)
    repeats.experts_of_rank.push_back(place % static_cast<std::int32_t>(repeats.experts));
  const PreparedMoe p = prepare({.args = repeats, .tokens = {6, 3}}, 2, 5);
  const PreparedMoe q = prepare({.args = repeats, .tokens = {6, 3}, .most_tokens = 6}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange x = MoeExchange::create(communicator, repeats), y = MoeExchange::create(communicator, repeats),
                      once = MoeExchange::create(communicator, args);
    CpuMoe moe(x, p, rank);
    const DispatchHandle first = x.dispatch(moe.dispatch()), of_y = dispatch_and_check(y, p, rank),
                         of_once = dispatch_and_check(once, p, rank);
    x.combine(moe.combine(first));
    const auto rejected = [&](const MoeExchange& exchange, DispatchHandle handle, const auto& change) {
      DispatchArgs call = made_again(moe, handle);
      change(call);
      const std::string joined = error_of([&] { exchange.dispatch(call); });
      EXPECT_EQ(error_of([&] { exchange.dispatch_send(call); }).substr(0, 20), joined.substr(0, 20));
      return joined;
    };
    const auto as_it_is = [](DispatchArgs&) {};
    expect_says(rejected(once, of_once, as_it_is),
                "again: not empty, and the exchange is not repeatable: make it with "
                "MoeExchangeArgs::repeatable");
    expect_says(rejected(x, of_y, as_it_is), "again: another exchange has given it");
    DispatchHandle later = first;
    later.number += 7;
    expect_says(rejected(x, later, as_it_is), "again: no dispatch has given it");
    expect_says(rejected(x, {.slot = 1}, as_it_is), "again: no dispatch has given it");
    const std::string own = std::to_string(first.tokens), fewer = std::to_string(first.tokens - 1);
    expect_says(rejected(x, first, [](DispatchArgs& call) { --call.tokens; }),
                "tokens: " + fewer + " is not the " + own + " of `again`");
    expect_says(rejected(x, first, [](DispatchArgs& call) { call.most_tokens = 6; }),
                "most_tokens: 6 is not the 0 of `again`");
    expect_says(rejected(x, first, [](DispatchArgs& call) { call.map = 1; }),
                "map: 1 is not 0, and a dispatch made again takes the ranks of its routing");
    std::uint64_t words[8] = {};
    expect_says(rejected(x, first, [&](DispatchArgs& call) { call.host_counts = words; }),
                "host_counts: not null, and a dispatch made again has no new counts");
    expect_says(rejected(x, first, [](DispatchArgs& call) { call.rounds.count = 2; }),
                "rounds.count: 2 is not 1, and the exchange is repeatable");
    DispatchArgs nowhere = made_again(moe, first);
    nowhere.output = nullptr;
    expect_says(error_of([&] { x.dispatch(nowhere); }), "output: null");
    exchange_and_check(x, p, rank);
    exchange_and_check(x, q, rank);  // the first one's handle slot
    expect_says(rejected(x, first, as_it_is), "again: a later dispatch has taken its slot");
    combine_and_check(y, p, rank, of_y);
    combine_and_check(once, p, rank, of_once);
  }));
}

// A dispatch that is made again waits for its combine like any other.
TEST(MoeAgainFaults, AHandleSlotMayStillWait) {
  const MoeCase c = repeatable({{{.args = small_exchange(), .tokens = {6, 3}}}})[0][0];
  const PreparedMoe p = prepare(c, 2, 5);
  for (const Ending& ending : run_world(2, smallest_buffers(), [&](Communicator&communicator, int number) {
         const MoeExchange exchange = MoeExchange::create(communicator, c.args);
         CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
         const DispatchHandle handle = exchange.dispatch(moe.dispatch());
         exchange.dispatch(made_again(moe, handle, true));
         exchange.combine(moe.combine(handle));
         exchange.dispatch(made_again(moe, handle));
         exchange.dispatch(made_again(moe, handle));
       })) {
    expect_fault(ending, {Errc::in_flight, Errc::peer_failed}, "a handle slot that waits for its combine");
  }
}

// Two ranks make calls of one name with routings of two dispatches, which have as many tokens.
TEST(MoeAgainFaults, RanksMeanOneRouting) {
  const MoeCase c = repeatable({{{.args = small_exchange(), .tokens = {6, 3}}}})[0][0];
  const PreparedMoe p = prepare(c, 2, 5), q = prepare(c, 2, 6);
  const std::vector<Ending> endings = run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, c.args);
    CpuMoe moe(exchange, p, rank);
    const DispatchHandle first = dispatch_and_check(exchange, p, rank), second = dispatch_and_check(exchange, q, rank);
    combine_and_check(exchange, p, rank, first);
    combine_and_check(exchange, q, rank, second);
    exchange.dispatch(made_again(moe, first));
    moe.check_neighbours();
    exchange.combine(moe.combine(first));
    exchange.dispatch(made_again(moe, number == 0 ? first : second));
  });
  for (const Ending& ending : endings)
    expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "routings of two dispatches");
}

// A call that is made again is no dispatch of ids.
TEST(MoeAgainFaults, RanksMakeItTogether) {
  const MoeCase c = repeatable({{{.args = small_exchange(), .tokens = {6, 3}}}})[0][0];
  const PreparedMoe p = prepare(c, 2, 5);
  for (const Ending& ending : run_world(2, smallest_buffers(), [&](Communicator&communicator, int number) {
         const MoeExchange exchange = MoeExchange::create(communicator, c.args);
         CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
         const DispatchHandle handle = exchange.dispatch(moe.dispatch());
         exchange.combine(moe.combine(handle));
         exchange.dispatch(number == 0 ? made_again(moe, handle) : moe.dispatch());
       })) {
    expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "a dispatch made again beside a new one");
    if (!ending.error || ending.error->code() != Errc::mismatch) continue;
    EXPECT_NE(ending.error->fault().operation, ending.error->fault().theirs);  // their names differ
  }
}

// The host does not see what a recording finds in its handle slot: here the routing of another number of tokens.
TEST(MoeAgainFaults, ARecordingFindsOtherTokens) {
  MoeCase c = repeatable({{{.args = small_exchange(), .tokens = {6, 3}}}})[0][0];
  c.args.handles = 1;
  MoeCase less = c;
  less.tokens = {5, 2};
  const PreparedMoe p = prepare(c, 2, 5), q = prepare(less, 2, 6);
  const std::vector<Ending> endings = run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, c.args);
    CpuMoe moe(exchange, p, rank);
    const DispatchHandle first = dispatch_and_check(exchange, p, rank);
    combine_and_check(exchange, p, rank, first);
    const Recording recording = Recording::capture(communicator, [&] { exchange.dispatch(made_again(moe, first)); });
    recording.replay();
    moe.check_neighbours();
    exchange.combine(moe.combine(first));
    exchange_and_check(exchange, q, rank);
    recording.replay();
  });
  for (const Ending& ending : endings)
    expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "the routing of other tokens");
}

}  // namespace
}  // namespace weft::test
