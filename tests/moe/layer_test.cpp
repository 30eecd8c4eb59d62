// Layers of experts on CPU ranks, with GEMMs in plain loops.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/layer/part_blocks.hpp"
#include "support/bytes.hpp"
#include "support/first_epoch.hpp"
#include "support/moe_layers.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

class MoeLayers : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeLayers, testing::Values(1, 2, 3, 4));

struct EverySchedule {
  std::uint32_t ranks;
  MoeExchangeArgs args;  // of the exchange
  std::vector<LayerCase> cases;
  // Of ranks_of_expert: the exchange whose experts are the replicas, by which `cases` were prepared.
  std::optional<MoeExchangeArgs> of_replicas = {};
};

// One after the other the parts give what the oracle says. Every other schedule and division has the same bits.
void expect_the_same_bits(const EverySchedule& of) {
  std::vector<PreparedMoe> prepared;
  for (const LayerCase& each : of.cases) prepared.push_back(prepare(each.call, of.ranks, 7));
  const std::vector<LayerOrder> orders = every_order(of.args, of.ranks);
  std::vector<std::vector<Bytes>> results(of.cases[0].call.args.experts);
  std::barrier meeting(static_cast<std::ptrdiff_t>(of.ranks));
  expect_all_well(
      run_world(static_cast<int>(of.ranks), smallest_buffers(), [&](Communicator& communicator, int number) {
        const auto rank = static_cast<std::uint32_t>(number);
        const MoeExchange exchange = MoeExchange::create(communicator, of.args);
        const MoeExchange numbers = of.of_replicas ? MoeExchange::create(communicator, *of.of_replicas) : exchange;
        for (std::size_t i = 0; i < of.cases.size(); ++i) {
          CpuLayer moe(exchange, of.cases[i], prepared[i], rank, numbers);
          Bytes plain;
          for (const LayerOrder& order : orders) {
            moe.fill(prepared[i]);
            MoeLayerCall call = moe.call(order);
            if (of.of_replicas) call.topk_ids = prepared[i].tokens[rank].given.data();
            moe.layer().run(call);
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

TEST_P(MoeLayers, EveryScheduleHasTheSameBits) {
  for (const std::vector<LayerCase>& cases : layers_of_every_kind(GetParam()))
    expect_the_same_bits({.ranks = GetParam(), .args = cases[0].call.args, .cases = cases});
}

TEST_P(MoeLayers, ReplicasServeInTurn) {
  for (ReplicaCase replicas : replicas_in_turn(GetParam())) {
    if (replicas.with.layout >= RowLayout::rank_major) continue;  // no layer has it
    replicas.with.hidden = replicas.call.args.hidden = 128;       // plain loops are slow
    serve_rounds(replicas);
    expect_the_same_bits({.ranks = GetParam(),
                          .args = replicas.with,
                          .cases = {{replicas.call, RowCast::none}},
                          .of_replicas = replicas.call.args});
  }
}

TEST_P(MoeLayers, EpochsWrap) {
  const std::vector<std::vector<LayerCase>> all = layers_of_every_kind(GetParam());
  for (const std::uint32_t first : {0x7ffffffdu, 0xfffffffdu}) {
    const FirstEpoch epoch(first);
    for (const std::size_t kind : {std::size_t{0}, all.size() - 2})  // by slots, and by a ring
      expect_the_same_bits({.ranks = GetParam(), .args = all[kind][0].call.args, .cases = {all[kind][0]}});
  }
}

// Layers of two exchanges, in a thread each: each GEMM waits until the other layer has come as far. So neither layer
// ends before the other one has begun.
TEST(MoeLayersOfTwo, TwoLayersAreInFlightAtOnce) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3), other = prepare(of.call, 2, 4);
  const LayerOrder plain{LayerSchedule::plain, {}}, rounds{LayerSchedule::rounds, {1, 2, 1}},
      combine{LayerSchedule::combine_rounds, {1, 2, 1}};
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange first = MoeExchange::create(communicator, of.call.args);
    const MoeExchange second = MoeExchange::create(communicator, of.call.args);
    CpuLayer one(first, of, p, static_cast<std::uint32_t>(rank));
    CpuLayer two(second, of, other, static_cast<std::uint32_t>(rank));
    const auto alone = [&](CpuLayer& moe) {
      moe.layer().run(moe.call(plain));
      return Bytes(moe.output().begin(), moe.output().end());
    };
    const Bytes of_one = alone(one), of_two = alone(two);
    for (const auto& orders : {std::pair{rounds, rounds}, {rounds, plain}, {combine, rounds}}) {
      const LayerOrder &order = orders.first, &beside = orders.second;  // clang 14 captures no structured bindings
      one.fill(p);
      two.fill(other);
      std::barrier first_gemm(2), last_gemm(2);
      const auto run = [&](CpuLayer& moe, const LayerOrder& in) {
        return error_of([&] {
          MoeLayerCall call = moe.call(in);
          const std::uint32_t last = in.schedule == LayerSchedule::plain ? 0 : 2;
          call.up = [&, up = call.up](const ExpertGemm& gemm) {
            if (gemm.round == 0) first_gemm.arrive_and_wait();
            up(gemm);
          };
          call.down = [&, last, down = call.down](const ExpertGemm& gemm) {
            if (gemm.round == last) last_gemm.arrive_and_wait();
            down(gemm);
          };
          moe.layer().run(call);
        });
      };
      std::string wrong;
      {
        const std::jthread thread([&] { wrong = run(two, beside); });
        EXPECT_EQ(run(one, order), "");
      }
      EXPECT_EQ(wrong, "");
      expect_bytes(one.output(), of_one, "the first layer");
      expect_bytes(two.output(), of_two, "the second layer");
    }
  }));
}

// Both GEMMs once more, of the rows that a call has left, in other rounds: with the same results.
TEST(MoeLayersOfTwo, ExpertsAloneMakeTheSameRows) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    moe.layer().run(moe.call({LayerSchedule::plain, {}}));
    std::vector<std::vector<Bytes>> made(of.call.args.experts), again(of.call.args.experts);
    moe.give_results(made);
    std::vector<std::string> asked;
    const LayerOrder rounds{LayerSchedule::rounds, {1, 3}};
    MoeLayerCall call = moe.call(rounds);
    call.up = [&, up = call.up](const ExpertGemm& gemm) {
      asked.push_back("up " + std::to_string(gemm.round) + " " + std::to_string(gemm.experts));
      up(gemm);
    };
    call.down = [&, down = call.down](const ExpertGemm& gemm) {
      asked.push_back("down " + std::to_string(gemm.round) + " " + std::to_string(gemm.experts));
      fill_bytes({static_cast<std::byte*>(gemm.output), 2}, std::byte{0x5a});
      down(gemm);
    };
    moe.layer().run_experts(call);
    EXPECT_EQ(asked, (std::vector<std::string>{"up 0 1", "down 0 1", "up 1 3", "down 1 3"}));
    moe.give_results(again);
    EXPECT_EQ(again, made);
  }));
}

