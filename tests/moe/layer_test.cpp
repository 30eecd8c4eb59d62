// Layers of experts on CPU ranks, with GEMMs in plain loops.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <string>
#include <vector>

#include "support/moe_layers.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

class MoeLayers : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeLayers, testing::Values(1, 2, 3, 4));

// One after the other the parts give what the oracle says. Every other schedule and division has the same bits.
TEST_P(MoeLayers, EveryScheduleHasTheSameBits) {
  const std::uint32_t ranks = GetParam();
  for (const std::vector<LayerCase>& cases : layers_of_every_kind(ranks)) {
    std::vector<PreparedMoe> prepared;
    for (const LayerCase& of : cases) prepared.push_back(prepare(of.call, ranks, 7));
    const std::vector<LayerOrder> orders = every_order(cases[0].call.args, ranks);
    std::vector<std::vector<Bytes>> results(cases[0].call.args.experts);
    std::barrier meeting(static_cast<std::ptrdiff_t>(ranks));
    expect_all_well(run_world(static_cast<int>(ranks), smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchange = MoeExchange::create(communicator, cases[0].call.args);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        CpuLayer moe(exchange, cases[i], prepared[i], rank);
        Bytes plain;
        for (const LayerOrder& order : orders) {
          moe.fill(prepared[i]);
          moe.layer().run(moe.call(order));
          if (order.schedule != LayerSchedule::plain) {
            expect_bytes(moe.output(), plain, std::string("the output of ") + std::string(name(order.schedule)));
            continue;
          }
          plain.assign(moe.output().begin(), moe.output().end());
          moe.give_results(results);
          meeting.arrive_and_wait();
          const std::string wrong = error_of([&] {
            moe.check_middle();
            moe.check_output(results);
          });
          meeting.arrive_and_wait();  // nobody changes the results meanwhile
          ensure(wrong.empty(), wrong);
        }
      }
    }));
  }
}

// Two layers of one exchange are called in turns, in other memory and with other routings.
TEST(MoeLayersOfTwo, LayersOfOneExchangeTakeTurns) {
  const std::vector<LayerCase> cases = layers_of_every_kind(2)[0];
  const LayerOrder order{LayerSchedule::rounds, {1, 2, 1}};
  const PreparedMoe first = prepare(cases[0].call, 2, 3), second = prepare(cases[0].call, 2, 4);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, cases[0].call.args);
    CpuLayer in_rounds(exchange, cases[0], first, static_cast<std::uint32_t>(rank));
    CpuLayer plain(exchange, cases[0], first, static_cast<std::uint32_t>(rank));
    for (const PreparedMoe* p : {&first, &second, &first}) {
      in_rounds.fill(*p);
      plain.fill(*p);
      in_rounds.layer().run(in_rounds.call(order));
      plain.layer().run(plain.call({LayerSchedule::plain, {}}));
      expect_bytes(in_rounds.output(), plain.output(), "a layer in rounds");
    }
  }));
}

// There is no deadline: a rank that is not told waits for ever.
TEST(MoeLayersOfTwo, RejectionByOneRankEndsThoseThatWait) {
  const std::vector<LayerCase> cases = layers_of_every_kind(2)[0];
  const PreparedMoe p = prepare(cases[0].call, 2, 3);
  const auto endings = run_world(2, cpu_config(std::chrono::nanoseconds(0)), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, cases[0].call.args);
    CpuLayer moe(exchange, cases[0], p, static_cast<std::uint32_t>(rank));
    MoeLayerCall call = moe.call({LayerSchedule::plain, {}});
    if (rank == 1) call.workspace = nullptr;
    moe.layer().run(call);
  });
  expect_fault(endings[0], {Errc::mismatch}, "the rank that waits");
  ASSERT_TRUE(endings[0].error);
  expect_says(endings[0].error->fault().theirs, "a call that it rejected (workspace: ");
  expect_says(endings[1].what, "workspace: ");
}

