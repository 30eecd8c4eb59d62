// Handles of the C interface: creation, every order of destruction, what objects say, null pointers. Calls of every
// operation are in the tests of C++, made through C (tests/twins/through_c.hpp).
#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "support/c_ranks.hpp"
#include "weft/weft.hpp"

namespace weft::test {
namespace {

using Text = std::array<char, 200>;

weft_code add_up(const weft_group* group, std::int32_t* x) {
  weft_all_reduce_args args;
  ensure_ok(weft_all_reduce_args_init(&args, sizeof args));
  args.input = args.output = x;
  args.count = 1;
  args.type = WEFT_I32;
  return weft_all_reduce(group, &args);
}

// Every rank gives 1 and gets the number of ranks.
void expect_sum(const weft_group* group) {
  int size = 0;
  ensure_ok(weft_group_size(group, &size));
  std::int32_t x = 1;
  ensure_ok(add_up(group, &x));
  ensure(x == size, "the sum is " + std::to_string(x));
}

TEST(CHandles, RanksMeetByAnId) {
  weft_unique_id id;
  expect_ok(weft_unique_id_create(nullptr, &id));
  const weft_config config = c_config();
  expect_no_errors(run_ranks(3, [&](int rank) {
    weft_communicator* communicator = nullptr;
    ensure_ok(weft_communicator_from_id(&id, rank, 3, &config, &communicator));
    weft_group* world = nullptr;
    ensure_ok(weft_communicator_world(communicator, &world));
    int own = -1;
    ensure_ok(weft_group_rank(world, &own));
    ensure(own == rank, "another rank");
    expect_sum(world);
    weft_group_destroy(world);
    weft_communicator_destroy(communicator);
  }));
}

TEST(CHandles, OfAWorldOfOneFromTheEnvironment) {
  weft_communicator* communicator = nullptr;
  const weft_config config = c_config();
  expect_ok(weft_communicator_from_environment(&config, &communicator));
  weft_communicator_destroy(communicator);
}

TEST(CHandles, OfAConfigReachTheCommunicator) {
  const auto window = [](const weft_config& config) {
    const CRanks ranks(2, config);
    weft_memory_use use;
    use.size = sizeof use;
    expect_ok(weft_communicator_memory(ranks.communicator(), &use));
    return use.window;
  };
  weft_config config = c_config();
  config.one_shot_bytes = config.two_shot_bytes = 4096;
  config.group_one_shot_bytes = config.group_two_shot_bytes = 4096;
  const std::size_t least = window(config);
  for (std::size_t weft_config::*const field :
       {&weft_config::one_shot_bytes, &weft_config::two_shot_bytes, &weft_config::group_one_shot_bytes,
        &weft_config::group_two_shot_bytes}) {
    weft_config larger = config;
    larger.*field = 1 << 20;
    EXPECT_GT(window(larger), least);
  }
  config.max_groups = 0;
  const std::size_t without_groups = window(config);
  EXPECT_LT(without_groups, least);
  config.multicast = 1;
  EXPECT_GT(window(config), without_groups);

  const std::size_t with_multicast = window(config);
  config.small_buffers = config.order_streams = 1;  // of GPU ranks alone
  EXPECT_EQ(window(config), with_multicast);

  EXPECT_EQ(weft_use_nccl(nullptr), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), "file: null");