// Explicit numbers hold for every part, unless the caller limits them to parts that GEMMs run beside.
TEST(MoeLayersOfTwo, NumbersOfProcessorsCanHoldOnlyBesideGemms) {
  using Which = LayerPart::Which;
  MoeLayerCall call{.send_num_sms = 11, .recv_num_sms = 12, .combine_send_num_sms = 13, .combine_recv_num_sms = 14};
  const auto blocks = [&](Which which, std::uint32_t round) {
    return detail::blocks_of({.call = call, .which = which, .round = round, .rounds = 3});
  };
  const auto of_all = [&] {
    std::vector<int> all{blocks(Which::dispatch, 0), blocks(Which::dispatch_send, 0)};
    for (std::uint32_t round = 0; round < 3; ++round) all.push_back(blocks(Which::dispatch_wait, round));
    for (std::uint32_t round = 0; round < 3; ++round) all.push_back(blocks(Which::combine_send, round));
    all.push_back(blocks(Which::combine_wait, 0));
    all.push_back(blocks(Which::combine, 0));
    return all;
  };
  EXPECT_EQ(of_all(), (std::vector<int>{12, 11, 12, 12, 12, 13, 13, 13, 14, 14}));
  call.alone_by_size = true;
  EXPECT_EQ(of_all(), (std::vector<int>{0, 0, 0, 12, 12, 13, 13, 0, 0, 0}));
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
    rejected([](MoeLayerCall& call) { call.output = nullptr; }, "output: null");
    rejected([](MoeLayerCall& call) { call.residual = static_cast<std::byte*>(call.output) + 2; }, "residual: ");
    moe.layer().run(moe.call({LayerSchedule::plain, {}}));
  }));
}

