// A machine on which data arrives wrong, or whose ranks are not alike: what ranks, weft verify and weft tune make of
// it. The fabric under these communicators is the CPU's with things that can be broken one at a time, so this is an
// executable of its own, which has the fabric from here and not from the library.
#include <gtest/gtest.h>

#include <atomic>
#include <concepts>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#define make_cpu_fabric make_sound_fabric
#include "fabric/cpu_fabric.cpp"
#undef make_cpu_fabric

#include "cli/run.hpp"
#include "comm/state.hpp"
#include "support/cases.hpp"
#include "support/moe_cases.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/symmetric.hpp"

namespace weft::detail {

// Between which ranks a bit is lost, and in which pack; none while `from` is −1. Likewise of copies, in what arrived.
// And which rank cannot fill its memory.
struct Break {
  std::atomic<int> from = -1, to = -1;
  std::atomic<std::size_t> pack = 0;
  std::atomic<int> copies_from = -1, copies_to = -1;
  std::atomic<int> fills_of = -1;
  // Whose result of an operation is wrong; none while it is −1.
  std::atomic<int> sums = -1, residuals = -1, all_to_alls = -1;
  std::atomic<bool> barriers = false;  // none waits
  std::atomic<int> few_blocks = -1;    // whose GPU takes fewer blocks than the others'
  std::atomic<int> splits_of = -1;     // who cannot split
  std::atomic<int> restless = -1;      // whose GPU does not come to rest
  std::atomic<int> stale = -1;         // who sends what it sent so many calls before
  std::atomic<std::size_t> calls_before = 0;
};
static Break broken;

// What a call of the protocol sends; null where that is nothing.
const void** input_of(Operation& operation) {
  using Input = const void**;
  const auto of_move = [](auto& move) -> Input {
    if constexpr (requires { move.work.tensor; }) {
      return &move.work.tensor[0].input;
    } else if constexpr (requires {
                           { &move.work.input } -> std::same_as<Input>;
                         }) {
      return &move.work.input;
    } else {
      return nullptr;
    }
  };
  return std::visit(
      [&](auto& one) -> Input {
        if constexpr (requires {
                        { &one.work.input } -> std::same_as<Input>;
                      }) {
          return &one.work.input;
        } else if constexpr (requires { one.index(); }) {
          return std::visit(of_move, one);
        } else {
          return nullptr;
        }
      },
      operation);
}

class BreakableFabric final : public Fabric {
 public:
  explicit BreakableFabric(const FabricArgs& args) : sound_(make_sound_fabric(args)), rank_(args.bootstrap.rank()) {
    size_ = args.bootstrap.size();
  }

  void push(Pack* to, const std::vector<Pack>& packs) override {
    std::vector<Pack> arriving = packs;
    if (rank_ == broken.from && lies_with(to, broken.to)) arriving[broken.pack].word[2] ^= 1u << 31;
    sound_->push(to, arriving);
  }

