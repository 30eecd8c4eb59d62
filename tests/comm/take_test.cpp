// One rank takes rows out of all slots: every kind of slot and shard, behind the calls that make counts and slots. Also
// counts that do not fit.
#include "support/take.hpp"

#include <gtest/gtest.h>

#include <random>

#include "support/cases.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/collectives.hpp"
#include "weft/counts.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

TEST(TakenRows, EveryKindOfSlotShardAndRow) {
  auto communicators = Communicator::local(1, cpu_config());
  for (const TakeCase& c : take_cases()) run_on_cpu_rank(communicators[0], c);
}

// The call concerns no other rank: none waits, no epoch moves on, and other calls go on as before.
TEST(TakenRows, ConcernTheirRankAlone) {
  expect_all_well(run_world(3, cpu_config(), [](Communicator& communicator, int rank) {
    const std::vector<TakeCase> cases = take_cases();
    for (int call = 0; call < 30; ++call) {
      for (int k = 0; k < rank * 2; ++k) run_on_cpu_rank(communicator, cases[static_cast<std::size_t>(call + k)]);
      barrier(communicator, {});
    }
  }));
}

struct GroupLayout {
  int group_ranks;
  bool padded;  // slots have room for the largest number of tokens, and the slot is split
};

// Row counts of each group, counts on every rank, all rows on every rank, then a group's rows or a rank's part.
// One recording serves every batch.
TEST(TakenRows, CountsGatherTakeInOneRecording) {
  constexpr int ranks = 6;
  constexpr std::size_t most = 12, width = 5;
  for (const GroupLayout layout : {GroupLayout{1, false}, GroupLayout{2, false}, GroupLayout{3, true},
                                   GroupLayout{2, true}, GroupLayout{6, false}}) {
    expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
      const auto members = static_cast<std::size_t>(layout.group_ranks);
      const GatheredCounts parts{.ranks = ranks, .columns = 1, .group_ranks = members};
      const auto group = static_cast<std::size_t>(rank) / members, member = static_cast<std::size_t>(rank) % members;
      const Padding kind = layout.padded ? Padding::fixed : Padding::none;
      std::int32_t mine = 0;
      std::vector<std::int32_t> known(parts.words());
      std::vector<float> shard(most * width), all(parts.groups() * most * width), own(most * width),
          again(most * width);
      const GatheredTensor tensor{.input = shard.data(), .output = all.data(), .row_bytes = width * 4};
      const auto take = [&](std::vector<float>& output, std::size_t shards, std::size_t which) {
        take_rows(communicator, {.input = all.data(),
                                 .output = output.data(),
                                 .row_bytes = width * 4,
                                 .counts = {.rows = known.data() + parts.rows(),
                                            .sharding = Sharding::balanced,
                                            .padding = kind,
                                            .slot_rows = most},
                                 .slots = parts.groups(),
                                 .slot = group,
                                 .shards = shards,
                                 .shard = which,
                                 .split_slots = layout.padded,
                                 .input_rows = parts.groups() * most,
                                 .output_rows = most});
      };
      const Recording recording = Recording::capture(communicator, [&] {
        all_gather_counts(communicator, {.input = &mine,
                                         .output = known.data(),
                                         .group_ranks = members,
                                         .split_slots = layout.padded,
                                         .padding = kind,
                                         .slot_rows = most});
        all_gather_v(communicator, {.tensors = std::span(&tensor, 1),
                                    .counts = {.rows = known.data() + parts.shards(),
                                               .padding = kind,
                                               .slot_rows = layout.padded ? most / members : 0},
                                    .input_rows = most,
                                    .output_rows = parts.groups() * most});
        take(own, 1, 0);
        take(again, members, member);
      });
      // The value of token `token` of group `of`.
      const auto value = [](std::size_t of, std::size_t token, std::size_t column) {
        return static_cast<float>(of * 1000 + token * 10 + column);
      };
      std::mt19937 random(5);  // the same on every rank
      for (int batch = 0; batch < repeated(30); ++batch) {
        std::vector<std::int32_t> tokens;
        for (std::size_t of = 0; of < parts.groups(); ++of)
          tokens.push_back(static_cast<std::int32_t>(batch == 0 ? 0 : random() % (most + 1)));
        const auto own_tokens = static_cast<std::size_t>(tokens[group]);
        mine = tokens[group];
        // This rank's part of the group's rows, computed by the rule and not taken from the call.
        const std::size_t shared = layout.padded ? most : own_tokens;
        const std::size_t begin = member * (shared / members) + std::min(member, shared % members);
        const std::size_t length = shared / members + (member < shared % members ? 1 : 0);
        for (auto* const memory : {&shard, &all, &own, &again})
          std::ranges::fill(*memory, std::numeric_limits<float>::quiet_NaN());
        for (std::size_t row = 0; row < length && begin + row < own_tokens; ++row) {
          for (std::size_t column = 0; column < width; ++column)
            shard[row * width + column] = value(group, begin + row, column);
        }
        recording.replay();
        for (std::size_t row = 0; row < most; ++row) {
          for (std::size_t column = 0; column < width; ++column) {
            const bool in_shard = row < length && begin + row < own_tokens;
            ASSERT_EQ(own[row * width + column], row < own_tokens ? value(group, row, column) : 0.0f) << row;
            ASSERT_EQ(again[row * width + column], in_shard ? value(group, begin + row, column) : 0.0f) << row;
          }
        }
      }
    }));
  }
}

