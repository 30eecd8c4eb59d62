// Recordings of layers: replays call the caller's functions between the kernels, with other routings.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/bytes.hpp"
#include "support/moe_layers.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

using Parts = std::vector<std::string>;

const LayerOrder kPlain{LayerSchedule::plain, {}}, kRounds{LayerSchedule::rounds, {1, 3}},
    kCombineRounds{LayerSchedule::combine_rounds, {1, 3}};

// For all tokens of the exchange, whatever the capture or a replay finds.
class RecordedLayer {
 public:
  RecordedLayer(CpuLayer& moe, const MoeExchange& exchange)
      : moe_(moe),
        tokens_(exchange.args().tokens),
        top_k_(exchange.args().top_k),
        row_bytes_(std::size_t{exchange.args().hidden} * 2),
        output_(tokens_ * row_bytes_),
        residual_(tokens_ * row_bytes_) {}

  Recording record(const Communicator& communicator, const LayerOrder& order) {
    MoeLayerCall call = of_residual(moe_.call(order));
    call.output = output_.data();
    call.tokens = tokens_;
    Recording recording = Recording::capture(communicator, [&] { moe_.layer().run(call); });
    call.up = call.down = [](const ExpertGemm&) { throw std::runtime_error("not the recording's own function"); };
    return recording;
  }
  Bytes eager(const PreparedMoe& p, const LayerOrder& order) {
    fill(p);
    moe_.layer().run(of_residual(moe_.call(order)));
    return {moe_.output().begin(), moe_.output().end()};
  }
  // `rows`: what an eager call of this rank's tokens makes. Other tokens have their residual alone.
  void expect_replay(const Recording& recording, const PreparedMoe& p, std::uint32_t rank, const Bytes& rows) {
    fill(p);
    auto* const ids = static_cast<std::int32_t*>(const_cast<void*>(moe_.call(kPlain).topk_ids));
    const std::size_t count = p.tokens[rank].count;
    std::fill(ids + count * top_k_, ids + std::size_t{tokens_} * top_k_, -1);
    Bytes expected = residual_;
    std::ranges::copy(rows, expected.begin());
    std::ranges::fill(output_, std::byte{0x5a});
    recording.replay();
    expect_bytes(output_, expected, "a replay of " + std::to_string(count) + " tokens");
  }

 private:
  void fill(const PreparedMoe& p) {
    moe_.fill(p);
    for (std::size_t i = 0; i < residual_.size(); ++i) residual_[i] = std::byte(i % 2 == 0 ? i / 2 % 251 : 0x3f);
  }
  MoeLayerCall of_residual(MoeLayerCall call) {
    call.residual = residual_.data();
    return call;
  }

  CpuLayer& moe_;
  std::uint32_t tokens_, top_k_;
  std::size_t row_bytes_;
  Bytes output_, residual_;
};

class MoeLayerRecording : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeLayerRecording, testing::Values(1, 2, 3, 4));

// Every schedule and division, with an eager call of the same one in between.
TEST_P(MoeLayerRecording, ReplaysWithOtherRoutingsAndFewerTokens) {
  for (const std::vector<LayerCase>& cases : layers_of_every_kind(GetParam())) {
    std::vector<PreparedMoe> prepared;
    for (LayerCase of : cases) {
      of.call.residual = false;  // they have one of their own
      prepared.push_back(prepare(of.call, GetParam(), 11));
    }
    const MoeExchangeArgs& args = cases[0].call.args;
    expect_all_well(
        run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
          const auto rank = static_cast<std::uint32_t>(number);
          const MoeExchange exchange = MoeExchange::create(communicator, args);
          CpuLayer moe(exchange, cases[0], prepared[0], rank);
          RecordedLayer layer(moe, exchange);
          std::vector<Bytes> rows;
          for (const PreparedMoe& p : prepared) rows.push_back(layer.eager(p, kPlain));
          std::size_t turn = 0;
          for (const LayerOrder& order : every_order(args, GetParam())) {
            const Recording recording = layer.record(communicator, order);
            const std::size_t first = turn++ % prepared.size(), second = turn % prepared.size();
            layer.expect_replay(recording, prepared[first], rank, rows[first]);
            expect_bytes(layer.eager(prepared[second], order), rows[second], "an eager call between replays");
            layer.expect_replay(recording, prepared[second], rank, rows[second]);
          }
        }));
  }
}

