// A call allocates nothing by operator new on the host, for any number of different calls. Kinds of calls that have
// paths of their own are in host_cost_kinds_test.cpp, and calls through C in host_cost_c_test.cpp.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/host_cost.hpp"
#include "support/cases.hpp"
#include "weft/messages.hpp"
#include "weft/moe_layer.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

using cli::SmallCall;

// Every operation has a call here (tests/c/test_parity.py). MoeExchange::set_experts() and free() are meetings of the
// hosts, like create(): they exchange messages, and take memory for them.
const std::vector<std::string> kOperations = {
    "all_reduce",
    "reduce",
    "all_reduce_rms_norm",
    "barrier",
    "all_gather_into_tensor",
    "all_gather_columns",
    "top_k_columns",
    "all_to_all",
    "broadcast",
    "reduce_scatter_tensor",
    "send_receive",
    "gather",
    "scatter",
    "all_gather_v",
    "reduce_scatter_v",
    "gather_sums",
    "scatter_sums",
    "gather_sums_rms_norm",
    "scatter_sums_rms_norm",
    "all_to_all_columns",
    "all_gather_counts",
    "take_rows",
    "dispatch",
    "combine",
    "dispatch in halves",
    "combine in halves",
};

TEST(HostCost, ACallTakesNoMemory) {
  for (const int ranks : {1, 2}) {
    Config config = cpu_config();
    config.order_streams = ranks == 1;
    expect_all_well(run_world(ranks, config, [](Communicator& communicator, int) {
      const auto device = cli::open_cpu_rank();
      const cli::EveryOperation operations(communicator, *device);
      std::vector<std::string> names;
      for (const SmallCall& call : operations.calls()) names.push_back(call.name);
      EXPECT_EQ(names, kOperations);
      expect_no_memory(operations.calls(), 100);
    }));
  }
}

constexpr std::size_t kRows = 4, kHidden = 128, kRowBytes = 2 * kHidden;

// Gathers of several tensors, of replicas, and into symmetric memory.
class Gathers {
 public:
  explicit Gathers(Communicator& communicator)
      : communicator_(communicator),
        ranks_(static_cast<std::size_t>(communicator.size())),
        symmetric_(SymmetricMemory::allocate(communicator, ranks_ * kRows * kRowBytes)) {
    for (auto* memory : {&input_, &output_, &second_}) memory->resize(ranks_ * kRows * kRowBytes);
    rows_.assign(ranks_, kRows);
  }

  std::vector<SmallCall> calls() {
    return {{"two tensors",
             [this](std::uint32_t tag) {
               gather({output_.data(), second_.data()}, 1, tag);
             }},
            {"replicas",
             [this](std::uint32_t tag) {
               gather({output_.data(), second_.data()}, ranks_, tag);
             }},
            {"symmetric ragged",
             [this](std::uint32_t tag) {
               gather({static_cast<std::byte*>(symmetric_.data()), output_.data()}, 1, tag);
             }},
            {"symmetric rows", [this](std::uint32_t tag) {
               all_gather_into_tensor(communicator_, {.input = input_.data(),
                                                      .output = symmetric_.data(),
                                                      .rows = kRows,
                                                      .row_bytes = kRowBytes,
                                                      .tag = tag});
             }}};
  }

 private:
  void gather(const std::array<std::byte*, 2>& outputs, std::size_t group_ranks, std::uint32_t tag) {
    const std::array tensors = {
        GatheredTensor{.input = input_.data(), .output = outputs[0], .row_bytes = kRowBytes},
        GatheredTensor{.input = input_.data(), .output = outputs[1], .row_bytes = kRowBytes / 2}};
    all_gather_v(communicator_, {.tensors = std::span(tensors).first(outputs[0] == symmetric_.data() ? 1 : 2),
                                 .counts = {.rows = rows_.data()},
                                 .input_rows = ranks_ * kRows,
                                 .output_rows = ranks_ * kRows,
                                 .tag = tag,
                                 .group_ranks = group_ranks});
  }

  Communicator& communicator_;
  std::size_t ranks_;
  SymmetricMemory symmetric_;
  std::vector<std::byte> input_, output_, second_;
  std::vector<std::int32_t> rows_;
};

TEST(HostCost, AGatherOfAnyKindTakesNoMemory) {
  for (const int ranks : {1, 2}) {
    expect_all_well(run_world(ranks, cpu_config(), [](Communicator& communicator, int) {
      Gathers gathers(communicator);
      expect_no_memory(gathers.calls());
    }));
  }
}