// Nothing is written, the rank gives the reason, and its peers are told: calls that use such counts would be wrong.
TEST(TakenRows, WhatDoesNotFitEndsTheCommunicator) {
  for (const TakeMisfit& misfit : take_misfits()) {
    const auto endings = run_world(2, cpu_config(), [&](Communicator& communicator, int rank) {
      if (rank == 1) {
        barrier(communicator, {});
        throw std::runtime_error("the barrier went through");
      }
      const PreparedTake take = prepare(misfit);
      HostTake host(take);
      const std::string error = error_of([&] { host.call(communicator); });
      host.check();
      expect_says(error, "capacity on rank 0: take_rows of 32 bytes, slot 1 of 3");
      EXPECT_THROW(run_on_cpu_rank(communicator, TakeCase{.rows = {1}}), Error);  // the communicator has failed
      communicator.check();
    });
    expect_fault(endings[0], {Errc::capacity}, misfit.name);
    expect_reason(endings[0], Errc::capacity, misfit.reason);
    expect_fault(endings[1], {Errc::peer_failed}, misfit.name);
  }
}

TEST(TakenRows, OfAReleasedCommunicatorThereAreNone) {
  auto communicators = Communicator::local(1, cpu_config());
  const std::int32_t rows = 1, input = 5;
  std::int32_t output = 0;
  const TakeRowsArgs args{
      .input = &input, .output = &output, .row_bytes = 4, .counts = {.rows = &rows}, .input_rows = 1, .output_rows = 1};
  const Recording recording = Recording::capture(communicators[0], [&] { take_rows(communicators[0], args); });
  communicators[0].release();
  expect_says(error_of([&] { take_rows(communicators[0], args); }), "take_rows: the communicator's memory is released");
  expect_says(error_of([&] { recording.replay(); }), "released");
  EXPECT_EQ(output, 0);
  communicators[0].acquire();
  take_rows(communicators[0], args);
  EXPECT_EQ(output, 5);
}

TEST(TakenRows, MistakesAreRejectedByName) {
  auto communicators = Communicator::local(1, cpu_config());
  alignas(16) static std::int32_t memory[1024];
  const std::int32_t rows[2] = {1, 1};
  const TakeRowsArgs good{.input = memory,
                          .output = memory + 512,
                          .row_bytes = 16,
                          .counts = {.rows = rows},
                          .slots = 2,
                          .input_rows = 4,
                          .output_rows = 4};
  const auto expect = [&](const std::string& part, auto&& spoil) {
    TakeRowsArgs args = good;
    spoil(args);
    expect_code([&] { take_rows(communicators[0], args); }, Errc::invalid_argument, part);
  };
  expect("slots: 0 is not between 1 and 72", [](auto& a) { a.slots = 0; });
  expect("slots: 73 is not between 1 and 72", [](auto& a) { a.slots = 73; });
  expect("slot: 2 is not between 0 and 1", [](auto& a) { a.slot = 2; });
  expect("shards: 0 is not between 1 and 72", [](auto& a) { a.shards = 0; });
  expect("shard: 3 is not between 0 and 2", [](auto& a) { a.shards = 3, a.shard = 3; });
  expect("counts.sharding: none is not balanced or ceil, and there are 2 shards", [](auto& a) { a.shards = 2; });
  expect("counts.rows: null", [](auto& a) { a.counts.rows = nullptr; });
  expect("row_bytes: ", [](auto& a) { a.row_bytes = SIZE_MAX; });
  expect("input_rows: ", [](auto& a) { a.input_rows = SIZE_MAX; });
  expect("output_rows: ", [](auto& a) { a.output_rows = SIZE_MAX; });
  expect("input: null", [](auto& a) { a.input = nullptr; });
  expect("output: null", [](auto& a) { a.output = nullptr; });
  expect("input_stride: 15 bytes", [](auto& a) { a.input_stride = 15; });
  expect("output_stride: 15 bytes", [](auto& a) { a.output_stride = 15; });
  expect("output: overlaps input", [](auto& a) { a.output = memory; });
  expect("output: overlaps input", [](auto& a) { a.output = memory + 15; });
  expect("counts.rows: overlaps output", [](auto& a) { a.counts.rows = memory + 512 + 15; });
  expect("counts.rows: overlaps output", [](auto& a) { a.counts.rows = memory + 511; });
  expect("counts.slots: overlaps output", [](auto& a) {
    a.counts.padding = Padding::per_rank;
    a.counts.slots = memory + 512 + 14;
  });
  expect("stream: must be null on CPU ranks", [](auto& a) { a.stream = reinterpret_cast<Stream>(memory); });
  EXPECT_TRUE(communicators[0].world().recent_calls().empty());
  take_rows(communicators[0], good);
}

}  // namespace
}  // namespace weft::test
