// Relacy's side of primitives_test.cpp. A rank is one thread that runs production templates over a team. The team uses
// Relacy's atomics in units of 8 bytes, and Relacy's plain variables, which reveal races.
#include <array>
#include <bit>

#include "ops/all_reduce/one_shot_all_reduce.hpp"
#include "ops/all_reduce/pipelined_all_reduce.hpp"
#include "primitives.hpp"
#include "protocol/flow.hpp"
#include "sim/run.hpp"
#include "team/cpu_thread.hpp"
// Relacy must not come above.
#include "relacy.hpp"

namespace weft::sim {
namespace {

constexpr std::uint32_t kRanks = 2, kSlots = 2, kCalls = 3, kPipelinePacks = 6;
constexpr std::size_t kWords = sizeof(std::uint64_t), kPacks = sizeof(detail::Pack);
constexpr std::size_t kHeaders = 2 * kWords;  // behind the poison word
constexpr std::size_t kOneShot = kHeaders + detail::kBanks * kRanks * kWords;
constexpr std::size_t kSignals = kOneShot + detail::kBanks * kRanks * kPacks;
constexpr std::size_t kScatter = kSignals + 2 * kSlots * kRanks * kWords;
constexpr std::size_t kGather = kScatter + kSlots * kRanks * kPacks;
constexpr std::size_t kCredits = kGather + kSlots * kRanks * kPacks;
constexpr std::size_t kBytes = kCredits + kSlots * kRanks * kWords;

// Addresses of the shared memory. Relacy's cells hold the values.
alignas(16) std::byte windows[kRanks][kBytes];
constexpr std::size_t kCells = sizeof(windows) / kWords;

struct Cells {
  rl::atomic<std::uint64_t> word[kCells];  // stores and loads
  rl::var<std::uint64_t> plain[kCells];    // put and get
};

// Memory outside the windows belongs to one rank, and so to one thread: it is ordinary memory.
class RelacyTeam : public detail::CpuThread {
 public:
  RelacyTeam(Cells& cells, std::uint32_t block) : CpuThread(block, 2, nullptr), cells_(&cells) {}

  void put(detail::Pack* to, const detail::Pack& value) const {
    const auto halves = std::bit_cast<std::array<std::uint64_t, 2>>(value);
    for (std::size_t i = 0; i < 2; ++i) cells_->plain[cell(to) + i](RL_INFO) = halves[i];
  }
  detail::Pack get(const detail::Pack* from) const {
    std::array<std::uint64_t, 2> halves{};
    for (std::size_t i = 0; i < 2; ++i) halves[i] = cells_->plain[cell(from) + i](RL_INFO);
    return std::bit_cast<detail::Pack>(halves);
  }
  void store(detail::Pack* to, const detail::Pack& value) const {
    const auto halves = std::bit_cast<std::array<std::uint64_t, 2>>(value);
    for (std::size_t i = 0; i < 2; ++i) store(reinterpret_cast<std::uint64_t*>(to) + i, halves[i]);
  }
  detail::Pack load(const detail::Pack* from) const {
    std::array<std::uint64_t, 2> halves{};
    for (std::size_t i = 0; i < 2; ++i) halves[i] = load(reinterpret_cast<const std::uint64_t*>(from) + i);
    return std::bit_cast<detail::Pack>(halves);
  }
  template <class Word>
  void store(Word* to, Word value, rl::memory_order order = rl::mo_relaxed) const {
    if (!in_window(to))
      *to = value;
    else
      cells_->word[cell(to)].store(value, order, RL_INFO);
  }
  template <class Word>
  Word load(const Word* from, rl::memory_order order = rl::mo_relaxed) const {
    return in_window(from) ? static_cast<Word>(cells_->word[cell(from)].load(order, RL_INFO)) : *from;
  }
  template <class Word>
  void store_release(Word* to, Word value) const {
    store(to, value, rl::mo_release);
  }
  template <class Word>
  Word load_acquire(const Word* from) const {
    return load(from, rl::mo_acquire);
  }
  std::uint32_t exchange(std::uint32_t* at, std::uint32_t value) const { return std::exchange(*at, value); }

  static std::uint64_t now() { return 1; }
  static void relax(std::uint32_t) { rl::yield(1, RL_INFO); }
  static int dead_peer() { return -1; }
  static std::uint32_t host_epoch() { return 0; }  // for a seeded bug, which is off here

 private:
  static std::size_t offset(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(&windows);
  }
  static bool in_window(const void* address) { return offset(address) < sizeof(windows); }
  static std::size_t cell(const void* address) { return offset(address) / kWords; }

  Cells* cells_;
};
static_assert(detail::Team<RelacyTeam>);

// One rank's own memory.
struct Rank {
  detail::LocalState local;
  detail::FaultRecord record[detail::kFaultKinds];
  std::uint32_t claim[detail::kFaultKinds], abort;
  detail::Channel channel;

