// Structs of the C interface: sizes of older and newer callers, defaults, values outside enumerations, null pointers.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "support/c_ranks.hpp"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

template <class T>
constexpr bool ends_with(std::size_t offset, std::size_t size) {
  return offset + size == sizeof(T);
}
// Padding at a struct's end would hide a later field from its size.
static_assert(ends_with<weft_fault>(offsetof(weft_fault, reason), 8));
static_assert(ends_with<weft_call_record>(offsetof(weft_call_record, operation), 8));
static_assert(ends_with<weft_config>(offsetof(weft_config, order_streams), 4));
static_assert(ends_with<weft_all_reduce_args>(offsetof(weft_all_reduce_args, reserved), 4));
static_assert(ends_with<weft_all_gather_args>(offsetof(weft_all_gather_args, reserved), 4));
static_assert(ends_with<weft_all_to_all_args>(offsetof(weft_all_to_all_args, reserved), 4));
static_assert(ends_with<weft_broadcast_args>(offsetof(weft_broadcast_args, reserved), 4));
static_assert(ends_with<weft_reduce_args>(offsetof(weft_reduce_args, reserved), 4));
static_assert(ends_with<weft_reduce_scatter_args>(offsetof(weft_reduce_scatter_args, cluster), 4));
static_assert(ends_with<weft_barrier_args>(offsetof(weft_barrier_args, stream), 8));
static_assert(ends_with<weft_counts>(offsetof(weft_counts, reserved), 4));
static_assert(ends_with<weft_gathered_tensor>(offsetof(weft_gathered_tensor, output_stride), 8));
static_assert(ends_with<weft_all_gather_v_args>(offsetof(weft_all_gather_v_args, reserved), 4));
static_assert(ends_with<weft_reduce_scatter_v_args>(offsetof(weft_reduce_scatter_v_args, cluster), 4));
static_assert(ends_with<weft_outgoing_message>(offsetof(weft_outgoing_message, tag), 4));
static_assert(ends_with<weft_incoming_message>(offsetof(weft_incoming_message, tag), 4));
static_assert(ends_with<weft_send_receive_args>(offsetof(weft_send_receive_args, reserved), 4));
static_assert(ends_with<weft_gather_args>(offsetof(weft_gather_args, reserved), 4));
static_assert(ends_with<weft_scatter_args>(offsetof(weft_scatter_args, reserved), 4));
static_assert(ends_with<weft_all_gather_counts_args>(offsetof(weft_all_gather_counts_args, stream), 8));
static_assert(ends_with<weft_fp8_output>(offsetof(weft_fp8_output, reserved), 4));
static_assert(ends_with<weft_all_reduce_rms_norm_args>(offsetof(weft_all_reduce_rms_norm_args, cluster), 4));
static_assert(ends_with<weft_all_gather_columns_args>(offsetof(weft_all_gather_columns_args, reserved), 4));
static_assert(ends_with<weft_all_to_all_columns_args>(offsetof(weft_all_to_all_columns_args, reserved), 4));
static_assert(ends_with<weft_top_k_columns_args>(offsetof(weft_top_k_columns_args, cluster), 4));
static_assert(ends_with<weft_crossing_args>(offsetof(weft_crossing_args, reserved), 4));
static_assert(ends_with<weft_crossing_rms_norm_args>(offsetof(weft_crossing_rms_norm_args, cluster), 4));
static_assert(ends_with<weft_take_rows_args>(offsetof(weft_take_rows_args, stream), 8));
static_assert(ends_with<weft_parallel_layout>(offsetof(weft_parallel_layout, moe_dense_tp), 4));
static_assert(ends_with<weft_parallel_place>(offsetof(weft_parallel_place, dense_tp_color), 4));
static_assert(ends_with<weft_moe_exchange_args>(offsetof(weft_moe_exchange_args, payload_bytes_count), 8));
static_assert(ends_with<weft_dispatch_args>(offsetof(weft_dispatch_args, reserved), 4));
static_assert(ends_with<weft_combine_args>(offsetof(weft_combine_args, reserved), 4));
static_assert(ends_with<weft_expert_gemm>(offsetof(weft_expert_gemm, reserved), 4));
static_assert(ends_with<weft_shared_expert>(offsetof(weft_shared_expert, reserved), 4));
static_assert(ends_with<weft_moe_layer_args>(offsetof(weft_moe_layer_args, down_cast), 4));
static_assert(ends_with<weft_layer_part>(offsetof(weft_layer_part, stream), 8));
static_assert(ends_with<weft_moe_layer_call>(offsetof(weft_moe_layer_call, cluster), 4));

