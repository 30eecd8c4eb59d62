// Recorded calls: replayed any number of times, with new data, between eager calls, and after their memory is gone.
#include "weft/recording.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <random>

#include "comm/state.hpp"
#include "support/cases.hpp"
#include "support/first_epoch.hpp"
#include "support/moving_windows.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kContents = 5;  // that a recorded call's tensors take in turn

// A call whose tensors keep their address while their contents change.
class Standing {
 public:
  Standing(const Case& c, const Group& group) : rank_(group.rank()) {
    for (std::uint32_t k = 0; k < kContents; ++k) {
      Case with_seed = c;
      with_seed.seed = c.seed * kContents + k;
      contents_.push_back(prepare(with_seed, group.size()));
    }
    tensors_ = std::make_unique<Tensors>(c, contents_[0].inputs[static_cast<std::size_t>(rank_)]);
  }
  void call(const Group& group) {
    all_reduce(group,
               arguments(contents_[0].call, tensors_->input.content().data(), tensors_->output.content().data()));
  }
  // Writes new input, and overwrites the output.
  void fill(std::size_t turn) {
    const Bytes& input = contents_[turn % kContents].inputs[static_cast<std::size_t>(rank_)];
    std::ranges::fill(tensors_->output.content(), std::byte{0x5a});
    std::ranges::copy(input, (tensors_->in_place ? tensors_->output : tensors_->input).content().begin());
  }
  void check(std::size_t turn) { tensors_->check(contents_[turn % kContents], rank_); }

 private:
  int rank_;
  std::vector<Prepared> contents_;
  std::unique_ptr<Tensors> tensors_;
};

// Calls of one group that are recorded together.
struct Plan {
  Plan(const Communicator& communicator, const Group& group, const std::vector<Case>& cases) {
    for (const Case& c : cases) calls.emplace_back(c, group);
    recording = Recording::capture(communicator, [&] {
      for (Standing& call : calls) call.call(group);
    });
  }
  void replay(std::size_t turn) {
    for (Standing& call : calls) call.fill(turn);
    recording->replay();
    for (Standing& call : calls) call.check(turn);
  }
  std::vector<Standing> calls;
  std::optional<Recording> recording;
};

// The larger cases have several pieces, and one recording uses both banks.
std::vector<Case> layer(std::uint32_t seed) {
  return {{.count = 64, .algorithm = Algorithm::one_shot, .fill = Fill::random, .seed = seed},
          {.count = 900, .algorithm = Algorithm::two_shot, .fill = Fill::special, .in_place = true, .seed = seed + 1},
          {.count = 20'000, .algorithm = Algorithm::pipelined, .fill = Fill::random, .seed = seed + 2},
          {.count = 33, .type = DataType::i32, .op = ReduceOp::max, .fill = Fill::bits, .input_shift = 1, .seed = seed},
          {.count = 0, .seed = seed}};
}

class Recordings : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Recordings, testing::Values(1, 2, 3, 5));

TEST_P(Recordings, AThousandReplaysWithNewData) {
  expect_all_well(run_world(GetParam(), small_pieces(), [](Communicator& communicator, int) {
    Plan plan(communicator, communicator, layer(3));
    EXPECT_EQ(plan.recording->size(), 1u + 2u + 1u + 1u + 1u);  // 1,800 bytes are two pieces, but chunks are not pieces
    for (int turn = 0; turn < repeated(1000); ++turn) plan.replay(static_cast<std::size_t>(turn));
  }));
}

TEST_P(Recordings, OfWhatSwitchesAddUp) {
  Config config = small_pieces();
  config.multicast = true;
  expect_all_well(run_world(GetParam(), config, [](Communicator& communicator, int) {
    Plan plan(communicator, communicator,
              {{.count = 64, .algorithm = Algorithm::multimem_one_shot, .fill = Fill::random},
               {.count = 900, .algorithm = Algorithm::multimem_two_shot, .fill = Fill::random, .in_place = true},
               {.count = 40, .algorithm = Algorithm::one_shot}});
    for (int turn = 0; turn < repeated(300); ++turn) plan.replay(static_cast<std::size_t>(turn));
  }));
}