  explicit Rank(std::uint32_t rank) : local{}, record{}, claim{}, abort(0), channel{} {
    local.admit(1);
    local.begin_at(1);
    channel.rank = channel.world_rank = rank;
    channel.size = channel.world_size = kRanks;
    detail::RegionLayout& layout = channel.layout;
    layout.headers = kHeaders;
    layout.one_shot = kOneShot;
    layout.pipeline_signals = kSignals;
    layout.pipeline_scatter = kScatter;
    layout.pipeline_gather = kGather;
    layout.pipeline_credits = kCredits;
    layout.one_shot_packs = layout.pipeline_packs = 1;
    layout.pipeline_slots = kSlots;
    channel.local = &local;
    channel.claim = claim;
    channel.abort = &abort;
    channel.record = record;
    for (std::uint32_t i = 0; i < kRanks; ++i) {
      channel.member[i] = i;
      channel.region[i] = channel.window[i] = windows[i];
    }
  }
  detail::Call call() { return make_call(channel, &channel, 1, 0x1234u); }
};

template <class R>
typename R::Storage element(std::uint32_t value) {
  return R::kType == DataType::f32 ? std::bit_cast<std::uint32_t>(static_cast<float>(value)) : value;
}

// All-reduces of the same tensors, with new numbers in each call.
template <class A>
void all_reduce(Cells& cells, std::uint32_t rank, std::uint32_t calls, std::uint32_t packs) {
  using R = typename A::Instance::R;
  constexpr std::uint32_t kMost = kPipelinePacks * R::kElements;
  const std::uint32_t count = packs * R::kElements;
  Rank self(rank);
  const detail::Call call = self.call();
  alignas(16) typename R::Storage input[kMost], output[kMost] = {};
  for (std::uint32_t number = 0; number < calls; ++number) {
    rl::atomic_thread_fence(rl::mo_acq_rel, RL_INFO);  // a kernel boundary
    const auto value = [&](std::uint32_t from, std::uint32_t i) { return 1 + 1'000 * number + 100 * from + i; };
    for (std::uint32_t i = 0; i < count; ++i) input[i] = element<R>(value(rank, i));
    detail::run_blocks<A>(std::array{RelacyTeam(cells, 0), RelacyTeam(cells, 1)}, call,
                          {.input = input, .output = output, .count = count});
    for (std::uint32_t i = 0; i < count; ++i) RL_ASSERT(output[i] == element<R>(value(0, i) + value(1, i)));
    RL_ASSERT(self.record->complete == 0);
  }
}

// Rank 0 sends chunks of one pack to rank 1: twice as many as there are slots.
void flow_one_way(Cells& cells, std::uint32_t rank) {
  Rank self(rank);
  const detail::Call call = self.call();
  RelacyTeam team(cells, 1);
  detail::Session session = approach(team, call);
  RL_ASSERT(enter(team, session, ask(team, session), {}));
  const detail::Flow flow = detail::Route{&session, false}.wide();
  for (std::uint32_t chunk = 0; chunk < 2 * kSlots; ++chunk) {
    detail::Pack* const slot = flow.slot(1, chunk, 0);
    if (rank == 0) {
      RL_ASSERT(flow.await_slot(team, 1, chunk));
      team.put(slot, {{chunk, chunk + 1, chunk + 2, chunk + 3}});
      flow.announce(team, 1, chunk);
    } else {
      RL_ASSERT(flow.await_chunk(team, 0, chunk));
      const detail::Pack got = team.get(slot);
      for (std::uint32_t i = 0; i < 4; ++i) RL_ASSERT(got.word[i] == chunk + i);
      flow.give_credit(team, 0, chunk);
    }
  }
}

template <Primitive primitive>
struct Suite : rl::test_suite<Suite<primitive>, kRanks> {
  Cells cells;

  void before() {
    for (std::size_t i = 0; i < kCells; ++i) {
      const std::size_t offset = i * kWords % kBytes;
      const bool rests = offset >= kOneShot && offset < kSignals;
      cells.word[i].store(rests ? ~std::uint64_t{0} : 0, rl::mo_relaxed, RL_INFO);
      cells.plain[i](RL_INFO) = std::uint64_t{0};
    }
  }
  void thread(unsigned rank) {
    using enum DataType;
    using Lines = detail::Reduction<i32, detail::Ops::sum>;
    using Pipelined = detail::Reduction<i32, detail::Ops::sum, detail::Plain>;
    if constexpr (primitive == Primitive::sentinel) {
      using Sentinels = detail::Reduction<f32, detail::Ops::sum>;
      all_reduce<detail::OneShotAllReduce<Sentinels, kRanks, true>>(cells, rank, kCalls, 1);
    } else if constexpr (primitive == Primitive::line) {
      all_reduce<detail::OneShotAllReduce<Lines, kRanks, true>>(cells, rank, kCalls, 1);
    } else if constexpr (primitive == Primitive::signal) {
      all_reduce<detail::PipelinedAllReduce<Pipelined, kRanks, true>>(cells, rank, 1, kPipelinePacks);
    } else {
      flow_one_way(cells, rank);
    }
  }
};

}  // namespace

RelacyVerdict relacy_verdict(Primitive primitive) {
  const auto verdict = []<Primitive which>() -> RelacyVerdict {
    const RelacyResult result = run_relacy<Suite<which>>(kRelacyExecutions);
    return {rl::test_result_str(result.verdict), result.executions};
  };
  switch (primitive) {
    case Primitive::sentinel:
      return verdict.operator()<Primitive::sentinel>();
    case Primitive::line:
      return verdict.operator()<Primitive::line>();
    case Primitive::signal:
      return verdict.operator()<Primitive::signal>();
    case Primitive::credit:
      return verdict.operator()<Primitive::credit>();
  }
  return {};
}

}  // namespace weft::sim
