// Dispatches and combines that fail: every rank names the reason, and nothing is written outside the outputs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "support/moe_batches.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

struct OtherExchange {
  const char* theirs;  // in the message
  std::function<void(MoeExchangeArgs&)> change;
  std::function<void(MoeExchangeArgs&)> all = [](MoeExchangeArgs&) {};
};

// Changes every field of MoeExchangeArgs on one rank of three.
std::vector<OtherExchange> other_exchanges() {
  const auto contiguous = [](auto& a) { a.layout = RowLayout::expert_contiguous; };
  const auto fp8 = [](auto& a) { a.type = RowType::fp8; };
  const auto cast = [](auto& a) { a.cast = RowCast::fp8; };
  return {{"tokens 7", [](auto& a) { a.tokens = 7; }},
          {"hidden 128", [](auto& a) { a.hidden = 128; }},
          {"experts 9", [](auto& a) { a.experts = 9; }},
          {"top_k 4", [](auto& a) { a.top_k = 4; }},
          {"scale_bytes 4", [](auto& a) { a.scale_bytes = 4; }, fp8},
          {"alignment 2", [](auto& a) { a.alignment = 2; }, contiguous},
          {"capacity 5", [](auto& a) { a.capacity = 5; }},
          {"handles 3", [](auto& a) { a.handles = 3; }},
          {"type 1", [](auto& a) { a.type = RowType::f16; }},
          {"cast 1", [](auto& a) { a.cast = RowCast::fp8; }},
          {"cast 2", [](auto& a) { a.cast = RowCast::fp8_ue8m0; }},
          {"cast 3", [](auto& a) { a.cast = RowCast::fp8_pow2; }},
          {"scale_order 1", [](auto& a) { a.scale_order = ScaleOrder::columns; }, cast},
          {"layout 2", [](auto& a) { a.layout = RowLayout::rank_major; }},
          {"combine_type f16", [](auto& a) { a.combine_type = DataType::f16; }},
          {"overflow 1", [](auto& a) { a.overflow = Overflow::drop; }},
          {"weighted false", [](auto& a) { a.weighted = false; }},
          {"weights_at_combine true", [](auto& a) { a.weights_at_combine = true; }},
          {"path ring", [](auto& a) { a.path = RowPath::ring; }},
          {"ring_rows 64", [](auto& a) { a.ring_rows = 64; }, [](auto& a) { a.path = RowPath::ring; }},
          {"blocks 8", [](auto& a) { a.blocks = 8; }},
          {"repeatable true", [](auto& a) { a.repeatable = true; }, [](auto& a) { a.path = RowPath::ring; }},
          {"payload_bytes 8 4 0 0",
           [](auto& a) {
             a.payload_bytes = {8, 4};
           }},
          {"rank_of_expert ", [](auto& a) { a.rank_of_expert.assign(8, 0); }},
          {"rank_of_expert ", [](auto& a) { a.rank_of_expert[7] = 2; }, [](auto& a) { a.rank_of_expert.assign(8, 0); }},
          {"rank_of_expert ",
           [](auto& a) {
             a.ranks_of_expert.assign(8, {0, 1});
           }},
          {"rank_of_expert ",
           [](auto& a) {
             a.ranks_of_expert[7] = {1, 0};
           },
           [](auto& a) {
             a.ranks_of_expert.assign(8, {0, 1});
           }},
          {"rank_of_expert ",
           [](auto& a) {
             a.ranks_of_expert = {{0, 1}, {2}, {0}, {0}, {0}, {0}, {0}, {0}};
           },
           [](auto& a) {
             a.ranks_of_expert = {{0}, {1, 2}, {0}, {0}, {0}, {0}, {0}, {0}};
           }},
          {"rank_of_expert ", [](auto& a) { a.experts_of_rank[8] = 5; },
           [](auto& a) { a.experts_of_rank = {0, 1, 2, 3, 4, 5, 6, 7, -1}; }},
          {"maps 2", [](auto& a) { a.maps = 2; },
           [](auto& a) {
             a.experts_of_rank.assign(54, 0);
             for (int place = 0; place < 54; ++place) a.experts_of_rank[static_cast<std::size_t>(place)] = place % 8;
           }}};
}

void create_and_disagree(Communicator& communicator, int rank, const OtherExchange& other) {
  MoeExchangeArgs args = small_exchange();
  other.all(args);
  if (rank == 1) other.change(args);
  const std::string error = error_of([&] { MoeExchange::create(communicator, args); });
  const std::string what = fmt::format("of {}: {}", other.theirs, error);
  ensure(error.find("ranks disagree about MoeExchangeArgs: rank 0 has ") != std::string::npos, what);
  const std::size_t theirs = error.find("; rank 1 has ");
  ensure(theirs != std::string::npos && error.find(other.theirs, theirs) != std::string::npos, what);
  // The message leaves out equal fields.
  ensure(error.find(", ", theirs) == std::string::npos, what);
}

TEST(MoeFaults, RanksThatDisagreeFindOut) {
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, 3, 5);
  expect_all_well(run_world(3, smallest_buffers(), [&](Communicator& communicator, int rank) {
    for (const OtherExchange& other : other_exchanges()) create_and_disagree(communicator, rank, other);
    const MoeExchange exchange = MoeExchange::create(communicator, small_exchange());
    const auto number = static_cast<std::uint32_t>(rank);
    exchange_and_check(exchange, p, number);
  }));
}

