// A second opinion on the memory model. On each litmus test the simulator's exhaustive search and Relacy's random
// search see the same outcomes. They see the weak outcome exactly if the model allows it.
#include "litmus.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/machine.hpp"
#include "telling.hpp"

namespace weft::sim {
namespace {

constexpr std::size_t kBytes = 96;

class LitmusProgram final : public Program {
 public:
  LitmusProgram(const Litmus& test, Machine& machine) : test_(test), machine_(machine) {
    machine.memory().add_area(
        {.begin = 0, .end = kBytes, .owner = 0, .kind = AreaKind::word, .name = [](std::size_t offset) {
           return std::string(1, "xyz"[offset / 32]);
         }});
    loaded_.resize(test.threads.size());
  }
  void run(unsigned thread, unsigned) override {
    loaded_[thread].clear();
    auto* const words = reinterpret_cast<std::uint32_t*>(machine_.memory().data());
    for (const Op& op : test_.threads[thread]) {
      std::uint32_t* const word = words + op.place * 8;
      if (op.code == Op::Code::load) {
        loaded_[thread] += static_cast<char>('0' + machine_.load(word, op.order == Order::acquire));
      } else if (op.code == Op::Code::store) {
        machine_.store(word, op.value, op.order == Order::release);
      } else if (op.code == Op::Code::exchange) {
        loaded_[thread] += static_cast<char>('0' + machine_.exchange(word, op.value));
      } else if (op.code == Op::Code::fence_acq_rel) {
        machine_.fence_acq_rel();
      } else if (op.code == Op::Code::sync) {
        machine_.sync();
      } else {
        machine_.fence_seq_cst();
      }
    }
  }
  std::string check() override {
    std::string outcome;
    for (const std::string& values : loaded_) outcome += values;
    seen_.insert(outcome);
    return {};
  }
  const Outcomes& seen() const { return seen_; }

 private:
  const Litmus& test_;
  Machine& machine_;
  std::vector<std::string> loaded_;
  Outcomes seen_;
};

class LitmusTest : public testing::TestWithParam<Litmus> {};

TEST_P(LitmusTest, SimulatorAndRelacyAgree) {
  const Litmus& test = GetParam();
  const Outcomes ours = outcomes_in_simulator(test, 2'000'000);
  EXPECT_EQ(ours.contains(test.weak), test.allowed) << "the simulator sees " << testing::PrintToString(ours);
  Outcomes theirs = outcomes_in_relacy(test, 20'000);
  EXPECT_TRUE(test.relacy || theirs.insert(test.weak).second) << "Relacy sees it after all";
  EXPECT_EQ(ours, theirs);
  const Outcomes of_orders = outcomes_in_simulator(test, 2'000'000, true);
  EXPECT_FALSE(of_orders.contains(test.weak)) << "an order of steps alone gives it";
  EXPECT_TRUE(std::ranges::includes(ours, of_orders)) << testing::PrintToString(of_orders);
  RecordProperty("litmus", test.name);
  RecordProperty("weak", test.allowed ? "allowed" : "forbidden");
  RecordProperty("outcomes", static_cast<int>(ours.size()));
  RecordProperty("relacy", test.relacy ? "agrees" : "does not see the weak one");
}
INSTANTIATE_TEST_SUITE_P(Sim, LitmusTest, testing::ValuesIn(litmus_tests()),
                         [](const auto& info) { return identifier(info.param.name); });

}  // namespace

Outcomes outcomes_in_simulator(const Litmus& test, std::uint64_t executions, bool newest) {
  const auto threads = static_cast<unsigned>(test.threads.size());
  Machine::Args args{.bytes = kBytes, .rank_of = std::vector<unsigned>(threads), .streams = {}};
  const unsigned alone = threads - test.block;
  for (unsigned thread = 0; thread < alone; ++thread) args.streams.push_back({{bit(thread)}});
  args.streams.push_back({{bit(threads) - bit(alone)}});
  Machine machine(args);
  LitmusProgram program(test, machine);
  Scheduler scheduler = Scheduler::exhaustive(64);
  if (newest) scheduler.keep_newest();
  for (std::uint64_t i = 0; i < executions && scheduler.begin(); ++i) machine.run(program, scheduler);
  return program.seen();
}

}  // namespace weft::sim