// More messages than one kernel moves, which a call writes down.
TEST(HostCost, ManyMessagesTakeNoMemory) {
  constexpr std::size_t kMessages = 60;
  expect_all_well(run_world(2, cpu_config(), [](Communicator& communicator, int rank) {
    std::vector<std::byte> sent(kMessages), received(kMessages);
    std::vector<Send> sends(kMessages);
    std::vector<Receive> receives(kMessages);
    const int peer = 1 - rank;
    const auto make = [&](std::uint32_t tag) {
      for (std::size_t i = 0; i < kMessages; ++i) {
        sends[i] = {.peer = peer, .data = &sent[i], .bytes = 1, .tag = tag};
        receives[i] = {.peer = peer, .data = &received[i], .bytes = 1, .tag = tag};
      }
      send_receive(communicator, {.sends = sends, .receives = receives});
    };
    expect_no_memory({{"60 messages", make}}, 5);
  }));
}

// Dispatch and combine in two rounds and by a ring, and a layer by each of its schedules.
class Layers {
 public:
  Layers(const Communicator& communicator, RowPath path)
      : exchange_(MoeExchange::create(communicator, {.tokens = kRows,
                                                     .hidden = kHidden,
                                                     .experts = static_cast<std::uint32_t>(2 * communicator.size()),
                                                     .top_k = kTopK,
                                                     .path = path})),
        layer_(MoeLayer::create(exchange_, {.intermediate = kHidden})),
        input_(kRows * kRowBytes),
        result_(kRows * kRowBytes),
        rows_(exchange_.output_rows() * kRowBytes),
        counts_(exchange_.local_experts()),
        weights_(kRows * kTopK, 0.5F),
        workspace_(layer_.workspace_bytes() + kAlignment) {
    for (std::size_t i = 0; i < kRows * kTopK; ++i)
      ids_.push_back(static_cast<std::int32_t>(i) % (2 * communicator.size()));
  }

  std::vector<SmallCall> calls() {
    std::vector<SmallCall> calls{{"dispatch and combine", [this](std::uint32_t tag) { exchange(1, tag); }},
                                 {"in rounds", [this](std::uint32_t tag) { exchange(2, tag); }}};
    for (const auto schedule : {LayerSchedule::plain, LayerSchedule::rounds, LayerSchedule::combine_rounds})
      calls.push_back({std::string(name(schedule)), [=, this](std::uint32_t tag) { run(schedule, tag); }});
    return calls;
  }

 private:
  static constexpr std::uint32_t kTopK = 2;
  static constexpr std::size_t kAlignment = 256;

  void exchange(std::uint32_t rounds, std::uint32_t tag) {
    DispatchArgs dispatch{.input = input_.data(), .topk_ids = ids_.data()};
    dispatch.topk_weights = weights_.data();
    dispatch.tokens = kRows;
    dispatch.output = rows_.data();
    dispatch.counts = counts_.data();
    dispatch.tag = tag;
    dispatch.rounds = {.count = rounds};
    const DispatchHandle handle = exchange_.dispatch_send(dispatch);
    for (; dispatch.round < rounds; ++dispatch.round) exchange_.dispatch_wait(handle, dispatch);
    CombineArgs combine{.handle = handle, .input = rows_.data(), .output = result_.data(), .tag = tag};
    combine.rounds = dispatch.rounds;
    for (; combine.round < rounds; ++combine.round) exchange_.combine_send(combine);
    exchange_.combine_wait(combine);
  }
  void run(LayerSchedule schedule, std::uint32_t tag) {
    MoeLayerCall call{.input = input_.data(), .topk_ids = ids_.data(), .topk_weights = weights_.data()};
    call.tokens = kRows;
    call.output = result_.data();
    const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data());
    call.workspace = workspace_.data() + (kAlignment - address % kAlignment) % kAlignment;
    call.up = call.down = [](const ExpertGemm&) {};
    call.tag = tag;
    call.schedule = schedule;
    if (schedule != LayerSchedule::plain) call.rounds = {.count = 2};
    layer_.run(call);
  }

  MoeExchange exchange_;
  MoeLayer layer_;
  std::vector<std::byte> input_, result_, rows_;
  std::vector<std::int32_t> counts_, ids_;
  std::vector<float> weights_;
  std::vector<std::byte> workspace_;
};

TEST(HostCost, RoundsAndLayersTakeNoMemory) {
  for (const int ranks : {1, 2}) {
    for (const RowPath path : {RowPath::slots, RowPath::ring}) {
      expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int) {
        Layers layers(communicator, path);
        expect_no_memory(layers.calls());
      }));
    }
  }
}

// The counter that the tests above use works.
TEST(HostCost, MemoryIsCounted) {
  const std::size_t before = taken_by_this_thread();
  const std::vector<int> some(100);
  EXPECT_EQ(some.size(), 100u);
  EXPECT_GE(taken_by_this_thread() - before, 1u);
  const AlignedBytes aligned(100);
  EXPECT_GE(taken_by_this_thread() - before, 2u);
}

}  // namespace
}  // namespace weft::test