// Also between processes, which share only the memory that they map from each other.
TEST(MoeFaults, ProcessesThatDisagreeFindOutAndGoOn) {
  constexpr int kSize = 3;
  const PreparedMoe p = prepare({.args = small_exchange(), .tokens = {6, 3}}, kSize, 5);
  const UniqueId id = UniqueId::create();
  Processes processes(kSize, [&](const Child& self) {
    Communicator communicator = Communicator::from_id(id, self.rank(), kSize, smallest_buffers());
    for (const OtherExchange& other : other_exchanges()) create_and_disagree(communicator, self.rank(), other);
    const MoeExchange exchange = MoeExchange::create(communicator, small_exchange());
    const auto rank = static_cast<std::uint32_t>(self.rank());
    for (int round = 0; round < 20; ++round) {
      exchange_and_check(exchange, p, rank);
      if (round != 10) continue;
      communicator.release();
      communicator.acquire();
    }
  });
  for (const Outcome& outcome : processes.wait()) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.exit_code, 0) << "signal " << outcome.signal << ", too slow " << outcome.too_slow;
  }
}

TEST(MoeFaults, OneDispatchTooMany) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  for (const Ending& ending : run_world(2, smallest_buffers(), [&](Communicator&communicator, int number) {
         const auto rank = static_cast<std::uint32_t>(number);
         const MoeExchange exchange = MoeExchange::create(communicator, args);
         for (int i = 0; i < 4; ++i) dispatch_and_check(exchange, p, rank, i >= 2);  // the last two discard
         dispatch_and_check(exchange, p, rank);
       })) {
    expect_fault(ending, {Errc::in_flight, Errc::peer_failed}, "third dispatch");
  }
}

// An overflow overwrites nothing.
TEST(MoeFaults, OverflowIsAnError) {
  const Batch by_slots = more_rows_than_room();
  Batch cases = on_ring({by_slots}).front();
  cases.insert(cases.end(), by_slots.begin(), by_slots.end());
  for (const MoeCase& c : cases) {
    const PreparedMoe p = prepare(c, 2, 5);
    const auto endings = run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
      const MoeExchange exchange = MoeExchange::create(communicator, c.args);
      CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
      try {
        const DispatchHandle handle = exchange.dispatch(moe.dispatch());
        exchange.combine(moe.combine(handle));
      } catch (const Error&) {
        moe.check_neighbours();
        throw;
      }
    });
    expect_fault(endings[0], {Errc::peer_failed}, "the rank that only sends");
    expect_fault(endings[1], {Errc::overflow}, "the experts' rank");
    expect_reason(endings[1], Errc::overflow, "room for ");
  }
}

TEST(MoeFaults, RoomForRowsAndPadsIsEnough) {
  const PreparedMoe p = prepare(rows_and_a_pad(8), 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    exchange_and_check(exchange, p, rank);
  }));
}

TEST(MoeFaults, AMissingDispatchIsNamed) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6}}, 2, 5);
  const auto endings =
      run_world(2, cpu_config(std::chrono::milliseconds(200)), [&](Communicator& communicator, int rank) {
        const MoeExchange exchange = MoeExchange::create(communicator, args);
        if (rank == 0) dispatch_and_check(exchange, p, 0);
      });
  expect_fault(endings[0], {Errc::timeout}, "the rank that waits");
  EXPECT_EQ(endings[0].error->fault().peer, 1);
}

TEST(MoeFaults, AMissingCombineIsNamed) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6}}, 2, 5);
  const auto endings =
      run_world(2, cpu_config(std::chrono::milliseconds(200)), [&](Communicator& communicator, int rank) {
        const MoeExchange exchange = MoeExchange::create(communicator, args);
        const DispatchHandle handle = dispatch_and_check(exchange, p, static_cast<std::uint32_t>(rank));
        if (rank == 0) combine_and_check(exchange, p, 0, handle);
      });
  expect_fault(endings[0], {Errc::timeout}, "the rank that waits");
  EXPECT_EQ(endings[0].error->fault().peer, 1);
}

// A rank that sends and does not wait has given its peers everything. Its next call reports the missing wait.
TEST(MoeFaults, OneThatSendsAndNeverWaitsHoldsNobodyUp) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6}}, 2, 5);
  expect_all_well(run_world(2, cpu_config(short_deadline), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    const DispatchHandle handle = dispatch_and_check(exchange, p, rank);
    CpuMoe moe(exchange, p, rank);
    exchange.combine_send(moe.combine(handle));
    if (rank == 0) {
      exchange.combine_wait(moe.combine(handle));
      moe.check_combine();
    } else {
      expect_code([&] { exchange.combine(moe.combine(handle)); }, Errc::in_flight, "has been sent and not been waited");
    }
    communicator.release();  // ranks meet, and the sent data is void
    communicator.acquire();
    exchange_and_check(exchange, p, rank);
  }));
}

// Only tags on the wire show that ranks combine different dispatches.
TEST(MoeFaults, TagsTellCombinesApart) {
  const MoeExchangeArgs args = small_exchange();
  const PreparedMoe p = prepare({.args = args, .tokens = {6}}, 2, 5);
  const auto endings = run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    const DispatchHandle handles[] = {dispatch_and_check(exchange, p, rank), dispatch_and_check(exchange, p, rank)};
    CpuMoe moe(exchange, p, rank);
    CombineArgs call = moe.combine(handles[rank]);
    call.tag = 77 + rank;
    exchange.combine(call);
  });
  for (const Ending& ending : endings) {
    expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "combines of two micro-batches");
    expect_says(ending.what, "combine tag 7");
  }
}

}  // namespace
}  // namespace weft::test