TEST_P(Recordings, TwoOfThemInterleaveWithEagerCalls) {
  const int ranks = GetParam();
  const Prepared eager = prepare({.count = 90, .algorithm = Algorithm::two_shot, .seed = 9}, ranks);
  expect_all_well(run_world(ranks, small_pieces(), [&](Communicator& communicator, int rank) {
    Plan first(communicator, communicator, layer(10));
    Plan second(communicator, communicator, {{.count = 129, .fill = Fill::random, .seed = 20}});
    std::mt19937 random(5);  // the same choices on every rank
    for (int turn = 0; turn < repeated(600); ++turn) {
      const auto choice = random() % 3;
      if (choice == 0) first.replay(static_cast<std::size_t>(turn));
      if (choice == 1) second.replay(static_cast<std::size_t>(turn));
      if (choice == 2) run_on_cpu_rank(communicator, eager, rank);
    }
  }));
}

// The same three calls: one recording, a recording of each, or none. Alignment differs, and with it the instance.
TEST(Recording, RanksMayDivideTheirCallsDifferently) {
  constexpr int ranks = 3;
  expect_all_well(run_world(ranks, small_pieces(), [&](Communicator& communicator, int rank) {
    std::vector<Case> cases = layer(30);
    cases.pop_back();
    for (Case& c : cases) c.output_shift = static_cast<std::size_t>(rank);
    std::vector<Plan> plans;
    if (rank == 0) plans.emplace_back(communicator, communicator, cases);
    if (rank == 1) {
      for (const Case& c : cases) plans.emplace_back(communicator, communicator, std::vector<Case>{c});
    }
    std::vector<Standing> eager;
    for (const Case& c : cases) eager.emplace_back(c, communicator);
    for (std::size_t turn = 0; turn < 50; ++turn) {
      for (Plan& plan : plans) plan.replay(turn);
      if (rank != 2) continue;
      for (Standing& call : eager) {
        call.fill(turn);
        call.call(communicator);
        call.check(turn);
      }
    }
  }));
}

TEST(Recording, HoldsCallsOfSeveralGroups) {
  constexpr int ranks = 4;
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    const Group halves = communicator.split(rank / 2), crossed = communicator.split(rank % 2);
    std::vector<Standing> calls;
    calls.emplace_back(Case{.count = 100, .seed = 1}, communicator.world());
    calls.emplace_back(Case{.count = 70, .seed = 2u + static_cast<std::uint32_t>(rank / 2)}, halves);
    calls.emplace_back(Case{.count = 40, .type = DataType::f32, .seed = 4u + static_cast<std::uint32_t>(rank % 2)},
                       crossed);
    const Recording recording = Recording::capture(communicator, [&] {
      calls[0].call(communicator);
      calls[1].call(halves);
      calls[2].call(crossed);
    });
    for (std::size_t turn = 0; turn < 100; ++turn) {
      for (Standing& call : calls) call.fill(turn);
      recording.replay();
      for (Standing& call : calls) call.check(turn);
      if (turn % 7 == 0) run_on_cpu_rank(halves, prepare({.count = 5, .seed = 8}, 2), halves.rank());
    }
  }));
}

TEST(Recording, ReplaysTakeTheEpochOfTheirTime) {
  for (const std::uint32_t first : {0x7ffffffdu, 0xfffffffdu}) {
    Config config = small_pieces();
    const FirstEpoch epoch(first);
    expect_all_well(run_world(3, config, [&](Communicator& communicator, int rank) {
      Plan plan(communicator, communicator, layer(50));
      for (std::size_t turn = 0; turn < 6; ++turn) {
        plan.replay(turn);
        run_on_cpu_rank(communicator, prepare({.count = 20, .seed = 1}, 3), rank);
      }
    }));
  }
}