// More rejected calls than the exchange has handles: had one of them dispatched, a later dispatch would find no handle.
TEST(MoeLayersOfTwo, NumbersOfProcessorsOutOfRangeAreRejectedBeforeAnythingRuns) {
  struct Knob {
    int MoeLayerCall::*number;
    const char* name;
    std::vector<int> wrong, right;
    const char* range;
  };
  const std::vector<int> no_blocks{-1, 1, 3}, blocks{0, 2}, no_budget{-1, 257}, budget{0, 1, 256};
  const char* const of_blocks = " is not 0 or 2";
  const char* const of_budget = " is not between 0 and 256";
  const std::vector<Knob> knobs{
      {&MoeLayerCall::send_num_sms, "send_num_sms: ", no_blocks, blocks, of_blocks},
      {&MoeLayerCall::recv_num_sms, "recv_num_sms: ", no_blocks, blocks, of_blocks},
      {&MoeLayerCall::combine_send_num_sms, "combine_send_num_sms: ", no_blocks, blocks, of_blocks},
      {&MoeLayerCall::combine_recv_num_sms, "combine_recv_num_sms: ", no_blocks, blocks, of_blocks},
      {&MoeLayerCall::up_num_sms, "up_num_sms: ", no_budget, budget, of_budget},
      {&MoeLayerCall::down_num_sms, "down_num_sms: ", no_budget, budget, of_budget},
      {&MoeLayerCall::shared_num_sms, "shared_num_sms: ", no_budget, budget, of_budget}};
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3);
  const LayerOrder plain{LayerSchedule::plain, {}}, rounds{LayerSchedule::rounds, {1, 3}},
      combine{LayerSchedule::combine_rounds, {2, 2}};
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    moe.layer().run(moe.call(plain));
    const Bytes expected(moe.output().begin(), moe.output().end());
    for (const Knob& knob : knobs) {
      for (const LayerOrder& order : {plain, rounds, combine}) {
        for (const int number : knob.wrong) {
          MoeLayerCall call = moe.call(order);
          call.*knob.number = number;
          expect_says(error_of([&] { moe.layer().run(call); }), knob.name + std::to_string(number) + knob.range);
        }
        for (const int number : knob.right) {
          moe.fill(p);
          MoeLayerCall call = moe.call(order);
          call.*knob.number = number;
          moe.layer().run(call);
          expect_bytes(moe.output(), expected, knob.name + std::to_string(number));
        }
      }
    }
  }));
}

// Undivided, these schedules still send and wait apart. Nothing has run when they are rejected.
TEST(MoeLayersOfTwo, SchedulesThatCannotBeAreRejectedBeforeAnythingRuns) {
  LayerCase of = layers_of_every_kind(2)[5][0];
  of.call.args.tokens = 40;
  of.call.args.ring_rows = kRingPlaces;
  const PreparedMoe p = prepare(of.call, 2, 3);
  const LayerOrder plain{LayerSchedule::plain, {}};
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    for (const LayerSchedule schedule : {LayerSchedule::rounds, LayerSchedule::combine_rounds}) {
      MoeLayerCall call = moe.call(plain);
      call.schedule = schedule;
      expect_says(error_of([&] { moe.layer().run(call); }),
                  "schedule: " + std::string(name(schedule)) + " serves most_tokens up to the 32 of");
    }
    MoeLayerCall call = moe.call(plain);
    call.schedule = static_cast<LayerSchedule>(7);
    expect_says(error_of([&] { moe.layer().run(call); }), "schedule: 7 is not");
    moe.layer().run(moe.call(plain));
  }));
  of.call.args.weights_at_combine = true;
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    expect_says(error_of([&] { static_cast<void>(MoeLayer::create(exchange, {.intermediate = 128})); }),
                "exchange: it takes weights at combine");
  }));
}

// The GEMMs are told the numbers that are theirs.
TEST(MoeLayersOfTwo, GemmsAreToldTheirProcessors) {
  const LayerCase of = layers_of_every_kind(1)[0][0];
  const PreparedMoe p = prepare(of.call, 1, 3);
  expect_all_well(run_world(1, smallest_buffers(), [&](Communicator& communicator, int) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, 0);
    MoeLayerCall call = moe.call({LayerSchedule::plain, {}});
    call.up_num_sms = 256;
    call.down_num_sms = 1;
    std::vector<int> told;
    call.up = [&, up = call.up](const ExpertGemm& gemm) { told.push_back(gemm.num_sms), up(gemm); };
    call.down = [&, down = call.down](const ExpertGemm& gemm) { told.push_back(gemm.num_sms), down(gemm); };
    moe.layer().run(call);
    EXPECT_EQ(told, (std::vector<int>{256, 1}));
  }));
}

}  // namespace
}  // namespace weft::test