  Device device() const override { return sound_->device(); }
  std::string description() const override { return sound_->description(); }
  int max_blocks() const override { return broken.few_blocks < 0 ? sound_->max_blocks() : few_blocks() ? 100 : 133; }
  std::size_t control_bytes() const override { return sound_->control_bytes(); }
  Control control() const override { return sound_->control(); }
  void open_window(Bootstrap& bootstrap, int number, std::size_t bytes) override {
    if (number == 0) window_bytes_ = bytes;
    sound_->open_window(bootstrap, number, bytes);
  }
  void close_window(int number) override { sound_->close_window(number); }
  std::byte* own_memory(int number) const override { return sound_->own_memory(number); }
  void finish_calls() override {
    if (rank_ == broken.restless) throw Error(Errc::timeout, "the GPU has not come to rest");
    sound_->finish_calls();
  }
  std::byte* lasting(int number) override { return sound_->lasting(number); }
  std::byte* window(int number, int rank) const override { return sound_->window(number, rank); }
  void write(void* to, const void* from, std::size_t bytes) override { sound_->write(to, from, bytes); }
  void fill(void* to, std::uint8_t value, std::size_t bytes) override {
    if (rank_ == broken.fills_of) throw Error(Errc::system, "the machine fills no memory");
    sound_->fill(to, value, bytes);
  }
  void read(void* to, const void* from, std::size_t bytes) override { sound_->read(to, from, bytes); }
  FaultRecord record(FaultKind kind) const override { return sound_->record(kind); }
  void clear_record(FaultKind kind) override { sound_->clear_record(kind); }
  void abort() noexcept override { sound_->abort(); }
  void check_buffer(const char* name, const void* data) const override { sound_->check_buffer(name, data); }
  void check_stream(Stream stream) const override { sound_->check_stream(stream); }
  std::uint32_t poison() const override { return sound_->poison(); }
  std::vector<int> dead_peers() const override { return sound_->dead_peers(); }
  bool run(const PlannedCall& planned) override {
    if (broken.barriers && is_barrier(planned.operation)) return true;
    const bool good = sound_->run(as_before(planned));
    if (const auto* sum = std::get_if<AllReduceOperation>(&planned.operation); sum != nullptr && rank_ == broken.sums)
      static_cast<std::uint8_t*>(sum->work.output)[1] ^= 4;
    if (const auto* norm = std::get_if<NormOperation>(&planned.operation); norm != nullptr && rank_ == broken.residuals)
      static_cast<std::uint8_t*>(norm->work.residual_output)[1] ^= 4;
    const auto* move = std::get_if<MoveOperation>(&planned.operation);
    const auto* copy = move != nullptr ? std::get_if<EqualCopy>(move) : nullptr;
    if (copy == nullptr) return good;
    const bool to_each = copy->work.shares.sender == kEverybody && copy->work.shares.input_step != 0;
    if (to_each && rank_ == broken.all_to_alls) static_cast<std::uint8_t*>(copy->work.tensor[0].output)[1] ^= 4;
    if (copy->work.shares.sender == kEverybody || rank_ != broken.copies_to) return good;
    const auto sender = static_cast<int>(planned.call.channel->member[copy->work.shares.sender]);
    if (sender == broken.copies_from) static_cast<std::uint8_t*>(copy->work.tensor[0].output)[5] ^= 4;
    return good;
  }
  bool keep_alive(Stream stream, const std::shared_ptr<Fabric>& what) override {
    return sound_->keep_alive(stream, what);
  }
  void split(int group, int color) override {
    if (rank_ == broken.splits_of) throw Error(Errc::system, "the machine splits nothing");
    sound_->split(group, color);
  }
  void call_nccl(const NcclCall& call) override { sound_->call_nccl(call); }
  void nccl_check(int group, int rank, int size) override { sound_->nccl_check(group, rank, size); }

 private:
  // The call with what an earlier one like it has sent, if the break is that.
  PlannedCall as_before(const PlannedCall& planned) {
    PlannedCall call = planned;
    const void** const input = input_of(call.operation);
    if (input == nullptr) return call;
    auto& sent = sent_[{call.operation.index(), planned.call.channel}];
    sent.push_back(*input);
    if (rank_ == broken.stale && sent.size() > broken.calls_before)
      *input = sent[sent.size() - 1 - broken.calls_before];
    return call;
  }
  bool few_blocks() const { return rank_ == broken.few_blocks; }
  static bool is_barrier(const Operation& operation) {
    const auto* move = std::get_if<MoveOperation>(&operation);
    return move != nullptr && std::holds_alternative<BarrierOperation>(*move);
  }
  bool lies_with(const Pack* place, int owner) const {
    if (owner < 0 || owner >= size_) return false;
    const auto* address = reinterpret_cast<const std::byte*>(place);
    const std::byte* begin = window(0, owner);
    return address >= begin && address < begin + window_bytes_;
  }

  std::shared_ptr<Fabric> sound_;
  int rank_, size_ = 0;
  std::size_t window_bytes_ = 0;
  std::map<std::pair<std::size_t, const void*>, std::vector<const void*>> sent_;  // by kind of operation and channel
};

std::shared_ptr<Fabric> make_cpu_fabric(const FabricArgs& args) {
  return std::make_shared<BreakableFabric>(args);
}

}  // namespace weft::detail

