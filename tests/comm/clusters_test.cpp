// Launch::cluster on CPU ranks: its values, and that it changes nothing there. GPUs are in gpu/clusters_test.cpp.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/launched_calls.hpp"
#include "support/moe_layers.hpp"
#include "support/moves.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

constexpr int kRanks = 3;

// Runs `body` with each call, on every rank.
void with_every_call(const std::function<void(const Communicator&, const MoeExchange&, const LaunchedCall&)>& body) {
  const std::vector<LaunchedCall> calls = calls_with_a_launch();
  expect_all_well(run_world(kRanks, cpu_config(), [&](Communicator& communicator, int) {
    const MoeExchange exchange = MoeExchange::create(communicator, exchange_of_launched_calls());
    for (const LaunchedCall& call : calls) {
      SCOPED_TRACE(call.name);
      body(communicator, exchange, call);
    }
  }));
}

TEST(Clusters, OfOtherSizesThanTwoAreRejectedByEveryOperation) {
  with_every_call([](const Communicator& communicator, const MoeExchange& exchange, const LaunchedCall& call) {
    for (const int size : {-1, 3, 4, 16}) {
      expect_code([&] { call.call(communicator, exchange, {.cluster = size}); }, Errc::invalid_argument,
                  "launch.cluster: " + std::to_string(size) + " is not between 0 and 2");
    }
  });
}

TEST(Clusters, OfTwoNeedAnEvenNumberOfBlocks) {
  with_every_call([](const Communicator& communicator, const MoeExchange& exchange, const LaunchedCall& call) {
    for (const int blocks : {-1, 3, 7}) {
      expect_code([&] { call.call(communicator, exchange, {.blocks = blocks, .cluster = 2}); }, Errc::invalid_argument,
                  "launch.blocks: " + std::to_string(blocks) + " is odd, and launch.cluster is 2");
    }
    expect_code([&] { call.call(communicator, exchange, {.blocks = 4, .cluster = 2}); }, Errc::invalid_argument,
                "launch.blocks: 4 is more than the 2 that fit in clusters of two");
    // The rule is for clusters alone.
    expect_code([&] { call.call(communicator, exchange, {.blocks = 3, .cluster = 1}); }, Errc::invalid_argument,
                "launch.blocks: 3 is not 0 or 2");
  });
}

// Each rank has its own: clusters are no part of a call's fingerprint.
TEST(Clusters, MayDifferFromRankToRank) {
  with_every_call([](const Communicator& communicator, const MoeExchange& exchange, const LaunchedCall& call) {
    for (int turn = 0; turn < 3; ++turn) {
      for (const int blocks : {0, 2}) {
        call.call(communicator, exchange, {.blocks = blocks, .cluster = (communicator.rank() + turn) % 3});
      }
    }
  });
}

TEST(Clusters, ChangeNoResultOfCpuRanks) {
  for (const int cluster : {0, 1, 2}) {
    expect_all_well(run_world(kRanks, small_pieces(), [&](Communicator& communicator, int) {
      for (const Kind kind : {Kind::all_gather, Kind::reduce_scatter, Kind::all_to_all, Kind::reduce}) {
        run_on_cpu_rank(communicator, Move{.kind = kind,
                                           .rows = 20,
                                           .widths = {60},
                                           .fill = Fill::random,
                                           .seed = 5,
                                           .launch = {.cluster = cluster}});
      }
    }));
  }
}

// They are checked before anything has happened.
TEST(Clusters, OfALayerAreItsParts) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
    const auto rejected = [&](int cluster, int MoeLayerCall::*number, const std::string& says) {
      MoeLayerCall call = moe.call({LayerSchedule::plain, {}});
      call.cluster = cluster;
      call.*number = 5;
      expect_code([&] { moe.layer().run(call); }, Errc::invalid_argument, says);
    };
    const auto rejected_odd = [&](int MoeLayerCall::*number, const std::string& name) {
      rejected(2, number, name + ": 5 is odd, and cluster is 2");
      rejected(1, number, name + ": 5 is not 0 or 2");
    };
    rejected(3, &MoeLayerCall::up_num_sms, "cluster: 3 is not between 0 and 2");
    rejected(-1, &MoeLayerCall::up_num_sms, "cluster: -1 is not between 0 and 2");
    rejected_odd(&MoeLayerCall::send_num_sms, "send_num_sms");
    rejected_odd(&MoeLayerCall::recv_num_sms, "recv_num_sms");
    rejected_odd(&MoeLayerCall::combine_send_num_sms, "combine_send_num_sms");
    rejected_odd(&MoeLayerCall::combine_recv_num_sms, "combine_recv_num_sms");
    const LayerOrder rounds{LayerSchedule::rounds, {1, 3}};
    MoeLayerCall call = moe.call(rounds);
    call.cluster = rank == 0 ? 2 : 1;
    moe.layer().run(call);
  }));
}

}  // namespace
}  // namespace weft::test