// A struct is followed by canaries, which nobody writes.
template <class T>
void expect_sizes(weft_code (*init)(T*, std::size_t)) {
  struct {
    T args;
    std::array<unsigned char, 16> canary;
  } memory;
  std::memset(&memory, 0x5a, sizeof memory);
  EXPECT_EQ(init(nullptr, sizeof(T)), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), ": null");
  ASSERT_EQ(init(&memory.args, sizeof(T)), WEFT_OK);
  EXPECT_EQ(memory.args.size, sizeof(T));
  EXPECT_EQ(init(&memory.args, 0), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), ".size: 0 is not between ");
  EXPECT_EQ(memory.args.size, sizeof(T)) << "there was no room for it";
  for (const std::size_t size : {std::size_t{8}, sizeof(T) + 8}) {
    EXPECT_EQ(init(&memory.args, size), WEFT_INVALID_ARGUMENT);
    expect_says(weft_last_message(), ".size: " + std::to_string(size) + " is not between ");
    EXPECT_EQ(memory.args.size, size) << "the call must refuse it, too";
  }
  expect_says(weft_last_message(), "the library is older than the header");
  for (const unsigned char byte : memory.canary) EXPECT_EQ(byte, 0x5a);
}

TEST(CStructs, OfUnknownSizesAreRefused) {
  expect_sizes(weft_config_init);
  expect_sizes(weft_all_reduce_args_init);
  expect_sizes(weft_all_gather_args_init);
  expect_sizes(weft_all_to_all_args_init);
  expect_sizes(weft_broadcast_args_init);
  expect_sizes(weft_reduce_args_init);
  expect_sizes(weft_reduce_scatter_args_init);
  expect_sizes(weft_barrier_args_init);
  expect_sizes(weft_counts_init);
  expect_sizes(weft_gathered_tensor_init);
  expect_sizes(weft_all_gather_v_args_init);
  expect_sizes(weft_reduce_scatter_v_args_init);
  expect_sizes(weft_outgoing_message_init);
  expect_sizes(weft_incoming_message_init);
  expect_sizes(weft_send_receive_args_init);
  expect_sizes(weft_gather_args_init);
  expect_sizes(weft_scatter_args_init);
  expect_sizes(weft_all_gather_counts_args_init);
  expect_sizes(weft_fp8_output_init);
  expect_sizes(weft_all_reduce_rms_norm_args_init);
  expect_sizes(weft_all_gather_columns_args_init);
  expect_sizes(weft_all_to_all_columns_args_init);
  expect_sizes(weft_top_k_columns_args_init);
  expect_sizes(weft_crossing_args_init);
  expect_sizes(weft_crossing_rms_norm_args_init);
  expect_sizes(weft_take_rows_args_init);
  expect_sizes(weft_parallel_layout_init);
  expect_sizes(weft_moe_exchange_args_init);
  expect_sizes(weft_dispatch_args_init);
  expect_sizes(weft_combine_args_init);
  expect_sizes(weft_moe_layer_args_init);
  expect_sizes(weft_moe_layer_call_init);
}

