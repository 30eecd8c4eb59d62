// All-reduces by NVLink's switches, on CPU ranks. Each rank does the switch's work itself in rank order, so results
// have the reference's bits. Also tests which ranks have no such algorithms.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/cases.hpp"
#include "support/first_epoch.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

constexpr Algorithm kMultimem[] = {Algorithm::multimem_one_shot, Algorithm::multimem_two_shot};
constexpr DataType kFloating[] = {DataType::bf16, DataType::f16, DataType::f32};

Config with_multicast(std::size_t two_shot_bytes = 0) {
  Config config = cpu_config();
  config.multicast = true;
  config.two_shot_bytes = two_shot_bytes;
  return config;
}

void expect_right_sums(int ranks, const Config& config, const std::vector<Case>& cases) {
  const std::vector<Prepared> prepared = prepare_all(cases, ranks);
  expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int rank) {
    for (const Prepared& p : prepared) run_on_cpu_rank(communicator, p, rank);
  }));
}

class Multimem : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Multimem, testing::ValuesIn(world_sizes({1, 2, 3, 4, 7, 8, 16})));

TEST_P(Multimem, CountsAroundPacksChunksShardsAndPieces) {
  const int ranks = GetParam();
  constexpr std::size_t piece_bytes = 64 << 10;  // four chunks
  std::vector<Case> cases;
  for (const DataType type : kFloating) {
    for (const Algorithm algorithm : kMultimem) {
      const std::size_t pack = 16 / size_of(type), all = pack * static_cast<std::size_t>(ranks);
      const std::size_t chunk = 1024 * pack, piece = piece_bytes / size_of(type);
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, pack - 1, pack, pack + 1, all - 1, all + 1, 5 * all - pack - 1, chunk - 1,
            chunk + 1, 2 * chunk + all + 1, piece - 1, piece, piece + 1, 2 * piece + pack + 1}) {
        const auto seed = static_cast<std::uint32_t>(cases.size());
        cases.push_back({.count = count,
                         .type = type,
                         .algorithm = algorithm,
                         .fill = Fill::random,
                         .in_place = seed % 2 == 0,
                         .input_shift = seed % 3,
                         .output_shift = seed % 5,
                         .seed = seed});
      }
    }
  }
  expect_right_sums(ranks, with_multicast(piece_bytes), cases);
}

TEST_P(Multimem, EveryKindOfDataInTurnWithTheOtherAlgorithms) {
  const int ranks = GetParam();
  std::vector<Case> cases;
  for (const Fill fill : {Fill::integers, Fill::random, Fill::bits, Fill::special}) {
    for (const DataType type : kFloating) {
      for (const Algorithm algorithm :
           {Algorithm::multimem_one_shot, Algorithm::pipelined, Algorithm::multimem_two_shot, Algorithm::one_shot,
            Algorithm::multimem_one_shot, Algorithm::two_shot}) {
        const auto seed = static_cast<std::uint32_t>(cases.size());
        cases.push_back({.count = 517 + seed, .type = type, .algorithm = algorithm, .fill = fill, .seed = seed});
      }
    }
  }
  expect_right_sums(ranks, with_multicast(), cases);
}

// Signals that no call has written are older than the first call's for any first epoch. So no rank sums a late rank's
// missing data, or takes such a sum.
TEST(MultimemEpochs, BeginWhereverTheyDoWithARankThatComesLate) {
  constexpr int ranks = 3;
  std::vector<Case> cases;
  for (std::uint32_t call = 0; call < 6; ++call) {
    cases.push_back({.count = 3000 * (call + 1), .algorithm = kMultimem[call % 2], .fill = Fill::random, .seed = call});
  }
  const std::vector<Prepared> prepared = prepare_all(cases, ranks);
  for (const std::uint32_t first : {0u, 0x7ffffffdu, 0x7fffffffu, 0xfffffffdu, 0xfffffffeu, 0xffffffffu}) {
    Config config = with_multicast(64 << 10);
    const FirstEpoch epoch(first);
    config.deadline = short_deadline;
    expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int rank) {
      for (std::size_t call = 0; call < prepared.size(); ++call) {
        if (call % ranks == static_cast<std::size_t>(rank)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        run_on_cpu_rank(communicator, prepared[call], rank);
      }
    }));
  }
}