// If the capture sent anything, the other rank's next call would find it.
TEST(Recording, CapturingRunsNothing) {
  expect_all_well(run_world(2, cpu_config(), [&](Communicator& communicator, int rank) {
    std::optional<Plan> plan;
    if (rank == 0) {
      Standing call({.count = 40}, communicator);
      call.fill(1);
      const Recording recording = Recording::capture(communicator, [&] { call.call(communicator); });
      EXPECT_THROW(call.check(1), std::runtime_error) << "the output was written";
    }
    run_on_cpu_rank(communicator, prepare({.count = 40, .seed = 7}, 2), rank);
  }));
}

TEST(Recording, AReplayInACaptureBecomesPartOfIt) {
  expect_all_well(run_world(2, cpu_config(), [&](Communicator& communicator, int) {
    Plan plan(communicator, communicator, {{.count = 40, .seed = 3}});
    const Recording twice = Recording::capture(communicator, [&] {
      plan.recording->replay();
      plan.recording->replay();
    });
    EXPECT_EQ(twice.size(), 2u);
    for (std::size_t turn = 0; turn < 3; ++turn) {
      plan.calls[0].fill(turn);
      twice.replay();
      plan.calls[0].check(turn);
    }
  }));
}

TEST(Recording, OutlivesItsCommunicator) {
  auto communicators = Communicator::local(2, cpu_config());
  std::vector<std::optional<Plan>> plans(2);
  run_world(communicators, [&](Communicator& communicator, int rank) {
    plans[static_cast<std::size_t>(rank)].emplace(communicator, communicator, layer(60));
  });
  communicators.clear();
  expect_no_errors(run_ranks(2, [&](int rank) {
    for (std::size_t turn = 0; turn < 5; ++turn) plans[static_cast<std::size_t>(rank)]->replay(turn);
  }));
}

// ------------------------------------------------------------------------------------------------- release and acquire

const std::byte* window_of(const Communicator& communicator) {
  return communicator.world().state().communicator().fabric().window(0, communicator.rank());
}

void expect_released(const Recording& recording) {
  try {
    recording.replay();
    ADD_FAILURE() << "the replay went through";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::released) << error.what();
  }
}

// A replay also fails between release() and acquire(). Only the replaying rank learns of it. The next calls of all
// ranks work as usual.
TEST(Recording, IsStaleWhenTheWindowHasMoved) {
  constexpr int ranks = 2;
  const Prepared eager = prepare({.count = 90, .seed = 9}, ranks);
  expect_all_well(run_world(ranks, cpu_config(5s), [&](Communicator& communicator, int rank) {
    Plan plan(communicator, communicator, layer(70));
    plan.replay(0);
    const std::byte* const before = window_of(communicator);

    communicator.release();
    expect_released(*plan.recording);
    EXPECT_EQ(communicator.status()->code, Errc::released);
    communicator.acquire();
    EXPECT_FALSE(communicator.status().has_value());
    ASSERT_NE(window_of(communicator), before);
    if (rank == 0) expect_released(*plan.recording);  // only this rank learns of it: nothing is sent
    run_on_cpu_rank(communicator, eager, rank);
    Plan anew(communicator, communicator, layer(70));
    anew.replay(2);
    EXPECT_EQ(communicator.status().has_value(), rank == 0);
    if (rank == 0) expect_code([&] { communicator.check(); }, Errc::released, "released on rank 0");
    run_on_cpu_rank(communicator, eager, rank);
  }));
}

TEST(Recording, HoldsWhenTheWindowHasComeBackToItsPlace) {
  constexpr int ranks = 2;
  const WindowsStay stay;
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int) {
    Plan plan(communicator, communicator, layer(70));
    plan.replay(0);
    const std::byte* const before = window_of(communicator);
    communicator.release();
    expect_released(*plan.recording);
    communicator.acquire();
    ASSERT_EQ(window_of(communicator), before);
    plan.replay(1);
    EXPECT_FALSE(communicator.status().has_value());
  }));
}

// -------------------------------------------------------------------------------------------------------------- faults