// A capture calls nothing. A replay calls all functions in their places, and so does one of a recording in another.
TEST(MoeLayersOfTwo, RecordingsCallFunctionsInReplaysAlone) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3);
  const Parts wanted{"dispatch 0",   "made shared",      "shared expert 0", "made up 2 of 4", "up 0",
                     "activation 0", "made down 1 of 1", "down 0",          "combine send 0", "made down 1 of 3",
                     "down 1",       "combine send 1",   "combine wait 0"};
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    Parts parts;
    MoeLayerCall call = moe.call(kCombineRounds);
    call.up_num_sms = 2;
    call.down_num_sms = 1;
    const auto noted = [&parts](const char* name, const GroupedGemm& make) {
      return [&parts, name, make](const ExpertGemm& gemm) {
        parts.push_back(std::string("made ") + name + " " + std::to_string(gemm.num_sms) + " of " +
                        std::to_string(gemm.experts));
        make(gemm);
      };
    };
    call.up = noted("up", call.up);
    call.down = noted("down", call.down);
    call.shared = [&](const SharedExpert& given) {
      parts.emplace_back("made shared");
      fill_bytes({static_cast<std::byte*>(given.output), std::size_t{given.tokens} * given.hidden * 2}, std::byte{0});
    };
    call.observe = [&](const LayerPart& part) {
      if (!part.begins) parts.push_back(std::string(name(part.which)) + " " + std::to_string(part.round));
    };
    moe.layer().run(call);
    EXPECT_EQ(parts, wanted);
    const Bytes expected(moe.output().begin(), moe.output().end());
    parts.clear();
    const Recording once = Recording::capture(communicator, [&] { moe.layer().run(call); });
    const Recording within = Recording::capture(communicator, [&] { once.replay(); });
    EXPECT_EQ(parts, Parts{});
    EXPECT_EQ(once.size(), within.size());
    for (const Recording* recording : {&once, &within, &once}) {
      moe.fill(p);
      recording->replay();
      EXPECT_EQ(parts, wanted);
      parts.clear();
      expect_bytes(moe.output(), expected, "a replay");
    }
  }));
}

// A recording keeps what it needs: the functions that it was given, and no longer than itself.
TEST(MoeLayerRecordingOfTwo, OutlivesItsLayerAndFunctions) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    moe.layer().run(moe.call(kPlain));
    const Bytes expected(moe.output().begin(), moe.output().end());
    std::weak_ptr<int> watch;
    std::optional<Recording> recording;
    {
      const auto state = std::make_shared<int>(0);
      watch = state;
      MoeLayerCall call = moe.call(kRounds);
      call.up = [state, up = call.up](const ExpertGemm& gemm) { ++*state, up(gemm); };
      const MoeLayer layer = MoeLayer::create(exchange, {.intermediate = kLayerMiddle, .down_cast = of.down_cast});
      recording = Recording::capture(communicator, [&] { layer.run(call); });
    }
    for (int turn = 1; turn < 3; ++turn) {
      moe.fill(p);
      recording->replay();
      expect_bytes(moe.output(), expected, "a replay without its layer");
      ASSERT_FALSE(watch.expired());
      EXPECT_EQ(*watch.lock(), 2 * turn);
    }
    recording.reset();
    EXPECT_TRUE(watch.expired());
  }));
}

TEST(MoeLayersOfTwo, RecordingsOfFreedExchangesEndBeforeTheyCallAnything) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    MoeLayerCall call = moe.call(kPlain);
    call.up = call.down = [](const ExpertGemm&) { ADD_FAILURE() << "a function was called"; };
    const Recording recording = Recording::capture(communicator, [&] { moe.layer().run(call); });
    exchange.free();
    try {
      recording.replay();
      ADD_FAILURE() << "the exchange is gone";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::released) << error.what();
    }
    communicator.release();
    communicator.acquire();
  }));
}

// Experts alone, of the rows that lie in the workspace by then.
TEST(MoeLayersOfTwo, ExpertsAloneAreRecorded) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe first = prepare(of.call, 2, 3), second = prepare(of.call, 2, 4);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, first, static_cast<std::uint32_t>(rank));
    const Recording recording = Recording::capture(communicator, [&] { moe.layer().run_experts(moe.call(kRounds)); });
    for (const PreparedMoe* p : {&first, &second}) {
      moe.fill(*p);
      moe.layer().run(moe.call(kPlain));
      std::vector<std::vector<Bytes>> made(of.call.args.experts), again(of.call.args.experts);
      moe.give_results(made);
      recording.replay();
      moe.give_results(again);
      EXPECT_EQ(again, made);
      moe.check_middle();
    }
  }));
}

// Nothing is told to other ranks, and nothing is kept.
TEST(MoeLayersOfTwo, WhatCannotBeRecordedIsRejectedInTheCapture) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    if (rank == 1) {
      Communicator other = std::move(Communicator::local(1, smallest_buffers())[0]);
      int heard = 0;
      MoeLayerCall call = moe.call(kPlain);
      call.observe = [&](const LayerPart&) { ++heard; };
      const auto record = [&](const Communicator& on) {
        return error_of([&] { static_cast<void>(Recording::capture(on, [&] { moe.layer().run(call); })); });
      };
      expect_says(record(other), "group: not of the communicator");
      call.workspace = nullptr;
      expect_says(record(communicator), "workspace: ");
      call = moe.call(kPlain);
      call.input = nullptr;
      expect_says(record(communicator), "input: ");
      EXPECT_EQ(heard, 0);
    }
    moe.layer().run(moe.call(kPlain));
  }));
}

}  // namespace
}  // namespace weft::test