// A default that is forgotten is 0.
TEST(CStructs, HaveTheDefaultsOfCpp) {
  const auto config = initialised(weft_config_init);
  EXPECT_EQ(config.cuda_device, -1);
  EXPECT_EQ(config.deadline_ns, 30'000'000'000);
  EXPECT_EQ(config.rendezvous_deadline_ns, 60'000'000'000);
  EXPECT_EQ(config.max_groups, 4);
  EXPECT_EQ(config.name, nullptr);
  EXPECT_EQ(initialised(weft_all_gather_args_init).rows, 1u);
  EXPECT_EQ(initialised(weft_all_to_all_args_init).rows, 1u);
  EXPECT_EQ(initialised(weft_broadcast_args_init).rows, 1u);
  EXPECT_EQ(initialised(weft_reduce_scatter_args_init).rows, 1u);
  const auto counts = initialised(weft_all_gather_counts_args_init);
  EXPECT_EQ(counts.columns, 1u);
  EXPECT_EQ(counts.group_ranks, 1u);
  EXPECT_EQ(counts.sharding, WEFT_SHARDING_BALANCED);
  EXPECT_EQ(initialised(weft_fp8_output_init).scaling, WEFT_FP8_PER_TOKEN);
  EXPECT_EQ(initialised(weft_fp8_output_init).floor, 1e-4f);
  EXPECT_EQ(initialised(weft_all_reduce_rms_norm_args_init).epsilon, 1e-6f);
  EXPECT_EQ(initialised(weft_all_gather_columns_args_init).scale, 1.0f);
  EXPECT_EQ(initialised(weft_all_to_all_columns_args_init).scale, 1.0f);
  EXPECT_EQ(initialised(weft_top_k_columns_args_init).k, 1u);
  const auto crossing = initialised(weft_crossing_rms_norm_args_init);
  EXPECT_EQ(crossing.epsilon, 1e-6f);
  EXPECT_EQ(crossing.group_ranks, 1u);
  const auto take = initialised(weft_take_rows_args_init);
  EXPECT_EQ(take.slots, 1u);
  EXPECT_EQ(take.shards, 1u);
  const auto layout = initialised(weft_parallel_layout_init);
  EXPECT_EQ(layout.tp + 10 * layout.dp + 100 * layout.ep + 1000 * layout.moe_dense_tp, 111);
  const auto exchange = initialised(weft_moe_exchange_args_init);
  EXPECT_EQ(exchange.alignment, 1u);
  EXPECT_EQ(exchange.handles, 2u);
  EXPECT_NE(exchange.weighted, 0);
  EXPECT_EQ(initialised(weft_dispatch_args_init).rounds, 1u);
  EXPECT_EQ(initialised(weft_combine_args_init).rounds, 1u);
  EXPECT_EQ(initialised(weft_moe_layer_call_init).rounds, 1u);
}

// A sum in place of one number.
weft_all_reduce_args sum_of_one(float& x) {
  auto args = initialised(weft_all_reduce_args_init);
  args.input = args.output = &x;
  args.count = 1;
  args.type = WEFT_F32;
  return args;
}

// A caller that knows no launch has what is behind its struct left unread.
TEST(CStructs, OfAnOlderCallerTakeTheDefaults) {
  const OneRank rank;
  float x = 3;
  weft_all_reduce_args args = sum_of_one(x);
  args.blocks = 999;
  EXPECT_EQ(weft_all_reduce(rank.world(), &args), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), "launch.blocks: 999");
  args.size = offsetof(weft_all_reduce_args, blocks);
  expect_ok(weft_all_reduce(rank.world(), &args));
  args.size = offsetof(weft_all_reduce_args, stream);
  EXPECT_EQ(weft_all_reduce(rank.world(), &args), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), "weft_all_reduce_args.size: 48 is not between 56 and 72");
  args.size = sizeof args + 8;
  EXPECT_EQ(weft_all_reduce(rank.world(), &args), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), "older than the header");
  args.size = 0;
  EXPECT_EQ(weft_all_reduce(rank.world(), &args), WEFT_INVALID_ARGUMENT);
}

// A caller of before `cluster` has single blocks.
TEST(CStructs, OfACallerWithoutClusters) {
  const OneRank rank;
  float x = 3;
  weft_all_reduce_args args = sum_of_one(x);
  args.cluster = 3;
  EXPECT_EQ(weft_all_reduce(rank.world(), &args), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), "launch.cluster: 3 is not between 0 and 2");
  args.size = offsetof(weft_all_reduce_args, cluster);
  expect_ok(weft_all_reduce(rank.world(), &args));
}