TEST(Recording, AReplayOfAnotherCallIsAMismatch) {
  constexpr int ranks = 3, odd = 1;
  auto communicators = Communicator::local(ranks, cpu_config());
  const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
    Plan plan(communicator, communicator, {{.count = 64, .tag = 1}}),
        other(communicator, communicator, {{.count = 64, .tag = 2}});
    for (std::size_t turn = 0; turn < 4; ++turn) plan.replay(turn);
    (rank == odd ? other : plan).replay(4);
  });
  for (int rank = 0; rank < ranks; ++rank) {
    const Ending& ending = endings[static_cast<std::size_t>(rank)];
    expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, "rank " + std::to_string(rank));
    if (!ending.error || ending.error->code() != Errc::mismatch) continue;
    const Fault& fault = ending.error->fault();
    EXPECT_EQ(fault.epoch_wanted, 5u);
    expect_says(fault.operation, rank == odd ? "tag 2" : "tag 1");
    EXPECT_TRUE(rank == odd || fault.peer == odd) << fault.peer;
  }
}

// No deadline: the death of a rank is detected. Every recording fails afterwards.
TEST(Recording, AKilledRankIsNamedByReplays) {
  constexpr int size = 3, victim = 2;
  const UniqueId id = UniqueId::create();
  Processes processes(size, [&](const Child& self) {
    const Communicator communicator = Communicator::from_id(id, self.rank(), size, cpu_config(0ns));
    Plan plan(communicator, communicator, layer(80)), other(communicator, communicator, {{.count = 9}});
    plan.replay(0);
    self.say("working ");
    try {
      for (std::size_t turn = 1;; ++turn) plan.replay(turn);
    } catch (const Error& error) {
      const std::string then = error_of([&] { other.recording->replay(); });
      if (then.find(name(error.code())) == std::string::npos) throw std::runtime_error("then: " + then);
      self.say(fmt::format("[{} {} {}]", name(error.code()), error.fault().peer, name(error.fault().reported)));
    }
  });
  for (int rank = 0; rank < size; ++rank) ASSERT_TRUE(processes.wait_until_said(rank, "working"));
  processes.signal(victim, SIGKILL);
  const std::vector<Outcome> outcomes = processes.wait();
  int first_hand = 0;
  for (int rank = 0; rank < victim; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.error, "");
    const bool direct = outcome.said.find(fmt::format("[peer died {} ", victim)) != std::string::npos;
    first_hand += direct;
    if (!direct) expect_says(outcome.said, fmt::format("[peer failed {} peer died]", victim));
  }
  EXPECT_GE(first_hand, 1);
}

// -------------------------------------------------------------------------------------------------------- rejections

TEST(Recording, RejectsWhatCannotBeRecorded) {
  auto communicators = Communicator::local(1, cpu_config());
  auto others = Communicator::local(1, cpu_config());
  Communicator& communicator = communicators[0];
  const auto capture = [&](const std::function<void()>& calls) {
    return error_of([&] { Recording::capture(communicator, calls); });
  };
  expect_says(capture([&] { Recording::capture(communicator, [] {}); }), "capturing already");
  expect_says(capture([&] { all_reduce(others[0], {}); }), "not of the communicator");
  expect_says(capture([&] { all_reduce(communicator, {.count = 4}); }), "input: null");
  EXPECT_EQ(capture([] { throw std::runtime_error("mine"); }), "mine");
  // After each rejection the thread no longer captures.
  run_on_cpu_rank(communicator, prepare({.count = 10}, 1), 0);
  EXPECT_EQ(Recording::capture(communicator, [] {}).size(), 0u);
  Recording::capture(communicator, [] {}).replay();
  communicator.release();
  expect_says(capture([&] { all_reduce(communicator, {}); }), "acquire");
}

TEST(Recording, KeepsCallsOfItsThreadAlone) {
  auto communicators = Communicator::local(1, cpu_config());
  Communicator& communicator = communicators[0];
  const Recording recording = Recording::capture(communicator, [&] {
    expect_no_errors(run_ranks(1, [&](int) { run_on_cpu_rank(communicator, prepare({.count = 10}, 1), 0); }));
  });
  EXPECT_EQ(recording.size(), 0u);
}

}  // namespace
}  // namespace weft::test
