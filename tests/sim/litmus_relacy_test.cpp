// Relacy's side of litmus_test.cpp.
#include "litmus.hpp"
// Relacy must not come above.
#include "relacy.hpp"

namespace weft::sim {
namespace {

const Litmus* current = nullptr;
// Indexed by a decimal number with a digit for each load. No containers: Relacy has an allocator of its own.
bool seen[10'000];

template <unsigned threads>
struct Suite : rl::test_suite<Suite<threads>, threads> {
  rl::atomic<unsigned> place[3], arrived;
  unsigned loaded[threads][3], loads[threads];

  void before() {
    for (auto& word : place) word.store(0, rl::mo_relaxed, RL_INFO);
    arrived.store(0, rl::mo_relaxed, RL_INFO);
    for (unsigned& count : loads) count = 0;
  }
  void thread(unsigned index) {
    for (const Op& op : current->threads[index]) {
      switch (op.code) {
        case Op::Code::load:
          loaded[index][loads[index]++] =
              place[op.place].load(op.order == Order::acquire ? rl::mo_acquire : rl::mo_relaxed, RL_INFO);
          break;
        case Op::Code::store:
          place[op.place].store(op.value, op.order == Order::release ? rl::mo_release : rl::mo_relaxed, RL_INFO);
          break;
        case Op::Code::exchange:
          loaded[index][loads[index]++] = place[op.place].exchange(op.value, rl::mo_relaxed, RL_INFO);
          break;
        case Op::Code::fence_acq_rel:
          rl::atomic_thread_fence(rl::mo_acq_rel, RL_INFO);
          break;
        case Op::Code::fence_seq_cst:
          rl::atomic_thread_fence(rl::mo_seq_cst, RL_INFO);
          break;
        case Op::Code::sync:  // behind it all threads know everything before it
          arrived.fetch_add(1, rl::mo_acq_rel, RL_INFO);
          while (arrived.load(rl::mo_acquire, RL_INFO) < current->block) rl::yield(1, RL_INFO);
          break;
      }
    }
  }
  void after() {
    unsigned outcome = 0;
    for (unsigned i = 0; i < threads; ++i) {
      for (unsigned k = 0; k < loads[i]; ++k) outcome = outcome * 10 + loaded[i][k];
    }
    seen[outcome] = true;
  }
};

}  // namespace

Outcomes outcomes_in_relacy(const Litmus& test, std::uint64_t executions) {
  current = &test;
  std::fill(std::begin(seen), std::end(seen), false);
  if (test.threads.size() == 2) run_relacy<Suite<2>>(executions);
  if (test.threads.size() == 3) run_relacy<Suite<3>>(executions);
  if (test.threads.size() == 4) run_relacy<Suite<4>>(executions);
  Outcomes outcomes;
  for (std::size_t i = 0; i < std::size(seen); ++i) {
    std::string digits = std::to_string(i);
    digits.insert(0, test.weak.size() - std::min(test.weak.size(), digits.size()), '0');
    if (seen[i]) outcomes.insert(digits);
  }
  return outcomes;
}

}  // namespace weft::sim
