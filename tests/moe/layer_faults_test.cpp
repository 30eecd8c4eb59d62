// Ranks that fail inside of a layer: the others learn at once which part it was, and of which round.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/broken_layers.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

// Makes the call, or replays a recording that has outlived its layer.
void run_layer(const Communicator& communicator, const MoeExchange& exchange, const MoeLayerCall& call, bool recorded) {
  std::optional<MoeLayer> layer = MoeLayer::create(exchange, {.intermediate = kLayerMiddle});
  if (!recorded) return layer->run(call);
  const Recording recording = Recording::capture(communicator, [&] { layer->run(call); });
  layer.reset();
  recording.replay();
}

// There is no deadline: ranks that are not told wait for ever.
void expect_others_to_know(const LayerCase& of, std::uint32_t ranks, const BrokenPart& broken, bool recorded) {
  const PreparedMoe p = prepare(of.call, ranks, 3);
  const std::vector<Ending> endings = run_world(
      static_cast<int>(ranks), cpu_config(std::chrono::nanoseconds(0)), [&](Communicator& communicator, int rank) {
        const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
        CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
        moe.layer().run(moe.call(broken.order));
        MoeLayerCall call = moe.call(broken.order);
        if (rank == 1) break_part(call, broken);
        run_layer(communicator, exchange, call, recorded);
      });
  // A rank that is still in an earlier part learns of it from the one that was told, and then without the words.
  int told = 0;
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    const Ending& ending = endings[rank];
    if (rank == 1) {
      EXPECT_EQ(ending.what.substr(0, 12), "it is broken") << broken.words;
      EXPECT_FALSE(ending.error) << broken.words;
      continue;
    }
    expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, broken.words);
    ASSERT_TRUE(ending.error) << broken.words;
    EXPECT_EQ(ending.error->fault().peer, 1) << broken.words;
    if (ending.error->code() == Errc::peer_failed) continue;
    expect_says(ending.what, broken.words);
    ++told;
  }
  EXPECT_GT(told, 0) << broken.words;
}

TEST(MoeLayerFaults, ExceptionsAreToldWithPartAndRound) {
  for (const std::uint32_t ranks : {2u, 3u}) {
    for (const BrokenPart& broken : broken_parts(ranks)) {
      for (const bool recorded : {false, true})
        expect_others_to_know(layers_of_every_kind(ranks)[0][0], ranks, broken, recorded);
    }
  }
}

TEST(MoeLayerFaults, ExceptionsAreToldByTheRing) {
  for (const BrokenPart& broken : broken_parts(2)) {
    for (const bool recorded : {false, true}) expect_others_to_know(layers_of_every_kind(2)[5][0], 2, broken, recorded);
  }
}

// The sums are on their way, so this call ends well for the others. They learn of it in their next one.
TEST(MoeLayerFaults, ExceptionsBehindTheLastSumsAreToldInTheNextCall) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3);
  const LayerOrder rounds{LayerSchedule::rounds, {1, 2, 1}}, combine{LayerSchedule::combine_rounds, {1, 2, 1}};
  for (const std::pair<LayerOrder, bool>& way :
       {std::pair{rounds, false}, {rounds, true}, {combine, false}, {combine, true}}) {
    const std::vector<Ending> endings =
        run_world(2, cpu_config(std::chrono::nanoseconds(0)), [&](Communicator& communicator, int rank) {
          const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
          CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
          MoeLayerCall call = moe.call(way.first);
          if (rank == 1) {
            call.observe = [](const LayerPart& part) {
              if (part.which == LayerPart::Which::combine_wait) throw std::runtime_error("it is broken");
            };
          }
          run_layer(communicator, exchange, call, way.second);
          moe.fill(p);
          run_layer(communicator, exchange, call, way.second);
        });
    EXPECT_EQ(endings[1].what, "it is broken");
    expect_says(endings[0].what, "layer: combine wait: it is broken");
  }
}