// A caller of before `floor` and `gamma_f32` has 1e-4, and weights of the rows' type.
TEST(CStructs, OfACallerWithoutFloorsAndWeightsOfF32) {
  const OneRank rank;
  alignas(16) std::array<std::uint16_t, 16> input = {}, sums = {}, gamma = {};
  alignas(16) std::array<std::uint16_t, 8> output = {};
  alignas(8) std::array<std::uint8_t, 8> rows = {};
  input.fill(0x3f80);
  // 3 and 2 in turn; as f32 all are 2.0039, which is 2 as bf16.
  for (std::size_t i = 0; i < gamma.size(); ++i) gamma[i] = i % 2 == 0 ? 0x4040 : 0x4000;
  float scale = 0;
  auto fp8 = initialised(weft_fp8_output_init);
  fp8.rows = rows.data();
  fp8.scales = &scale;
  fp8.floor = 448;
  auto args = initialised(weft_all_reduce_rms_norm_args_init);
  auto crossing = initialised(weft_crossing_rms_norm_args_init);
  std::int32_t count = 1;
  auto counts = initialised(weft_counts_init);
  counts.rows = &count;
  crossing.counts = &counts;
  crossing.input_rows = crossing.shard_rows = crossing.output_rows = args.tokens = 1;
  const auto set = [&](auto& of) {
    of.input = input.data();
    of.residual_output = sums.data();
    of.gamma = gamma.data();
    of.output = output.data();
    of.hidden = 8;
    of.fp8 = &fp8;
    of.epsilon = 0;
    of.gamma_f32 = 1;
  };
  set(args);
  set(crossing);
  const auto expect = [&](std::uint16_t normed, float scaled) {
    expect_ok(weft_all_reduce_rms_norm(rank.world(), &args));
    EXPECT_EQ(output[0], normed);
    EXPECT_EQ(scale, scaled);
    output[0] = 0, scale = 0;
    expect_ok(weft_gather_sums_rms_norm(rank.world(), &crossing));
    EXPECT_EQ(output[0], normed);
    EXPECT_EQ(scale, scaled);
  };
  expect(0x4000, 1.0f);
  args.size = offsetof(weft_all_reduce_rms_norm_args, gamma_f32);
  crossing.size = offsetof(weft_crossing_rms_norm_args, gamma_f32);
  expect(0x4040, 1.0f);
  fp8.size = offsetof(weft_fp8_output, floor);
  expect(0x4040, 3.0f / 448);
}

// A caller of before `op` sums.
TEST(CStructs, OfACallerWithoutAnOperatorSum) {
  const CRanks ranks(2);
  const auto results_of = [&](weft_reduce_op op, std::size_t size) {
    std::array<std::int32_t, 2> results = {};
    expect_no_errors(run_ranks(2, [&](int rank) {
      const std::array<std::int32_t, 2> input = {rank + 1, 10 * (rank + 1)};
      auto args = initialised(weft_reduce_scatter_args_init);
      args.input = input.data();
      args.output = &results[index(rank)];
      args.width = 1;
      args.type = WEFT_I32;
      args.op = op;
      args.size = size;
      ensure_ok(weft_reduce_scatter_tensor(ranks.world(rank), &args));
    }));
    return results;
  };
  const std::array sums = {3, 30}, least = {1, 10};
  EXPECT_EQ(results_of(WEFT_MIN, offsetof(weft_reduce_scatter_args, op)), sums);
  EXPECT_EQ(results_of(WEFT_MIN, sizeof(weft_reduce_scatter_args)), least);
}

// Messages are told apart by the size of the first.
TEST(CStructs, OfMessagesHaveOneSize) {
  const OneRank rank;
  int from = 7, to = 0;
  std::array sends = {initialised(weft_outgoing_message_init), initialised(weft_outgoing_message_init)};
  std::array receives = {initialised(weft_incoming_message_init), initialised(weft_incoming_message_init)};
  sends[0].data = &from;
  receives[0].data = &to;
  sends[0].bytes = receives[0].bytes = sizeof from;
  auto args = initialised(weft_send_receive_args_init);
  args.sends = sends.data();
  args.receives = receives.data();
  args.send_count = args.receive_count = 2;
  expect_ok(weft_send_receive(rank.world(), &args));
  EXPECT_EQ(to, 7);
  sends[1].size += 8;
  EXPECT_EQ(weft_send_receive(rank.world(), &args), WEFT_INVALID_ARGUMENT);
  EXPECT_STREQ(weft_last_message(), "sends[1].size: 40 is not 32");
  args.sends = nullptr;
  EXPECT_EQ(weft_send_receive(rank.world(), &args), WEFT_INVALID_ARGUMENT);
  EXPECT_STREQ(weft_last_message(), "sends: null");
  for (std::size_t* const count : {&args.send_count, &args.receive_count}) {
    args.send_count = args.receive_count = 0;
    *count = kMaxMessages + 1;
    EXPECT_EQ(weft_send_receive(rank.world(), &args), WEFT_INVALID_ARGUMENT) << "before any of them is read";
    expect_says(weft_last_message(), " is not between 0 and ");
  }
}

