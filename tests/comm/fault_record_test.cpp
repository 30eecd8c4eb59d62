// Two groups of a rank may fail at once, and only one of them writes the fault record. A call of the other group must
// not return before the reason is known, and must not return as a success.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/state.hpp"
#include "support/cases.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

detail::Control control_of(const Communicator& communicator) {
  return communicator.world().state().communicator().fabric().control();
}

// Takes the claim like a thread that found a fault and is then delayed.
void claim(const Communicator& communicator) {
  std::atomic_ref(control_of(communicator).claim[detail::kEnding]).exchange(1, std::memory_order_acq_rel);
}

// Completes the record of the delayed thread: rank 1 has aborted.
void complete(const Communicator& communicator) {
  detail::FaultRecord& record = control_of(communicator).record[detail::kEnding];
  const auto put = [](std::uint32_t& word, std::uint32_t value) {
    std::atomic_ref(word).store(value, std::memory_order_relaxed);
  };
  put(record.code, static_cast<std::uint32_t>(Errc::aborted));
  put(record.peer, 1);
  std::atomic_ref(record.complete).store(1, std::memory_order_release);
}

void call_that_nobody_joins(const Communicator& communicator) {
  std::vector<float> data(8, 1.0f);
  all_reduce(communicator, {.input = data.data(), .output = data.data(), .count = 8, .type = DataType::f32});
}

TEST(FaultRecord, ACallThatFailsWaitsForTheRecordOfAnotherThread) {
  const std::vector<Communicator> communicators = Communicator::local(2, cpu_config(short_deadline));
  const Communicator& mine = communicators[0];
  claim(mine);
  std::thread other([&] {
    std::this_thread::sleep_for(short_deadline + 200ms);
    complete(mine);
  });
  expect_code([&] { call_that_nobody_joins(mine); }, Errc::aborted, "aborted on rank 0");
  other.join();
  expect_code([&] { call_that_nobody_joins(mine); }, Errc::aborted, "aborted on rank 0");
}

TEST(FaultRecord, ACallThatFailsWithoutARecordSaysSo) {
  const std::vector<Communicator> communicators = Communicator::local(2, cpu_config(short_deadline));
  claim(communicators[0]);
  for (int again = 0; again < 2; ++again) {
    expect_code([&] { call_that_nobody_joins(communicators[0]); }, Errc::system,
                "the thread that noticed why has not recorded it within 1000 ms");
  }
}

}  // namespace
}  // namespace weft::test