// An observer hears of each part in front of it and behind it, in the order in which they are enqueued.
TEST(MoeLayersOfTwo, ObserversHearOfEveryPart) {
  const std::vector<LayerCase> cases = layers_of_every_kind(2)[0];
  const PreparedMoe p = prepare(cases[0].call, 2, 3);
  const auto parts_of = [](const CpuLayer& moe, MoeLayerCall call) {
    std::vector<std::string> parts;
    bool within = false;
    call.observe = [&](const LayerPart& part) {
      EXPECT_EQ(part.begins, !within);
      within = part.begins;
      const std::string text = std::string(name(part.which)) + " " + std::to_string(part.round);
      if (part.begins) {
        parts.push_back(text);
      } else {
        EXPECT_EQ(parts.back(), text);
      }
    };
    moe.layer().run(call);
    EXPECT_FALSE(within);
    return parts;
  };
  using Parts = std::vector<std::string>;
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, cases[0].call.args);
    CpuLayer moe(exchange, cases[0], p, static_cast<std::uint32_t>(rank));
    moe.fill(p);
    EXPECT_EQ(parts_of(moe, moe.call({LayerSchedule::plain, {}})),
              (Parts{"dispatch 0", "up 0", "activation 0", "down 0", "combine 0"}));
    EXPECT_EQ(parts_of(moe, moe.call({LayerSchedule::rounds, {1, 3}})),
              (Parts{"dispatch send 0", "dispatch wait 0", "up 0", "activation 0", "down 0", "combine send 0",
                     "dispatch wait 1", "up 1", "activation 1", "down 1", "combine send 1", "combine wait 0"}));
    EXPECT_EQ(parts_of(moe, moe.call({LayerSchedule::combine_rounds, {1, 3}})),
              (Parts{"dispatch 0", "up 0", "activation 0", "down 0", "combine send 0", "down 1", "combine send 1",
                     "combine wait 0"}));
  }));
}

TEST(MoeLayersOfTwo, ImpossibleOnesAreRejected) {
  const LayerCase of = layers_of_every_kind(1)[0][0];
  const PreparedMoe p = prepare(of.call, 1, 3);
  expect_all_well(run_world(1, smallest_buffers(), [&](Communicator& communicator, int) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    MoeExchangeArgs by_rank = of.call.args;
    by_rank.layout = RowLayout::rank_major;
    by_rank.capacity = 0;
    const MoeExchange other = MoeExchange::create(communicator, by_rank);
    expect_says(error_of([&] { MoeLayer::create(other, {.intermediate = 64}); }), "exchange: its layout is rank-major");
    expect_says(error_of([&] { MoeLayer::create(exchange, {.intermediate = 0}); }),
                "intermediate: 0 is not a multiple of 8");
    expect_says(error_of([&] { MoeLayer::create(exchange, {.intermediate = 136, .down_cast = RowCast::fp8}); }),
                "intermediate: 136 is not a multiple of 128");
    CpuLayer moe(exchange, of, p, 0);
    const auto rejected = [&](auto change, const char* says) {
      MoeLayerCall call = moe.call({LayerSchedule::plain, {}});
      change(call);
      expect_says(error_of([&] { moe.layer().run(call); }), says);
    };
    rejected([](MoeLayerCall& call) { call.up = nullptr; }, "up, down: both GEMMs must be given");
    rejected([](MoeLayerCall& call) { call.workspace = nullptr; }, "is null or not aligned to 256 bytes");
    rejected([](MoeLayerCall& call) { call.rounds.count = 2; }, "rounds.count: 2 is not 1, and the schedule is plain");
    rejected(
        [](MoeLayerCall& call) {
          call.schedule = LayerSchedule::rounds;
          call.rounds.count = 17;
        },
        "rounds.count: 17 is not between 1 and 16");
    moe.layer().run(moe.call({LayerSchedule::plain, {}}));
  }));
}

}  // namespace
}  // namespace weft::test
