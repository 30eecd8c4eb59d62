// Errors of the C interface, and functions that need no communicator.
#include <gtest/gtest.h>

#include <thread>

#include "support/c_ranks.hpp"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

weft_code reduce(const weft_group* group, std::size_t count, weft_data_type type = WEFT_F32) {
  std::vector<float> x(count);
  weft_all_reduce_args args = initialised(weft_all_reduce_args_init);
  args.input = args.output = x.data();
  args.count = count;
  args.type = type;
  return weft_all_reduce(group, &args);
}

TEST(CErrors, BelongToTheThread) {
  const OneRank rank;
  EXPECT_EQ(reduce(rank.world(), 1, 99), WEFT_INVALID_ARGUMENT);
  const std::string words = weft_last_message();
  expect_says(words, "type: 99 is not bf16, f16, f32, i32, i64 or u8");
  EXPECT_EQ(weft_last_fault()->code, WEFT_INVALID_ARGUMENT);
  EXPECT_EQ(weft_last_fault()->rank, -1);
  std::thread([] {
    EXPECT_EQ(weft_last_fault()->code, WEFT_OK);
    EXPECT_STREQ(weft_last_message(), "");
    EXPECT_EQ(weft_group_check(nullptr), WEFT_INVALID_ARGUMENT);
  }).join();
  expect_ok(reduce(rank.world(), 1));
  EXPECT_EQ(weft_last_message(), words) << "a success leaves it";
}

// Ranks that differ: every rank learns which one, in which call, and later calls say the same.
TEST(CErrors, HaveTheRecordOfTheFault) {
  const CRanks ranks(2);
  const weft_fault* fault = nullptr;
  expect_ok(weft_group_status(ranks.world(), &fault));
  EXPECT_EQ(fault, nullptr);
  expect_no_errors(run_ranks(2, [&](int rank) {
    const weft_code code = reduce(ranks.world(rank), rank == 0 ? 10 : 11);
    ensure(code == WEFT_MISMATCH || code == WEFT_PEER_FAILED, weft_last_message());
    const weft_fault* const last = weft_last_fault();
    ensure(last->size == sizeof *last && last->code == code && last->rank == rank, "another record");
    ensure(last->peer == 0 || last->peer == 1, "nobody is to blame");
    if (code == WEFT_MISMATCH) {
      const std::string own = rank == 0 ? "f32[10]" : "f32[11]", theirs = rank == 0 ? "f32[11]" : "f32[10]";
      ensure(std::string(last->operation).find(own) != std::string::npos, last->operation);
      ensure(std::string(last->theirs).find(theirs) != std::string::npos, last->theirs);
    } else {
      ensure(last->reporter == 1 - rank && last->reported == WEFT_MISMATCH, "another reporter");
    }
    const weft_fault* status = nullptr;
    ensure_ok(weft_group_status(ranks.world(rank), &status));
    ensure(status != nullptr && status->code == code && status->epoch_wanted == last->epoch_wanted, "another status");
    ensure(std::string(status->operation) == last->operation, "another operation");
    ensure(weft_group_check(ranks.world(rank)) == code, "all is well");
    ensure(std::string(weft_last_message()).find("all_reduce sum f32[1") != std::string::npos, "no flight recorder");
    ensure(reduce(ranks.world(rank), 10) == code, "a call went on");
  }));
}

TEST(CErrors, AnAbortEndsEveryRank) {
  const CRanks ranks(2);
  expect_ok(weft_communicator_abort(ranks.communicator(1)));
  expect_no_errors(run_ranks(2, [&](int rank) {
    const weft_code code = reduce(ranks.world(rank), 1);
    ensure(code == WEFT_ABORTED || code == WEFT_PEER_FAILED, weft_last_message());
  }));
}

TEST(CErrors, OfWhatACaptureCallsPassOn) {
  const OneRank rank;
  weft_recording* recording = nullptr;
  const auto fails = [](void* user) { return reduce(static_cast<weft_group*>(user), 1, 99); };
  EXPECT_EQ(weft_recording_capture(rank.communicator(), fails, rank.world(), &recording), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), "type: 99 is not bf16");
  const auto gives_up = [](void*) { return weft_code{WEFT_CAPACITY}; };
  EXPECT_EQ(weft_recording_capture(rank.communicator(), gives_up, nullptr, &recording), WEFT_CAPACITY);
  EXPECT_EQ(recording, nullptr);
  const auto twice = [](void* user) {
    const weft_code code = reduce(static_cast<weft_group*>(user), 1);
    return code != WEFT_OK ? code : reduce(static_cast<weft_group*>(user), 1);
  };
  expect_ok(weft_recording_capture(rank.communicator(), twice, rank.world(), &recording));
  std::size_t calls = 0;
  expect_ok(weft_recording_size(recording, &calls));
  EXPECT_EQ(calls, 2u);
  weft_recording_destroy(recording);
}