namespace weft::test {
namespace {

using detail::broken;

constexpr int kRanks = 3;

TEST(BrokenFabric, IsFoundBetweenAnyTwoRanks) {
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      for (const std::size_t pack : {std::size_t{0}, std::size_t{100}, std::size_t{255}}) {
        broken.from = from;
        broken.to = to;
        broken.pack = pack;
        const std::string error = error_of([] { Communicator::local(kRanks, cpu_config()); });
        expect_says(error, fmt::format("data that rank {} wrote to rank {} arrived wrong", from, to));
      }
    }
  }
  broken.from = -1;
}

// What was found is not there without the break: the twin of the twin.
TEST(BrokenFabric, WhenSoundWorks) {
  broken.from = -1;
  const Prepared prepared = prepare({.count = 500}, kRanks);
  expect_all_well(run_world(kRanks, cpu_config(), [&](Communicator& communicator, int rank) {
    run_on_cpu_rank(communicator, prepared, rank);
  }));
}

// Memory that comes back is not trusted, either.
TEST(BrokenFabric, IsFoundByAcquire) {
  auto communicators = Communicator::local(kRanks, cpu_config());
  const auto endings = run_world(communicators, [&](Communicator& communicator, int rank) {
    communicator.release();
    if (rank == 0) {
      broken.pack = 7;
      broken.to = 1;
      broken.from = 2;
    }
    communicator.acquire();
  });
  broken.from = -1;
  for (const Ending& ending : endings) expect_says(ending.what, "data that rank 2 wrote to rank 1 arrived wrong");
  // What was taken until then is given back, so that the next attempt finds as much.
  const Prepared prepared = prepare({.count = 500}, kRanks);
  expect_all_well(run_world(communicators, [&](Communicator& communicator, int rank) {
    EXPECT_EQ(communicator.world().state().communicator().fabric().window(0, rank), nullptr);
    communicator.acquire();
    run_on_cpu_rank(communicator, prepared, rank);
  }));
}

// Memory is not given back beside calls that may still use it, and whoever is told so works on.
TEST(BrokenFabric, NothingIsGivenBackBesideAGpuThatDoesNotComeToRest) {
  const Prepared prepared = prepare({.count = 500}, kRanks);
  auto communicators = Communicator::local(kRanks, cpu_config());
  std::vector<std::optional<SymmetricMemory>> memories(kRanks);
  std::vector<std::optional<Exchange>> exchanges(kRanks);
  expect_all_well(run_world(communicators, [&](Communicator& communicator, int rank) {
    memories[index(rank)] = SymmetricMemory::allocate(communicator, 4096);
    exchanges[index(rank)] = Exchange::create(communicator, {.tokens = 1, .hidden = 8, .experts = 3, .top_k = 1});
  }));
  const auto expect_refused = [&](const std::function<void(Communicator&, int)>& give_back) {
    broken.restless = 1;
    const auto endings = run_world(communicators, give_back);
    broken.restless = -1;
    for (int rank = 0; rank < kRanks; ++rank) {
      const Ending& ending = endings[index(rank)];
      ASSERT_TRUE(ending.error) << ending.what;
      EXPECT_EQ(ending.error->code(), rank == 1 ? Errc::timeout : Errc::rendezvous);
      expect_says(ending.what, "the GPU has not come to rest");
    }
    expect_all_well(run_world(communicators, [&](Communicator& communicator, int rank) {
      run_on_cpu_rank(communicator, prepared, rank);
      EXPECT_NE(memories[index(rank)]->data(), nullptr);
    }));
  };
  expect_refused([](Communicator& communicator, int) { communicator.release(); });
  expect_refused([&](Communicator&, int rank) { memories[index(rank)]->free(); });
  expect_refused([&](Communicator&, int rank) { exchanges[index(rank)]->free(); });
  expect_all_well(run_world(communicators, [&](Communicator& communicator, int rank) {
    exchanges[index(rank)]->free();
    memories[index(rank)]->free();
    communicator.release();
    communicator.acquire();
    run_on_cpu_rank(communicator, prepared, rank);
  }));
  // An abort still gets through: nothing was released.
  broken.restless = 0;
  run_world(communicators, [](Communicator& communicator, int) { communicator.release(); });
  broken.restless = -1;
  communicators.front().abort();
  const auto endings = run_world(
      communicators, [&](Communicator& communicator, int rank) { run_on_cpu_rank(communicator, prepared, rank); });
  for (const Ending& ending : endings) expect_fault(ending, {Errc::aborted, Errc::peer_failed}, "after an abort");
}