TEST(CStructs, ForResultsAreWrittenAsFarAsTheCallerHasThem) {
  const OneRank rank;
  weft_memory_use use = {sizeof use, 7, 7};
  expect_ok(weft_communicator_memory(rank.communicator(), &use));
  const std::size_t control = use.control;
  EXPECT_GT(control, 7u);
  use = {offsetof(weft_memory_use, control), 7, 7};
  expect_ok(weft_communicator_memory(rank.communicator(), &use));
  EXPECT_EQ(use.size, offsetof(weft_memory_use, control));
  EXPECT_GT(use.window, 7u);
  EXPECT_EQ(use.control, 7u);
  for (const std::size_t size : {std::size_t{0}, sizeof use + 8}) {
    use.size = size;
    EXPECT_EQ(weft_communicator_memory(rank.communicator(), &use), WEFT_INVALID_ARGUMENT);
  }
}

// Small numbers, numbers that a byte would turn into good ones, and negative ones.
TEST(CStructs, WithValuesOutsideAnEnumerationAreRejected) {
  const OneRank rank;
  alignas(16) std::array<float, 64> memory = {};
  std::int32_t rows = 1;
  for (const std::int32_t bad : {77, 256, 257, -1, INT32_MIN}) {
    const auto expect_rejected = [&](weft_code code, const std::string& field) {
      EXPECT_EQ(code, WEFT_INVALID_ARGUMENT) << field << " " << bad;
      expect_says(weft_last_message(), field);
    };
    auto reduce = initialised(weft_all_reduce_args_init);
    reduce.input = reduce.output = memory.data();
    reduce.count = 1;
    for (weft_data_type weft_all_reduce_args::*const field :
         {&weft_all_reduce_args::type, &weft_all_reduce_args::op, &weft_all_reduce_args::algorithm}) {
      auto args = reduce;
      args.*field = bad;
      expect_rejected(weft_all_reduce(rank.world(), &args), "");
    }
    auto to_root = initialised(weft_reduce_args_init);
    to_root.input = to_root.output = memory.data();
    to_root.count = 1;
    for (std::int32_t weft_reduce_args::*const field : {&weft_reduce_args::type, &weft_reduce_args::op}) {
      auto args = to_root;
      args.*field = bad;
      expect_rejected(weft_reduce(rank.world(), &args), "");
    }
    auto counts = initialised(weft_counts_init);
    counts.rows = &rows;
    auto scatter = initialised(weft_reduce_scatter_v_args_init);
    scatter.input = memory.data();
    scatter.output = memory.data() + 32;
    scatter.width = scatter.input_rows = scatter.output_rows = 1;
    scatter.counts = &counts;
    expect_ok(weft_reduce_scatter_v(rank.world(), &scatter));
    counts.padding = bad;
    expect_rejected(weft_reduce_scatter_v(rank.world(), &scatter), "counts.padding");
    counts.padding = 0;
    counts.sharding = bad;
    expect_rejected(weft_reduce_scatter_v(rank.world(), &scatter), "counts.sharding");
    counts.sharding = 0;
    scatter.op = bad;
    expect_rejected(weft_reduce_scatter_v(rank.world(), &scatter), "op");
    auto exchange = initialised(weft_moe_exchange_args_init);
    exchange.tokens = exchange.experts = exchange.top_k = 1;
    exchange.hidden = 128;
    weft_moe_exchange_memory bytes;
    bytes.size = sizeof bytes;
    expect_ok(weft_moe_exchange_memory_of(1, &exchange, &bytes));
    for (weft_row_type weft_moe_exchange_args::*const field :
         {&weft_moe_exchange_args::type, &weft_moe_exchange_args::cast, &weft_moe_exchange_args::scale_order,
          &weft_moe_exchange_args::combine_type, &weft_moe_exchange_args::layout, &weft_moe_exchange_args::overflow,
          &weft_moe_exchange_args::path}) {
      auto args = exchange;
      args.*field = bad;
      expect_rejected(weft_moe_exchange_memory_of(1, &args, &bytes), "");
    }
    auto config = initialised(weft_config_init);
    config.device = bad;
    weft_communicator* communicator = nullptr;
    expect_rejected(weft_communicator_local(1, &config, &communicator), "device");
    weft_row_range range;
    expect_rejected(weft_shard_of(5, 2, 0, bad, &range), "");
    std::size_t slot = 0;
    expect_rejected(weft_slot_rows_of(5, bad, 1, &slot), "");
  }
}

}  // namespace
}  // namespace weft::test
