// Runs a fault set-up: where a rank stops, at every single one of its steps.
#pragma once

#include <string>

#include "fault_setups.hpp"
#include "sim/explore.hpp"

namespace weft::sim {

struct Injection {
  std::uint64_t executions = 0, steps = 0;
  std::string wrong;  // empty: all ended as they must
  std::vector<std::string> trace;
};

// `schedules` random schedules for each place; `until`: when a stopped rank goes on (0: never).
inline Injection inject(AllReduceProgram& program, unsigned schedules, std::uint64_t seed, std::uint64_t until = 0) {
  const Setup& setup = program.setup();
  Injection result;
  const auto once = [&](Scheduler& scheduler, const std::optional<Stop>& stop) {
    scheduler.begin();
    const Failure failure = program.run(scheduler, stop);
    ++result.executions;
    result.steps += program.machine().steps();
    if (failure && result.wrong.empty()) {
      result.wrong = std::string(name(failure.kind)) + ": " + failure.what;
      if (stop) result.wrong += " (stopped at step " + std::to_string(stop->step) + ")";
      Scheduler again = Scheduler::replay(scheduler.taken());
      again.begin();
      program.machine().trace_into(&result.trace, program.world().thread_names());
      program.run(again, stop);
      program.machine().trace_into(nullptr, {});
    }
  };
  for (unsigned i = 0; i < schedules && result.wrong.empty(); ++i) {
    Scheduler scheduler = Scheduler::random(seed + i);
    if (setup.faults.stopping_rank < 0) {
      once(scheduler, {});
      continue;
    }
    const auto stream = static_cast<unsigned>(setup.faults.stopping_rank);
    for (std::uint64_t step = 1; result.wrong.empty(); ++step) {
      const int dead = setup.name == "dies" ? setup.faults.stopping_rank : -1;
      once(scheduler, Stop{.stream = stream, .step = step, .until = until, .dead_rank = dead});
      if (program.machine().steps_of(stream) < step) break;  // it had ended before
    }
  }
  return result;
}

}  // namespace weft::sim
