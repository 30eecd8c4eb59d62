// Counts that ranks exchange: every shape of groups, slots and columns, and one recording for all batches. Calls take
// turns with others that use the same slots. Bad calls are rejected.
#include "support/counts.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "support/cases.hpp"
#include "support/first_epoch.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"
#include "weft/collectives.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

class GatheredCountsOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GatheredCountsOf, testing::ValuesIn(world_sizes({1, 2, 3, 4, 6, 8, 13})));

TEST_P(GatheredCountsOf, EveryShapeOfGroupsSlotsAndColumns) {
  const int ranks = GetParam();
  for (const std::uint32_t first_epoch : {1u, 0x7ffffffdu, 0xfffffffdu}) {
    Config config = cpu_config();
    const FirstEpoch epoch(first_epoch);
    expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int) {
      for (const CountsCase& c : counts_cases(ranks)) run_on_cpu_rank(communicator, c);
    }));
  }
}

// The slots belong to the one-shot all-reduce, too: data of one call must not reach the other.
TEST_P(GatheredCountsOf, InTurnWithAllReducesAndDelays) {
  const int ranks = GetParam();
  const std::vector<CountsCase> cases = counts_cases(ranks);
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    std::mt19937 delays(static_cast<unsigned>(rank)), random(5);
    for (int call = 0; call < repeated(1500); ++call) {
      if (delays() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 100));
      const auto choice = random();
      if (choice % 3 != 0) {
        run_on_cpu_rank(communicator, cases[choice % cases.size()]);
        continue;
      }
      std::vector<std::int32_t> x(choice % 50, rank + 1);
      all_reduce(communicator, {.input = x.data(),
                                .output = x.data(),
                                .count = x.size(),
                                .type = DataType::i32,
                                .algorithm = Algorithm::one_shot});
      EXPECT_EQ(x, std::vector<std::int32_t>(x.size(), ranks * (ranks + 1) / 2));
    }
  }));
}

TEST(GatheredCountsCalls, GroupsTellEachOtherTheirOwn) {
  expect_all_well(run_world(6, cpu_config(), [](Communicator& communicator, int rank) {
    const Group pair = communicator.split(rank / 2), across = communicator.split(rank % 2);
    for (std::uint32_t turn = 0; turn < 50; ++turn) {
      const auto number = static_cast<std::int32_t>(turn);
      run_on_cpu_rank(pair, {.rows = {number, rank / 2}, .columns = 3, .seed = turn});
      run_on_cpu_rank(across, {.rows = {rank % 2, number, 4}, .columns = 5, .padding = Padding::max, .seed = turn});
      if (turn % 5 == 0) run_on_cpu_rank(communicator, {.rows = {number, 2, 3}, .group_ranks = 2, .seed = turn});
    }
  }));
}

// Each batch has other numbers, but the recording is the same. The call behind it reads the numbers in place.
TEST_P(GatheredCountsOf, OneRecordingFeedsTheGatherThatFollows) {
  const int ranks = GetParam();
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    const auto n = static_cast<std::size_t>(ranks);
    const GatheredCounts parts{.ranks = n, .columns = 2};
    std::vector<std::int32_t> mine(2), known(parts.words()), rows(9, 100 + rank), all(9 * n);
    const GatheredTensor tensor{.input = rows.data(), .output = all.data(), .row_bytes = 4};
    const Recording recording = Recording::capture(communicator, [&] {
      all_gather_counts(communicator, {.input = mine.data(), .output = known.data(), .columns = 2});
      all_gather_v(communicator, {.tensors = std::span(&tensor, 1),
                                  .counts = {.rows = known.data() + parts.rows()},
                                  .input_rows = 9,
                                  .output_rows = all.size()});
    });
    std::mt19937 random(8);  // the same on every rank
    for (int batch = 0; batch < 40; ++batch) {
      std::vector<std::int32_t> counts, wanted;
      for (int other = 0; other < ranks; ++other) {
        counts.push_back(static_cast<std::int32_t>(random() % 10));
        wanted.insert(wanted.end(), static_cast<std::size_t>(counts.back()), 100 + other);
      }
      mine = {counts[static_cast<std::size_t>(rank)], batch};
      std::ranges::fill(all, -1);
      recording.replay();
      EXPECT_EQ(std::vector(known.begin(), known.begin() + ranks), counts);
      EXPECT_EQ(known[parts.total()], static_cast<std::int32_t>(wanted.size()));
      EXPECT_EQ(known[parts.every() + 1], batch);
      wanted.resize(all.size(), -1);
      EXPECT_EQ(all, wanted);
    }
  }));
}

// --------------------------------------------------------------------------------------------------- rejections

TEST(GatheredCountsFaults, NumbersThatMakeNoSlotsEndTheCallEverywhere) {
  for (const CountsMisfit& misfit : counts_misfits()) {
    const auto endings = run_world(4, cpu_config(), [&](Communicator& communicator, int rank) {
      const GatheredCounts parts{.ranks = 4, .columns = 3, .group_ranks = misfit.group_ranks};
      const std::int32_t mine[3] = {misfit.rows[static_cast<std::size_t>(rank)], -1, -1};
      std::vector<std::int32_t> known(parts.words() + 1, 123);
      const std::string error = error_of([&] {
        all_gather_counts(communicator, {.input = mine,
                                         .output = known.data(),
                                         .columns = 3,
                                         .group_ranks = misfit.group_ranks,
                                         .padding = misfit.padding,
                                         .slot_rows = misfit.slot_rows});
      });
      if (error.empty()) throw std::runtime_error("the call went through");
      EXPECT_EQ(known.back(), 123);
      communicator.check();
    });
    expect_misfit(endings, misfit.reason, misfit.name);
    for (const Ending& ending : endings) expect_says(ending.what, "all_gather_counts columns 3");
  }
}

