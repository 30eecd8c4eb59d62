// A program ends while one of its threads waits in a call of a static communicator.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/ranks.hpp"
#include "support/spawned.hpp"
#include "support/world.hpp"
#include "weft/collectives.hpp"
#include "weft/moe.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

// Destroyed after the communicators. A waiting thread still uses their memory for a while.
struct Epilogue {
  ~Epilogue() { std::this_thread::sleep_for(300ms); }
};

// Destroyed in the reverse order of these members. Not on the heap, since a destructor would free that memory.
struct Statics {
  Statics() : Statics(Communicator::local(2, cpu_config())) {}
  explicit Statics(std::vector<Communicator> made) : ranks{std::move(made[0]), std::move(made[1])} {}

  std::array<Communicator, 2> ranks;
  std::optional<MoeExchange> exchange;
  std::optional<Recording> recording;
  alignas(16) std::array<std::int32_t, 4> input{}, output{};
  alignas(16) std::array<std::int32_t, 256> rows{};
};

// Rank 1 never comes.
void wait_in(const std::string& call, Statics& all) {
  Communicator& rank = all.ranks.front();
  const AllReduceArgs sum{.input = all.input.data(), .output = all.output.data(), .count = 4, .type = DataType::i32};
  if (call == "all_reduce") all_reduce(rank, sum);
  if (call == "barrier") barrier(rank, {});
  if (call == "replay") all.recording->replay();
  if (call == "dispatch") all.exchange->dispatch({.output = all.rows.data(), .counts = all.output.data()});
  if (call == "split") rank.split(0);
  if (call == "release") rank.release();
}

// Disabled, since it is no test: the test below starts it in processes of their own.
TEST(Exit, DISABLED_Program) {
  answer_where();
  static const Epilogue epilogue;
  static Statics all;
  const std::string call = std::getenv("WEFT_TEST_CALL");
  if (call == "dispatch") {
    run_ranks(2, [&](int rank) {
      const auto made =
          MoeExchange::create(all.ranks[index(rank)], {.tokens = 1, .hidden = 8, .experts = 2, .top_k = 1});
      if (rank == 0) all.exchange = made;
    });
  }
  all.recording = Recording::capture(all.ranks.front(), [&] { wait_in("all_reduce", all); });
  // The end of rank 1 may end the wait.
  std::thread([&] { static_cast<void>(error_of([&] { wait_in(call, all); })); }).detach();
  std::this_thread::sleep_for(300ms);
  std::exit(7);
}

TEST(Exit, WhileAThreadWaitsInACallHasTheProgramsCode) {
  for (const std::string call : {"all_reduce", "barrier", "replay", "dispatch", "split", "release"}) {
    const Outcome outcome = Spawned("Exit.DISABLED_Program", {{"WEFT_TEST_CALL", call}}).wait(60s);
    EXPECT_EQ(outcome.exit_code, 7) << call << ", signal " << outcome.signal << ": " << outcome.said;
  }
}

}  // namespace
}  // namespace weft::test
