#include "far.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "kernel/blocks.hpp"
#include "ops/all_reduce/one_shot_all_reduce.hpp"
#include "ops/all_reduce/pipelined_all_reduce.hpp"
#include "ops/all_reduce/two_shot_all_reduce.hpp"
#include "ops/moe/moe_combine.hpp"
#include "ops/moe/moe_dispatch.hpp"
#include "ops/moves/push_copy.hpp"
#include "ops/moves/push_reduce_scatter.hpp"
#include "support/far.hpp"
#include "support/far_moe.hpp"
#include "team/cpu_thread.hpp"

namespace weft::sim {
namespace {

using test::FarRank;

constexpr std::uint32_t kSize = FarRank::kSize, kCalls = 3, kCount = 31;  // elements that one rank sends to another

class FarTeam : public detail::CpuThread {
 public:
  explicit FarTeam(std::uint32_t block) : CpuThread(block, detail::kThreadBlocks, nullptr) {}
  static int dead_peer() { return -1; }
  static std::uint32_t host_epoch() { return 0; }  // for a seeded bug, which is off here
};
static_assert(detail::Team<FarTeam>);

std::int32_t value(std::uint32_t call, std::uint32_t rank, std::uint32_t i) {
  return static_cast<std::int32_t>(1'000'000 * call + 10'000 * rank + i);
}
std::int32_t sum(std::uint32_t call, std::uint32_t i) {
  std::int32_t total = 0;
  for (std::uint32_t rank = 0; rank < kSize; ++rank) total += value(call, rank, i);
  return total;
}

struct Tensors {
  std::uint32_t inputs, outputs;  // elements
  std::int32_t (*expected)(std::uint32_t call, std::uint32_t rank, std::uint32_t i);
};

template <class A>
void call_blocks(const detail::Call& call, const typename A::Work& work) {
  std::atomic_thread_fence(std::memory_order_acq_rel);  // as at the beginning of every call of a CPU rank
  detail::run_blocks<A>(std::array{FarTeam(0), FarTeam(1)}, call, work);
}

// `work_of(input, output)`: the work of a rank's call.
template <class A, class WorkOf>
std::string run(const char* name, std::uint64_t deadline_ns, const Tensors& tensors, WorkOf work_of) {
  auto ranks = test::far_ranks(deadline_ns);
  std::array<std::string, kSize> wrong;
  const auto rank_body = [&](std::uint32_t rank) {
    FarRank& mine = *ranks[rank];
    for (std::uint32_t call = 0; call < kCalls && wrong[rank].empty(); ++call) {
      std::vector<std::int32_t> input(tensors.inputs), output(tensors.outputs, -1);
      for (std::uint32_t i = 0; i < tensors.inputs; ++i) input[i] = value(call, rank, i);
      call_blocks<A>(mine.call(77), work_of(input.data(), output.data()));
      if (mine.record->complete != 0) wrong[rank] = fmt::format("ends with code {}", mine.record->code);
      for (std::uint32_t i = 0; i < tensors.outputs && wrong[rank].empty(); ++i) {
        const std::int32_t expected = tensors.expected(call, rank, i);
        if (output[i] != expected) wrong[rank] = fmt::format("element {} is {}, not {}", i, output[i], expected);
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < kSize; ++rank) threads.emplace_back(rank_body, rank);
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    if (ranks[rank]->strayed()) return fmt::format("{}: memory of rank {} that has no use was touched", name, rank);
  }
  for (const std::string& what : wrong) {
    if (!what.empty()) return fmt::format("{}: {}", name, what);
  }
  return {};
}

template <class A>
std::string all_reduce(const char* name, std::uint64_t deadline_ns) {
  return run<A>(name, deadline_ns,
                {kCount, kCount, [](std::uint32_t call, std::uint32_t, std::uint32_t i) { return sum(call, i); }},
                [](const void* input, void* output) {
                  return detail::AllReduceWork{.input = input, .output = output, .count = kCount};
                });
}

constexpr std::uint64_t kRowBytes = kCount * sizeof(std::int32_t);
constexpr detail::EqualPartition kPartition{.rows = 1, .input_step = 0, .output_step = 1, .sender = detail::kEverybody};

// Messages longer than `slot_packs` flow in chunks.
std::string all_gather(const char* name, std::uint64_t deadline_ns, std::uint64_t slot_packs) {
  return run<detail::PushCopy<detail::EqualPartition, false, 1>>(
      name, deadline_ns,
      {kCount, kCount * kSize,
       [](std::uint32_t call, std::uint32_t, std::uint32_t i) { return value(call, i / kCount, i % kCount); }},
      [=](const void* input, void* output) {
        return detail::CopyWork<detail::EqualPartition, 1>{
            .partition = kPartition,
            .line_packs = slot_packs,
            .tensors = 1,
            .tensor = {{input, output, kRowBytes, kRowBytes, kRowBytes}}};
      });
}

std::string reduce_scatter(const char* name, std::uint64_t deadline_ns, std::uint64_t slot_packs) {
  return run<detail::PushReduceScatter<detail::EqualPartition, DataType::i32, detail::Ops::sum, 0, false>>(
      name, deadline_ns,
      {kCount * kSize, kCount,
       [](std::uint32_t call, std::uint32_t rank, std::uint32_t i) { return sum(call, rank * kCount + i); }},
      [=](const void* input, void* output) {
        return detail::ReduceScatterWork<detail::EqualPartition>{
            .partition = {.rows = 1, .input_step = 1, .output_step = 0, .sender = detail::kEverybody},
            .slot_packs = slot_packs,
            .input = input,
            .output = output,
            .row_bytes = kRowBytes,
            .input_stride = kRowBytes,
            .output_stride = kRowBytes};
      });
}

// Sends tokens and returns them. The experts return their input: x + x, which bf16 holds.
std::string run_exchange(detail::far::ExchangeRank& mine, const detail::far::FarCase& far, std::uint32_t call) {
  using namespace detail::far;
  const std::uint32_t top_k = mine.args.top_k;
  std::vector<std::int32_t> ids, counts(far.local), source_tokens(kRanks);
  for (std::uint32_t token = 0; token < kTokens; ++token) {
    for (std::uint32_t k = 0; k < top_k; ++k) {
      ids.push_back(static_cast<std::int32_t>(far.expert(call, mine.rank, token, k)));
    }
    for (std::uint64_t i = 0; i < kColumns; ++i) {
      const std::uint16_t bits = element(number_of(call, mine.rank, token, i));
      std::memcpy(mine.input.data() + 2 * (std::uint64_t{token} * kColumns + i), &bits, sizeof(bits));
    }
  }
  detail::DispatchWork dispatch{};
  dispatch.exchange = mine.view();
  dispatch.phases = detail::kJoined;
  dispatch.input = mine.input.data();
  dispatch.ids = ids.data();
  dispatch.tokens = kTokens;
  dispatch.output = mine.output.data();
  dispatch.counts = counts.data();
  dispatch.source_tokens = source_tokens.data();
  call_blocks<detail::MoeDispatch<detail::ExactRow<detail::RowAndScales>>>(mine.call(mine.dispatch), dispatch);
  detail::CombineWork combine{};
  combine.exchange = mine.view();
  combine.phases = detail::kJoined;
  combine.pairs = true;
  combine.input = mine.output.data();
  combine.output = mine.result.data();
  combine.dispatch_admitted = mine.dispatch.local.admitted;
  call_blocks<detail::MoeCombine<DataType::bf16, 4>>(mine.call(mine.combine), combine);
  if (mine.record->complete != 0) return fmt::format("ends with code {}", mine.record->code);
  const auto* const result = reinterpret_cast<const std::uint16_t*>(mine.result.data());
  for (std::uint64_t i = 0; i < std::uint64_t{kTokens} * kColumns; ++i) {
    const auto token = static_cast<std::uint32_t>(i / kColumns);
    if (result[i] == element(number_of(call, mine.rank, token, i % kColumns)) + 0x80u) continue;
    return fmt::format("token {} comes back with element {} wrong", token, i % kColumns);
  }
  return {};
}

std::string exchange(const char* name, std::uint64_t deadline_ns) {
  const detail::far::FarCase far{.name = name, .layout = RowLayout::expert_masked};
  const auto ranks = detail::far::exchange_ranks(far, deadline_ns);
  std::array<std::string, detail::far::kRanks> wrong;
  std::vector<std::thread> threads;
  for (const auto& mine : ranks) {
    threads.emplace_back([&] {
      for (std::uint32_t call = 0; call < 2 && wrong[mine->rank].empty(); ++call) {
        wrong[mine->rank] = run_exchange(*mine, far, call);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : ranks) {
    if (mine->strayed()) return fmt::format("{}: memory of rank {} that has no use was touched", name, mine->rank);
  }
  for (const std::string& what : wrong) {
    if (!what.empty()) return fmt::format("{}: {}", name, what);
  }
  return {};
}

}  // namespace

std::string what_goes_wrong_far_away(std::uint64_t deadline_ns) {
  using Lines = detail::Reduction<DataType::i32, detail::Ops::sum>;
  using Pipelined = detail::Reduction<DataType::i32, detail::Ops::sum, detail::Plain>;
  constexpr std::uint64_t one_go = FarRank::kArmedPacks, chunks = 0;
  std::string wrong;
  const auto then = [&](auto&& operation) {
    if (wrong.empty()) wrong = operation();
  };
  then([&] { return all_reduce<detail::OneShotAllReduce<Lines, 0, false>>("one-shot", deadline_ns); });
  then([&] { return all_reduce<detail::TwoShotAllReduce<Lines, 0, false>>("two-shot", deadline_ns); });
  then([&] { return all_reduce<detail::PipelinedAllReduce<Pipelined, 0, false>>("pipelined", deadline_ns); });
  then([&] { return all_gather("all-gather", deadline_ns, one_go); });
  then([&] { return all_gather("all-gather in chunks", deadline_ns, chunks); });
  // Not in chunks: that goes through every pack, present or not, which takes a minute.
  then([&] { return reduce_scatter("reduce-scatter", deadline_ns, one_go); });
  then([&] { return exchange("dispatch and combine", deadline_ns); });
  return wrong;
}

namespace {

TEST(FarOffsets, AreRight) {
  EXPECT_EQ(what_goes_wrong_far_away(20'000'000'000), "");
}

}  // namespace
}  // namespace weft::sim