// An exchange that one rank cannot prepare is none on any rank, and leaves the next one a window of its own: that one
// is larger, so in a window that was left behind its rows would lie outside.
TEST(BrokenFabric, AnExchangeThatFailsLeavesNothingBehind) {
  const ExchangeArgs small{.tokens = 1, .hidden = 8, .experts = kRanks, .top_k = 1};
  ExchangeArgs large = small;
  large.tokens = 64;
  large.hidden = 1024;
  const PreparedMoe p = prepare({.args = large, .tokens = {64}}, kRanks, 5);
  expect_all_well(run_world(kRanks, cpu_config(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const std::size_t before = communicator.memory().window;
    barrier(communicator, {});
    if (rank == 1) broken.fills_of = 1;
    barrier(communicator, {});
    expect_says(error_of([&] { Exchange::create(communicator, small); }), "the machine fills no memory");
    barrier(communicator, {});
    if (rank == 1) broken.fills_of = -1;
    barrier(communicator, {});
    EXPECT_EQ(communicator.memory().window, before);
    const Exchange exchange = Exchange::create(communicator, large);
    combine_and_check(exchange, p, rank, dispatch_and_check(exchange, p, rank));
    communicator.release();
    communicator.acquire();
    combine_and_check(exchange, p, rank, dispatch_and_check(exchange, p, rank));
  }));
}

// What an operator gets to see: which two ranks, which way.
// On all ranks, and the groups of later splits have one number everywhere.
TEST(BrokenFabric, ASplitThatFailsOnOneRankFailsOnAll) {
  auto communicators = Communicator::local(3, cpu_config());
  const auto split = [&] {
    return run_world(communicators, [](Communicator& communicator, int) { communicator.split(0); });
  };
  broken.splits_of = 1;
  for (const Ending& ending : split()) expect_says(ending.what, "the machine splits nothing");
  broken.splits_of = -1;
  expect_all_well(run_world(communicators, [](Communicator& communicator, int rank) {
    const Group group = communicator.split(0);
    EXPECT_EQ(group.state().id(), 2);
    run_on_cpu_rank(group, prepare({.count = 50}, 3), rank);
    run_on_cpu_rank(communicator, prepare({.count = 60}, 3), rank);
  }));
}

TEST(BrokenFabric, IsNamedByVerify) {
  const std::vector<std::string> verify = {"verify", "--device", "cpu", "--ranks", "3", "--most-bytes", "16K"};
  broken.from = 2;
  broken.to = 1;
  broken.pack = 0;
  const cli::Output unconnected = cli::run(verify);
  broken.from = -1;
  EXPECT_EQ(unconnected.code, 1);
  expect_says(unconnected.out, "\nFAIL: 1 of 1 checks\n");
  expect_says(unconnected.out, "data that rank 2 wrote to rank 1 arrived wrong");

  broken.copies_from = 2;
  broken.copies_to = 0;
  const cli::Output wrong = cli::run(verify);
  broken.copies_from = -1;
  EXPECT_EQ(wrong.code, 1);
  expect_says(wrong.out, "\nFAIL: 2 of ");  // two sizes
  expect_says(wrong.out, "ranks 2 → 0, copy, 16 B: expected the reference's bits, got 1 of 4 elements wrong");
  expect_says(wrong.out, "Do not serve from this machine.");
  EXPECT_EQ(cli::run(verify).code, 0);
}

// Every kind of result that verify compares, and what the operator reads of it.
TEST(BrokenFabric, WrongResultsAreNamedByVerify) {
  const std::vector<std::string> verify = {"verify", "--device", "cpu", "--ranks", "3", "--most-bytes", "8K"};
  const std::tuple<std::atomic<int>&, int, const char*> breaks[] = {
      {broken.sums, 2, "ranks 2, all_reduce sum bf16 one-shot"},
      {broken.residuals, 1, "ranks 1, all_reduce_rms_norm bf16 two-shot fp8 fixed"},
      {broken.all_to_alls, 0, "ranks 0, all_to_all"}};
  for (const auto& [which, rank, what] : breaks) {
    which = rank;
    const cli::Output wrong = cli::run(verify);
    which = -1;
    EXPECT_EQ(wrong.code, 1) << what;
    expect_says(wrong.out, what);
  }
  broken.barriers = true;
  const cli::Output early = cli::run(verify);
  broken.barriers = false;
  EXPECT_EQ(early.code, 1);
  expect_says(early.out, "barrier: expected the reference's bits, got ended before rank");
}