// A callback that throws in spite of the rule shows what becomes of exceptions that are not Weft's.
TEST(CErrors, NoExceptionLeaves) {
  const OneRank rank;
  weft_recording* recording = nullptr;
  const auto throws = [](void*) -> weft_code { throw std::runtime_error("its own words"); };
  EXPECT_EQ(weft_recording_capture(rank.communicator(), throws, nullptr, &recording), WEFT_SYSTEM);
  EXPECT_STREQ(weft_last_message(), "its own words");
  const auto throws_a_number = [](void*) -> weft_code { throw 7; };
  EXPECT_EQ(weft_recording_capture(rank.communicator(), throws_a_number, nullptr, &recording), WEFT_SYSTEM);
  EXPECT_STREQ(weft_last_message(), "an exception without a message");
}

TEST(CNames, AreThoseOfCpp) {
  for (std::int32_t i = 0; i <= WEFT_CAPACITY; ++i) EXPECT_EQ(weft_code_name(i), name(static_cast<Errc>(i)));
  EXPECT_STREQ(weft_data_type_name(WEFT_U8), "u8");
  EXPECT_STREQ(weft_reduce_op_name(WEFT_AVG), "avg");
  EXPECT_STREQ(weft_algorithm_name(WEFT_ALGORITHM_MULTIMEM_TWO_SHOT), "multimem-two-shot");
  EXPECT_STREQ(weft_padding_name(WEFT_PADDING_PER_RANK), "per-rank");
  EXPECT_STREQ(weft_sharding_name(WEFT_SHARDING_CEIL), "ceil");
  EXPECT_STREQ(weft_device_name(WEFT_DEVICE_CUDA), "cuda");
  EXPECT_STREQ(weft_fp8_scaling_name(WEFT_FP8_PER_128_COLUMNS), "per 128 columns");
  EXPECT_STREQ(weft_row_layout_name(WEFT_RANK_MAJOR), "rank-major");
  EXPECT_STREQ(weft_row_layout_name(WEFT_RANK_COMPACT), "rank-compact");
  EXPECT_STREQ(weft_scale_order_name(WEFT_SCALES_BY_COLUMNS), "columns");
  EXPECT_STREQ(weft_row_path_name(WEFT_PATH_RING), "ring");
  for (const std::int32_t bad : {-1, 100, 256}) {
    EXPECT_STREQ(weft_code_name(bad), "unknown");
    EXPECT_STREQ(weft_data_type_name(bad), "unknown");
    EXPECT_EQ(weft_size_of(bad), 0u);
  }
  EXPECT_EQ(weft_size_of(WEFT_BF16), 2u);
  EXPECT_EQ(weft_size_of(WEFT_I64), 8u);
  EXPECT_EQ(weft_size_of(WEFT_U8), 1u);
  EXPECT_TRUE(std::isdigit(weft_version()[0]));
}