TEST(GatheredCountsFaults, ARankThatDoesNotCallIsNamed) {
  const auto endings = run_world(3, cpu_config(short_deadline), [&](Communicator& communicator, int rank) {
    run_on_cpu_rank(communicator, CountsCase{.rows = {1, 2, 3}});
    if (rank != 1) run_on_cpu_rank(communicator, CountsCase{.rows = {1, 2, 3}});
  });
  EXPECT_EQ(endings[1].what, "");
  for (const int rank : {0, 2}) {
    expect_fault(endings[static_cast<std::size_t>(rank)], {Errc::timeout, Errc::peer_failed}, "a rank is late");
    expect_says(endings[static_cast<std::size_t>(rank)].what, "all_gather_counts");
  }
}

// Everything that decides the bytes on the wire or their meaning is compared. Addresses may differ.
TEST(GatheredCountsFaults, DifferentCallsAreFound) {
  const CountsCase base{.rows = {2, 2, 2, 2}, .columns = 3};
  const auto changed = [&](auto&& change) {
    CountsCase c = base;
    change(c);
    return c;
  };
  const CountsCase others[] = {
      changed([](auto& c) { c.columns = 4; }),
      changed([](auto& c) {
        c.group_ranks = 2, c.rows = {2, 2};
      }),
      changed([](auto& c) { c.sharding = Sharding::ceil; }),
      changed([](auto& c) { c.split_slots = true; }),
      changed([](auto& c) { c.padding = Padding::max; }),
      changed([](auto& c) { c.padding = Padding::aligned, c.slot_rows = 2; }),
      changed([](auto& c) { c.tag = 1; }),
  };
  for (const CountsCase& other : others) {
    const auto endings = run_world(4, cpu_config(), [&](Communicator& communicator, int rank) {
      run_on_cpu_rank(communicator, rank == 3 ? other : base);
    });
    for (const Ending& ending : endings) expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, describe(other));
  }
  expect_all_well(run_world(4, cpu_config(), [&](Communicator& communicator, int rank) {
    run_on_cpu_rank(communicator, changed([&](auto& c) { c.host = rank % 2 == 0, c.slot_rows = rank; }));
  }));
}

TEST(GatheredCountsFaults, MistakesAreRejectedByName) {
  Config config = cpu_config();
  config.one_shot_bytes = 1;  // the minimum: slots of 256 bytes
  expect_all_well(run_world(2, config, [](Communicator& communicator, int) {
    alignas(8) static thread_local std::int32_t memory[1024];
    const AllGatherCountsArgs good{.input = memory, .output = memory + 64, .columns = 3};
    const auto expect = [&](const std::string& part, auto&& spoil) {
      AllGatherCountsArgs args = good;
      spoil(args);
      expect_code([&] { all_gather_counts(communicator, args); }, Errc::invalid_argument, part);
    };
    expect("columns: 0 is not between 1 and 32", [](auto& a) { a.columns = 0; });
    expect("columns: 33 is not between 1 and 32", [](auto& a) { a.columns = 33; });
    expect("group_ranks: 0 is not a divisor of the group's size, 2", [](auto& a) { a.group_ranks = 0; });
    expect("group_ranks: 4 is not a divisor of the group's size, 2", [](auto& a) { a.group_ranks = 4; });
    expect("sharding: 3 is not none, balanced or ceil", [](auto& a) { a.sharding = static_cast<Sharding>(3); });
    expect("sharding: none is not balanced or ceil, and group_ranks 2",
           [](auto& a) { a.group_ranks = 2, a.sharding = Sharding::none; });
    expect("padding: 4 is not none, aligned, max or fixed", [](auto& a) { a.padding = Padding::per_rank; });
    expect("slot_rows: 0 is not between 1 and", [](auto& a) { a.padding = Padding::aligned; });
    expect("input: null", [](auto& a) { a.input = nullptr; });
    expect("output: null", [](auto& a) { a.output = nullptr; });
    expect("is not aligned to the 4 bytes of its elements",
           [](auto& a) { a.host_output = reinterpret_cast<std::int32_t*>(reinterpret_cast<char*>(memory) + 1); });
    expect("input: overlaps output", [](auto& a) { a.output = memory + 2; });
    expect("host_output: overlaps output", [](auto& a) { a.host_output = memory + 65; });
    expect("input: overlaps host_output", [](auto& a) { a.host_output = memory + 1; });
    expect("stream: must be null on CPU ranks", [](auto& a) { a.stream = reinterpret_cast<Stream>(memory); });
    EXPECT_TRUE(communicator.world().recent_calls().empty());
    run_on_cpu_rank(communicator, {.rows = {3, 4}, .columns = 32});
  }));
}

// Groups of split() have slots of their own size.
TEST(GatheredCountsFaults, ColumnsAreThoseOfTheGroupsSlots) {
  Config config = cpu_config();
  config.group_one_shot_bytes = 1;
  expect_all_well(run_world(2, config, [](Communicator& communicator, int) {
    const Group group = communicator.split(0);
    std::vector<std::int32_t> input(33), output(200);
    expect_code([&] { all_gather_counts(group, {.input = input.data(), .output = output.data(), .columns = 33}); },
                Errc::invalid_argument, "columns: 33 is not between 1 and 32");
    run_on_cpu_rank(group, {.rows = {3, 4}, .columns = 32});
    run_on_cpu_rank(communicator, {.rows = {3, 4}, .columns = 64});
  }));
}

}  // namespace
}  // namespace weft::test