TEST(MultimemSequences, ThousandsOfCallsWithRandomDelays) {
  constexpr int ranks = 4;
  std::vector<Case> cases;
  for (std::uint32_t i = 0; i < 12; ++i) {
    cases.push_back({.count = i * 531 % 4000,
                     .algorithm = i % 3 == 2 ? Algorithm::automatic : kMultimem[i % 3],
                     .fill = Fill::random,
                     .in_place = i % 2 == 0,
                     .seed = i});
  }
  const std::vector<Prepared> prepared = prepare_all(cases, ranks);
  expect_all_well(run_world(ranks, with_multicast(4 << 10), [&](Communicator& communicator, int rank) {
    std::mt19937 same(3), own(static_cast<unsigned>(rank));
    for (int call = 0; call < repeated(3000); ++call) {
      if (own() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
      run_on_cpu_rank(communicator, prepared[same() % prepared.size()], rank);
    }
  }));
}

TEST(MultimemMemory, GoesAndComesBackWithTheWindow) {
  const Prepared p = prepare({.count = 3000, .algorithm = Algorithm::multimem_two_shot, .fill = Fill::random}, 3);
  expect_all_well(run_world(3, with_multicast(), [&](Communicator& communicator, int rank) {
    for (int turn = 0; turn < 3; ++turn) {
      run_on_cpu_rank(communicator, p, rank);
      communicator.release();
      communicator.acquire();
    }
    run_on_cpu_rank(communicator, p, rank);
  }));
}

TEST(MultimemMemory, IsTakenByThoseWhoAskForItAlone) {
  const auto window = [](const Config& config) { return Communicator::local(4, config).front().memory().window; };
  Config asks = with_multicast(64 << 10);
  Config does_not = asks;
  does_not.multicast = false;
  // Three times two_shot_bytes, and a signal of each hop for each of four chunks from each of four ranks.
  EXPECT_EQ(window(asks) - window(does_not), (3 * 64 << 10) + 2 * 4 * 4 * sizeof(std::uint64_t));
}

// All ranks reject the call before anything is sent.
void expect_unsupported(const Group& group, const std::string& part) {
  std::vector<float> data(64);
  for (const Algorithm algorithm : kMultimem) {
    for (const std::size_t count : {std::size_t{0}, data.size()}) {
      try {
        all_reduce(group, {.input = data.data(),
                           .output = data.data(),
                           .count = count,
                           .type = DataType::f32,
                           .algorithm = algorithm});
        ADD_FAILURE() << "not rejected: " << part;
        return;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::unsupported) << error.what();
        expect_says(error.what(), "algorithm: " + std::string(name(algorithm)) + part);
      }
    }
  }
}

TEST(MultimemRejections, NeedConfigMulticast) {
  const Prepared good = prepare({.count = 100}, 3);
  expect_all_well(run_world(3, cpu_config(), [&](Communicator& communicator, int rank) {
    EXPECT_EQ(communicator.multicast(), "not asked for (Config::multicast); nothing is known against it");
    expect_unsupported(communicator, " needs multicast: not asked for (Config::multicast)");
    EXPECT_TRUE(communicator.world().recent_calls().empty());
    run_on_cpu_rank(communicator, good, rank);
  }));
}

TEST(MultimemRejections, NeedTheWholeWorld) {
  expect_all_well(run_world(4, with_multicast(), [](Communicator& communicator, int rank) {
    EXPECT_EQ(communicator.multicast(), "CPU ranks do the switch's work");
    expect_unsupported(communicator.split(rank / 2),
                       " serves all 4 ranks of a communicator, and this is a group of 2 that split() has made");
    expect_unsupported(communicator.split(0),
                       " serves all 4 ranks of a communicator, and this is a group of 4 that split() has made");
  }));
}

TEST(MultimemRejections, AllRanksAskOrNone) {
  const UniqueId id = UniqueId::create();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Config config = cpu_config();
      config.multicast = rank == 1;
      expect_says(error_of([&] { Communicator::from_id(id, rank, 2, config); }), "multicast true");
    });
  }
}

TEST(MultimemRejections, AutomaticChoosesSomethingElse) {
  expect_all_well(run_world(4, with_multicast(), [](Communicator& communicator, int rank) {
    for (std::size_t count = 1; count < 1'000'000; count *= 7) {
      run_on_cpu_rank(communicator, prepare({.count = count}, 4), rank);
    }
    for (const CallRecord& call : communicator.world().recent_calls()) {
      EXPECT_EQ(call.operation.find("multimem"), std::string::npos) << call.operation;
    }
  }));
}

}  // namespace
}  // namespace weft::test