// The caller's functions may make calls on another communicator, whose record ends nobody here.
TEST(MoeLayerFaults, FaultsOfAnotherCommunicatorAreTold) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3);
  Fault elsewhere;
  elsewhere.rank = 0;
  for (const auto& [shared, recorded] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    const bool shared_fails = shared, replays = recorded;  // clang 14 captures no structured bindings
    const std::vector<Ending> endings =
        run_world(2, cpu_config(std::chrono::seconds(5)), [&](Communicator& communicator, int rank) {
          const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
          CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
          MoeLayerCall call = moe.call({LayerSchedule::plain, {}});
          const auto fail = [&](const auto&) { throw Error(elsewhere, "another one has failed"); };
          if (rank == 1 && !shared_fails) call.up = fail;
          if (rank == 1 && shared_fails) call.shared = fail;
          run_layer(communicator, exchange, call, replays);
        });
    EXPECT_EQ(endings[1].what, "another one has failed");
    expect_says(endings[0].what,
                std::string("layer: ") + (shared ? "shared expert" : "up") + ": another one has failed");
  }
}

// All ranks fail alike, so nobody waits. The rest of their calls is void after release().
TEST(MoeLayerFaults, RanksThatAllFailGoOnAfterRelease) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3);
  const auto expect_to_go_on = [&](const BrokenPart& broken, bool recorded) {
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int rank) {
      const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
      CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
      MoeLayerCall call = moe.call(broken.order);
      moe.layer().run(call);
      const Bytes expected(moe.output().begin(), moe.output().end());
      break_part(call, broken);
      expect_says(error_of([&] { run_layer(communicator, exchange, call, recorded); }), "it is broken");
      communicator.release();
      communicator.acquire();
      for (int turn = 0; turn < 3; ++turn) {
        moe.fill(p);
        moe.layer().run(moe.call(broken.order));
        expect_bytes(moe.output(), expected, broken.words);
      }
    }));
  };
  for (const BrokenPart& broken : broken_parts(2)) {
    for (const bool recorded : {false, true}) expect_to_go_on(broken, recorded);
  }
}

// A process that is gone cannot tell. Its last call was noted.
TEST(MoeLayerFaults, AProcessThatDiesIsNamedWithItsRound) {
  constexpr int kSize = 3;
  const LayerCase of = layers_of_every_kind(kSize)[0][0];
  const PreparedMoe p = prepare(of.call, kSize, 3);
  const LayerOrder order{LayerSchedule::rounds, {1, 1, 1}};
  const UniqueId id = UniqueId::create();
  Processes processes(kSize, [&](const Child& self) {
    Communicator communicator = Communicator::from_id(id, self.rank(), kSize, cpu_config());
    const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
    CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(self.rank()));
    MoeLayerCall call = moe.call(order);
    if (self.rank() == 1) {
      call.down = [down = call.down](const ExpertGemm& gemm) {
        if (gemm.round == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the others wait for its last sums by now
          static_cast<void>(::raise(SIGKILL));
        }
        down(gemm);
      };
    }
    moe.layer().run(call);
  });
  const std::vector<Outcome> outcomes = processes.wait();
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  for (const int rank : {0, 2}) {
    const std::string& error = outcomes[static_cast<std::size_t>(rank)].error;
    expect_says(error, "the last call of rank 1: combine tag 0, round 1 of 0 to 2");
  }
}

// A rank that stays away between two rounds, until the others' deadline.
TEST(MoeLayerFaults, ALateRankIsNamedWithItsRound) {
  const LayerCase of = layers_of_every_kind(2)[0][0];
  const PreparedMoe p = prepare(of.call, 2, 3);
  const LayerOrder order{LayerSchedule::rounds, {1, 2, 1}};
  std::atomic<bool> told = false;
  const std::vector<Ending> endings =
      run_world(2, cpu_config(short_deadline), [&](Communicator& communicator, int rank) {
        const MoeExchange exchange = MoeExchange::create(communicator, of.call.args);
        CpuLayer moe(exchange, of, p, static_cast<std::uint32_t>(rank));
        MoeLayerCall call = moe.call(order);
        if (rank == 1) {
          call.up = [&told, up = call.up](const ExpertGemm& gemm) {
            up(gemm);
            if (gemm.round == 1) told.wait(false);
          };
        }
        try {
          moe.layer().run(call);
        } catch (const Error&) {
          told = true;
          told.notify_all();
          throw;
        }
      });
  expect_fault(endings[0], {Errc::timeout}, "the rank that waits");
  ASSERT_TRUE(endings[0].error);
  EXPECT_EQ(endings[0].error->fault().reason, "the last call of rank 1: combine tag 0, round 0 of 0 to 2");
}

}  // namespace
}  // namespace weft::test