  const auto rejected = [](const weft_config& with, const std::string& words) {
    weft_communicator* communicator = nullptr;
    EXPECT_EQ(weft_communicator_local(1, &with, &communicator), WEFT_INVALID_ARGUMENT);
    expect_says(weft_last_message(), words);
    EXPECT_EQ(communicator, nullptr);
  };
  weft_config bad = c_config();
  bad.name = "a\nb";
  rejected(bad, "name");
  bad = c_config();
  bad.tuning_file = "/nowhere/tuning.json";
  rejected(bad, "/nowhere/tuning.json");
}

// A rank that waits alone ends by the deadline that it gave in nanoseconds, long before the default.
TEST(CHandles, DeadlinesAreNanoseconds) {
  const auto begin = std::chrono::steady_clock::now();
  weft_config config = c_config();
  config.deadline_ns = 200'000'000;
  const CRanks ranks(2, config);
  weft_barrier_args args = initialised(weft_barrier_args_init);
  EXPECT_EQ(weft_barrier(ranks.world(0), &args), WEFT_TIMEOUT);
  weft_unique_id id;
  expect_ok(weft_unique_id_create("127.0.0.1", &id));
  config = c_config();
  config.rendezvous_deadline_ns = 200'000'000;
  weft_communicator* communicator = nullptr;
  EXPECT_EQ(weft_communicator_from_id(&id, 0, 2, &config, &communicator), WEFT_RENDEZVOUS);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(CHandles, AreDestroyedInAnyOrder) {
  expect_no_errors(run_ranks(1, [](int) {
    weft_communicator* communicator = nullptr;
    const weft_config config = c_config();
    ensure_ok(weft_communicator_local(1, &config, &communicator));
    weft_group *world = nullptr, *part = nullptr, *copy = nullptr, *none = copy;
    ensure_ok(weft_communicator_world(communicator, &world));
    ensure_ok(weft_communicator_split(communicator, 3, &part));
    ensure_ok(weft_communicator_split(communicator, -1, &none));
    ensure(none == nullptr, "a group of no color");
    weft_symmetric_memory* memory = nullptr;
    ensure_ok(weft_symmetric_memory_allocate(communicator, 64, &memory));
    struct Recorded {
      weft_group* group;
      std::int32_t x;
    } recorded = {part, 5};
    weft_recording* recording = nullptr;
    ensure_ok(weft_recording_capture(
        communicator,
        [](void* user) {
          auto* const of = static_cast<Recorded*>(user);
          return add_up(of->group, &of->x);
        },
        &recorded, &recording));
    weft_communicator_destroy(communicator);
    expect_sum(world);
    ensure_ok(weft_group_copy(part, &copy));
    weft_group_destroy(world);
    weft_group_destroy(part);
    ensure_ok(weft_recording_replay(recording));
    ensure(recorded.x == 5, "the replay of a world of one gave " + std::to_string(recorded.x));
    expect_sum(copy);
    void* data = nullptr;
    ensure_ok(weft_symmetric_memory_data(memory, &data));
    static_cast<char*>(data)[63] = 1;
    weft_group_destroy(copy);
    weft_recording_destroy(recording);
    weft_symmetric_memory_destroy(memory);
  }));
  weft_communicator_destroy(nullptr);
  weft_group_destroy(nullptr);
  weft_exchange_destroy(nullptr);
  weft_symmetric_memory_destroy(nullptr);
  weft_recording_destroy(nullptr);
}

TEST(CHandles, SayWhatTheyAre) {
  const CRanks ranks(4);
  expect_no_errors(run_ranks(4, [&](int rank) {
    weft_group* group = nullptr;
    ensure_ok(weft_communicator_split(ranks.communicator(rank), rank % 2, &group));
    int own = -1, size = -1;
    const int* members = nullptr;
    weft_device device = -1;
    ensure_ok(weft_group_rank(group, &own));
    ensure_ok(weft_group_size(group, &size));
    ensure_ok(weft_group_members(group, &members));
    ensure_ok(weft_group_device(group, &device));
    ensure(own == rank / 2 && size == 2 && members[0] == rank % 2 && members[1] == rank % 2 + 2, "another group");
    ensure(device == WEFT_DEVICE_CPU, "another device");
    expect_sum(group);
    expect_sum(group);
    const weft_call_record* const* calls = nullptr;
    std::size_t count = 0;
    ensure_ok(weft_group_recent_calls(group, &calls, &count));
    ensure(count == 2 && calls[0]->number == 0 && calls[1]->number == 1, "other calls");
    ensure(calls[1]->size == sizeof(weft_call_record) && calls[1]->time_ns > 1'700'000'000'000'000'000, "another time");
    ensure(std::string(calls[1]->operation).starts_with("all_reduce sum i32[1]"), calls[1]->operation);
    weft_group_destroy(group);
  }));
  Text text;
  std::size_t length = 0;
  expect_ok(weft_communicator_fabric(ranks.communicator(), text.data(), text.size(), &length));
  const std::string whole = text.data();
  expect_says(whole, "4 CPU ranks");
  EXPECT_EQ(length, whole.size());
  expect_ok(weft_communicator_fabric(ranks.communicator(), text.data(), 5, &length));
  EXPECT_EQ(text.data(), whole.substr(0, 4));
  EXPECT_EQ(length, whole.size());
  expect_ok(weft_communicator_fabric(ranks.communicator(), nullptr, 0, nullptr));
  EXPECT_EQ(weft_communicator_fabric(ranks.communicator(), nullptr, 5, nullptr), WEFT_INVALID_ARGUMENT);
  expect_ok(weft_communicator_multicast(ranks.communicator(), text.data(), text.size(), nullptr));
  expect_says(text.data(), "not asked for");
  expect_ok(weft_group_tuning(ranks.world(), text.data(), text.size(), nullptr));
  expect_says(text.data(), "CPU");
}

TEST(CHandles, RefuseCallsForTheirUsers) {
  const CRanks ranks(2);
  expect_no_errors(run_ranks(2, [&](int rank) {
    weft_group* group = nullptr;
    ensure_ok(weft_communicator_world(ranks.communicator(rank), &group));
    int device = 0;
    ensure_ok(weft_group_cuda_device(group, &device));
    ensure(device == -1, "a CPU rank has a GPU");
    if (rank == 1) {
      weft_group_refuse(group, "x: a list", nullptr);
    } else {
      std::int32_t x = 1;
      ensure(add_up(group, &x) == WEFT_MISMATCH, "rank 0 was not told");
      ensure(std::string(weft_last_fault()->theirs).find("a call that it rejected (x: a list)") == 0, "no reason");
    }
    weft_group_destroy(group);
  }));
  weft_group_refuse(nullptr, "nobody", nullptr);
  weft_exchange_refuse_dispatch(nullptr, "nobody", nullptr);
  weft_exchange_refuse_combine(nullptr, "nobody", nullptr);
}

TEST(CHandles, OfReleasedMemoryAreRefusedUntilItIsTaken) {
  const CRanks ranks(2);
  expect_no_errors(run_ranks(2, [&](int rank) {
    ensure_ok(weft_communicator_release(ranks.communicator(rank)));
    ensure(weft_communicator_release(ranks.communicator(rank)) == WEFT_RELEASED, "released twice");
    ensure_ok(weft_communicator_acquire(ranks.communicator(rank)));
    expect_sum(ranks.world(rank));
  }));
}

TEST(CHandles, AnExchangeTellsItsDefinition) {
  const OneRank rank;
  const std::array<std::uint32_t, 1> homes = {0};
  const std::array<weft_expert_ranks, 3> tables = {{{homes.data(), 1}, {homes.data(), 1}, {homes.data(), 1}}};
  weft_moe_exchange_args args = initialised(weft_moe_exchange_args_init);
  args.tokens = 5;
  args.hidden = 256;
  args.experts = 3;
  args.top_k = 2;
  args.ranks_of_expert = tables.data();
  args.ranks_of_expert_count = tables.size();
  weft_exchange* exchange = nullptr;
  expect_ok(weft_exchange_create(rank.world(), &args, &exchange));
  weft_moe_exchange_args got;
  got.size = sizeof got;
  expect_ok(weft_exchange_args(exchange, &got));
  EXPECT_EQ(got.size, sizeof got);
  EXPECT_EQ(got.tokens * 1000 + got.experts * 10 + got.top_k, 5032u);
  EXPECT_EQ(got.handles, 2u);
  EXPECT_NE(got.weighted, 0);
  ASSERT_EQ(got.ranks_of_expert_count, 3u);
  ASSERT_EQ(got.ranks_of_expert[2].count, 1u);
  EXPECT_EQ(got.ranks_of_expert[2].ranks[0], 0u);
  EXPECT_NE(got.ranks_of_expert[2].ranks, homes.data()) << "tables are copied";
  EXPECT_EQ(got.rank_of_expert_count, 0u);
  std::uint32_t experts = 0;
  const std::uint32_t* numbers = nullptr;
  expect_ok(weft_exchange_local_experts(exchange, &experts));
  expect_ok(weft_exchange_experts(exchange, &numbers));
  ASSERT_EQ(experts, 3u);
  EXPECT_EQ(numbers[2], 2u);
  expect_ok(weft_exchange_free(exchange));
  EXPECT_EQ(weft_exchange_free(exchange), WEFT_RELEASED);
  weft_exchange_destroy(exchange);

  args.ranks_of_expert = nullptr;
  EXPECT_EQ(weft_exchange_create(rank.world(), &args, &exchange), WEFT_INVALID_ARGUMENT);
  expect_says(weft_last_message(), "ranks_of_expert: null");
}

TEST(CHandles, HostCountsAreReadAsInCpp) {
  std::uint64_t word = (std::uint64_t{12} << 32) | 7;
  const weft_host_count got = weft_read_host_count(&word);
  const HostCount wanted = read_host_count(&word);
  EXPECT_EQ(got.count, wanted.count);
  EXPECT_EQ(got.stamp, wanted.stamp);
}

// Functions with a handle, its arguments, or the place of a result missing.
TEST(CHandles, NullPointersAreRejected) {
  const OneRank rank;
  const weft_group* const none = nullptr;
  weft_communicator* const nobody = nullptr;
  const auto rejected = [](weft_code code, const std::string& name) {
    EXPECT_EQ(code, WEFT_INVALID_ARGUMENT) << name;
    EXPECT_EQ(weft_last_message(), name + ": null");
  };
  const auto call = [&](auto init, auto function, const std::string& name) {
    const auto args = initialised(init);
    rejected(function(none, &args), "group");
    rejected(function(rank.world(), nullptr), name);
  };
  call(weft_all_reduce_args_init, weft_all_reduce, "weft_all_reduce_args");
  call(weft_reduce_args_init, weft_reduce, "weft_reduce_args");
  call(weft_all_gather_args_init, weft_all_gather_into_tensor, "weft_all_gather_args");
  call(weft_all_to_all_args_init, weft_all_to_all, "weft_all_to_all_args");
  call(weft_broadcast_args_init, weft_broadcast, "weft_broadcast_args");
  call(weft_reduce_scatter_args_init, weft_reduce_scatter_tensor, "weft_reduce_scatter_args");
  call(weft_barrier_args_init, weft_barrier, "weft_barrier_args");
  call(weft_all_gather_v_args_init, weft_all_gather_v, "weft_all_gather_v_args");
  call(weft_reduce_scatter_v_args_init, weft_reduce_scatter_v, "weft_reduce_scatter_v_args");
  call(weft_send_receive_args_init, weft_send_receive, "weft_send_receive_args");
  call(weft_gather_args_init, weft_gather, "weft_gather_args");
  call(weft_scatter_args_init, weft_scatter, "weft_scatter_args");
  call(weft_all_gather_counts_args_init, weft_all_gather_counts, "weft_all_gather_counts_args");
  call(weft_all_reduce_rms_norm_args_init, weft_all_reduce_rms_norm, "weft_all_reduce_rms_norm_args");
  call(weft_all_gather_columns_args_init, weft_all_gather_columns, "weft_all_gather_columns_args");
  call(weft_all_to_all_columns_args_init, weft_all_to_all_columns, "weft_all_to_all_columns_args");
  call(weft_top_k_columns_args_init, weft_top_k_columns, "weft_top_k_columns_args");
  call(weft_crossing_args_init, weft_gather_sums, "weft_crossing_args");
  call(weft_crossing_args_init, weft_scatter_sums, "weft_crossing_args");
  call(weft_crossing_rms_norm_args_init, weft_gather_sums_rms_norm, "weft_crossing_rms_norm_args");
  call(weft_crossing_rms_norm_args_init, weft_scatter_sums_rms_norm, "weft_crossing_rms_norm_args");
  call(weft_take_rows_args_init, weft_take_rows, "weft_take_rows_args");
  const auto outgoing = initialised(weft_outgoing_message_init);
  const auto incoming = initialised(weft_incoming_message_init);
  rejected(weft_send(none, &outgoing, nullptr), "group");
  rejected(weft_send(rank.world(), nullptr, nullptr), "weft_outgoing_message");
  rejected(weft_receive(none, &incoming, nullptr), "group");
  rejected(weft_receive(rank.world(), nullptr, nullptr), "weft_incoming_message");

  weft_group* group = nullptr;
  rejected(weft_communicator_world(nobody, &group), "communicator");
  rejected(weft_communicator_world(rank.communicator(), nullptr), "world");
  rejected(weft_communicator_split(nobody, 0, &group), "communicator");
  rejected(weft_communicator_split(rank.communicator(), 0, nullptr), "group");
  rejected(weft_communicator_release(nobody), "communicator");
  rejected(weft_communicator_acquire(nobody), "communicator");
  rejected(weft_communicator_abort(nobody), "communicator");
  rejected(weft_communicator_memory(rank.communicator(), nullptr), "memory");
  rejected(weft_communicator_fabric(nobody, nullptr, 0, nullptr), "communicator");
  rejected(weft_communicator_multicast(nobody, nullptr, 0, nullptr), "communicator");
  rejected(weft_communicator_local(1, nullptr, nullptr), "communicators");
  rejected(weft_communicator_from_environment(nullptr, nullptr), "communicator");
  weft_communicator* made = nullptr;
  rejected(weft_communicator_from_id(nullptr, 0, 1, nullptr, &made), "id");
  rejected(weft_communicator_from_nccl(nullptr, nullptr, &made), "nccl");
  rejected(weft_unique_id_create(nullptr, nullptr), "id");
  rejected(weft_group_copy(none, &group), "group");
  rejected(weft_group_rank(rank.world(), nullptr), "rank");
  rejected(weft_group_size(rank.world(), nullptr), "size");
  rejected(weft_group_members(rank.world(), nullptr), "members");
  rejected(weft_group_device(rank.world(), nullptr), "device");
  rejected(weft_group_tuning(none, nullptr, 0, nullptr), "group");
  rejected(weft_group_status(rank.world(), nullptr), "fault");
  rejected(weft_group_check(none), "group");
  const weft_call_record* const* records = nullptr;
  rejected(weft_group_recent_calls(rank.world(), &records, nullptr), "count");
  rejected(weft_recording_capture(rank.communicator(), nullptr, nullptr, nullptr), "recording");
  weft_recording* recording = nullptr;
  rejected(weft_recording_capture(rank.communicator(), nullptr, nullptr, &recording), "calls");
  rejected(weft_recording_replay(nullptr), "recording");
  rejected(weft_recording_size(nullptr, nullptr), "recording");
  weft_symmetric_memory* memory = nullptr;
  rejected(weft_symmetric_memory_allocate(nobody, 1, &memory), "communicator");
  rejected(weft_symmetric_memory_allocate(rank.communicator(), 1, nullptr), "memory");
  void* data = nullptr;
  rejected(weft_symmetric_memory_data(nullptr, &data), "memory");
  rejected(weft_symmetric_memory_peer(nullptr, 0, &data), "memory");
  rejected(weft_symmetric_memory_free(nullptr), "memory");
  const weft_exchange* const nothing = nullptr;
  const auto dispatch = initialised(weft_dispatch_args_init);
  const auto combine = initialised(weft_combine_args_init);
  weft_dispatch_handle handle = {};
  rejected(weft_dispatch(nothing, &dispatch, &handle), "exchange");
  rejected(weft_dispatch(nothing, &dispatch, nullptr), "handle");
  rejected(weft_dispatch_send(nothing, &dispatch, &handle), "exchange");
  rejected(weft_dispatch_wait(nothing, nullptr, &dispatch), "handle");
  rejected(weft_combine(nothing, &combine), "exchange");
  rejected(weft_combine_send(nothing, &combine), "exchange");
  rejected(weft_combine_wait(nothing, &combine), "exchange");
}

}  // namespace
}  // namespace weft::test