// An operation that gives what it has already given has right bits of a wrong call. The protocol's banks take turns, so
// that what is stale comes from the call before, or from the one before that.
TEST(BrokenFabric, DataOfACallBeforeIsFoundByEveryBench) {
  const std::vector<std::vector<std::string>> benches = {
      {"all-reduce", "--bytes", "256,8K", "--algorithm", "one-shot"},
      {"all-reduce", "--bytes", "8K", "--algorithm", "two-shot", "--dtype", "f32", "--data", "random"},
      {"all-reduce", "--bytes", "8M", "--algorithm", "bulk"},  // so long that a sample is a single call
      {"gather", "--hidden", "64", "--tokens", "2", "--what", "all_gather,all_gather_v"},
      {"gather", "--hidden", "64", "--tokens", "2", "--what", "reduce_scatter"},
      {"gather", "--hidden", "64", "--tokens", "2", "--what", "reduce_scatter_v"},
      {"gather", "--hidden", "64", "--tokens", "2", "--what", "all_to_all"},
      {"norm", "--hidden", "64", "--tokens", "1"},
      {"moe", "--model", "gpt-oss-120b", "--tokens", "2"}};
  for (auto bench : benches) {
    bench.insert(bench.begin(), "bench");
    bench.insert(bench.end(), {"--device", "cpu", "--ranks", "3", "--samples", "1"});
    for (const std::size_t calls : {0, 1, 2}) {
      broken.calls_before = calls;
      broken.stale = 1;
      const cli::Output result = cli::run(bench);
      broken.stale = -1;
      EXPECT_EQ(result.code, calls == 0 ? 0 : 1) << testing::PrintToString(bench) << ", " << calls;
      EXPECT_EQ(result.err.find("WRONG: ") != std::string::npos, calls != 0) << result.err;
    }
  }
}

// Wrong results end a search, and whoever goes on with it measures again what was wrong.
TEST(BrokenFabric, TuneTakesNoTimesOfWrongResults) {
  const std::string table = testing::TempDir() + "broken.json", state = table + ".state";
  std::filesystem::remove(table);
  std::filesystem::remove(state);
  const std::vector<std::string> tune = {"tune", "--device",  "cpu", "--ranks",  "2",  "--bytes",
                                         "1K",   "--samples", "1",   "--output", table};
  for (int run = 0; run < 2; ++run) {
    broken.sums = 1;
    const cli::Output wrong = cli::run(tune);
    broken.sums = -1;
    EXPECT_EQ(wrong.code, 1);
    expect_says(wrong.err, "WRONG: one-shot of 1 KB, 0 × 0: ");
    EXPECT_FALSE(std::filesystem::exists(table));
  }
  EXPECT_EQ(cli::run(tune).code, 0);
  EXPECT_TRUE(std::filesystem::exists(table));
}

// Which algorithm serves large messages must not follow from what one rank's GPU takes.
TEST(BrokenFabric, RanksOfUnlikeGpusAgreeOnTheLeastBlocks) {
  for (int few = 0; few < kRanks; ++few) {
    broken.few_blocks = few;
    const auto endings = run_world(kRanks, cpu_config(), [&](Communicator& communicator, int rank) {
      const auto& state = communicator.world().state().communicator();
      EXPECT_EQ(state.max_blocks(), rank == few ? 100 : 133);
      EXPECT_EQ(state.least_max_blocks(), 100);
      static_cast<void>(communicator.split(0));
      EXPECT_EQ(state.max_blocks(), rank == few ? 25 : 33);
      EXPECT_EQ(state.least_max_blocks(), 25);
    });
    broken.few_blocks = -1;
    expect_all_well(endings);
  }
}

}  // namespace
}  // namespace weft::test