TEST(CParallel, IsThatOfCpp) {
  weft_parallel_layout c = initialised(weft_parallel_layout_init);
  c.tp = 8;
  c.dp = 2;
  c.ep = 4;
  c.moe_dense_tp = 2;
  const ParallelLayout cpp{.tp = 8, .dp = 2, .ep = 4, .moe_dense_tp = 2};
  for (int rank = 0; rank < 8; ++rank) {
    weft_parallel_place p;
    p.size = sizeof p;
    expect_ok(weft_parallel_place_of(&c, rank, &p));
    const std::vector<int> got = {p.attn_tp,       p.attn_dp_rank, p.attn_tp_rank, p.moe_tp,
                                  p.moe_ep_rank,   p.moe_tp_rank,  p.dense_tp,     p.attn_tp_color,
                                  p.attn_dp_color, p.moe_tp_color, p.moe_ep_color, p.dense_tp_color};
    const std::vector<int> wanted = {cpp.attn_tp(),          cpp.attn_dp_rank(rank),  cpp.attn_tp_rank(rank),
                                     cpp.moe_tp(),           cpp.moe_ep_rank(rank),   cpp.moe_tp_rank(rank),
                                     cpp.dense_tp(),         cpp.attn_tp_color(rank), cpp.attn_dp_color(rank),
                                     cpp.moe_tp_color(rank), cpp.moe_ep_color(rank),  cpp.dense_tp_color(rank)};
    EXPECT_EQ(got, wanted);
    const std::vector<std::vector<int>> groups = {cpp.attn_tp_group(rank), cpp.attn_dp_group(rank),
                                                  cpp.moe_tp_group(rank), cpp.moe_ep_group(rank),
                                                  cpp.dense_tp_group(rank)};
    for (int kind = 0; kind <= WEFT_GROUP_DENSE_TP; ++kind) {
      std::vector<int> members(8, -1);
      std::size_t count = 0;
      expect_ok(weft_parallel_group_of(&c, kind, rank, members.data(), members.size(), &count));
      members.resize(count);
      EXPECT_EQ(members, groups[index(kind)]);
      expect_ok(weft_parallel_group_of(&c, kind, rank, nullptr, 0, &count));
      EXPECT_EQ(count, members.size());
    }
  }
  std::size_t count = 0;
  EXPECT_EQ(weft_parallel_group_of(&c, 5, 0, nullptr, 0, &count), WEFT_INVALID_ARGUMENT);
  weft_parallel_place p;
  p.size = sizeof p;
  EXPECT_EQ(weft_parallel_place_of(&c, 8, &p), WEFT_INVALID_ARGUMENT);
  c.dp = 3;
  EXPECT_EQ(weft_parallel_layout_check(&c), WEFT_INVALID_ARGUMENT);
}

TEST(CParallel, SharesRowsAsCppDoes) {
  weft_row_range range;
  expect_ok(weft_shard_of(10, 4, 1, WEFT_SHARDING_BALANCED, &range));
  EXPECT_EQ((RowRange{range.begin, range.end}), shard_of(10, 4, 1, Sharding::balanced));
  std::size_t rows = 0;
  expect_ok(weft_slot_rows_of(10, WEFT_PADDING_ALIGNED, 8, &rows));
  EXPECT_EQ(rows, 16u);

  const std::vector<std::int32_t> given = {3, 0, 5}, slots = {4, 1, 5};
  std::vector<weft_row_range> got(3);
  const auto expect_ranges = [&](const std::vector<RowRange>& wanted) {
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ((RowRange{got[i].begin, got[i].end}), wanted[i]);
  };
  expect_ok(weft_slots_of(given.data(), 3, WEFT_PADDING_FIXED, 6, got.data()));
  expect_ranges(slots_of(given, Padding::fixed, 6));
  expect_ok(weft_slots_of_each(given.data(), slots.data(), 3, got.data()));
  expect_ranges(slots_of(given, slots));

  weft_parallel_layout c = initialised(weft_parallel_layout_init);
  c.tp = 6;
  c.dp = 3;
  const ParallelLayout cpp{.tp = 6, .dp = 3};
  std::vector<std::int32_t> counts(6);
  expect_ok(weft_shard_counts(&c, given.data(), 3, WEFT_SHARDING_CEIL, 6, counts.data()));
  EXPECT_EQ(counts, shard_counts(cpp, given, Sharding::ceil, 6));
  expect_ok(weft_shard_counts_of_each(&c, given.data(), slots.data(), 3, WEFT_SHARDING_BALANCED, counts.data()));
  EXPECT_EQ(counts, shard_counts(cpp, given, Sharding::balanced, slots));
}

TEST(CParallel, PartsOfGatheredCountsAreThoseOfCpp) {
  weft_gathered_counts c;
  c.size = sizeof c;
  expect_ok(weft_gathered_counts_of(12, 5, 3, &c));
  const GatheredCounts cpp{.ranks = 12, .columns = 5, .group_ranks = 3};
  const std::vector<std::size_t> got = {c.groups, c.rows,        c.slots, c.offsets, c.most, c.total,
                                        c.shards, c.shard_slots, c.any,   c.every,   c.all,  c.words};
  const std::vector<std::size_t> wanted = {cpp.groups(), cpp.rows(),  cpp.slots(),  cpp.offsets(),
                                           cpp.most(),   cpp.total(), cpp.shards(), cpp.shard_slots(),
                                           cpp.any(),    cpp.every(), cpp.all(),    cpp.words()};
  EXPECT_EQ(got, wanted);
  EXPECT_EQ(weft_gathered_counts_of(12, 5, 0, &c), WEFT_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace weft::test
