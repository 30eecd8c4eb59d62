#include "sim/explore.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::sim {
namespace {

Scheduler make_scheduler(const ExploreArgs& args) {
  switch (args.strategy) {
    case Strategy::pct:
      return Scheduler::pct(args.seed, args.bound);
    case Strategy::exhaustive:
      return Scheduler::exhaustive(args.bound);
    default:
      return Scheduler::random(args.seed);
  }
}

// Leaves out whatever the failure does not need: halves first, then ever smaller parts (Zeller's ddmin).
Schedule shrink(AllReduceProgram& program, Schedule schedule, FailureKind kind) {
  const auto fails = [&](const Schedule& candidate) {
    Scheduler scheduler = Scheduler::replay(candidate);
    scheduler.begin();
    return program.run(scheduler).kind == kind;
  };
  if (!fails(schedule)) return schedule;
  for (std::size_t part = std::max<std::size_t>(schedule.size() / 2, 1);; part /= 2) {
    for (std::size_t end = schedule.size(); end > 0; end = end > part ? end - part : 0) {
      const std::size_t begin = end > part ? end - part : 0;
      Schedule candidate(schedule.begin(), schedule.begin() + static_cast<std::ptrdiff_t>(begin));
      candidate.insert(candidate.end(), schedule.begin() + static_cast<std::ptrdiff_t>(std::min(end, schedule.size())),
                       schedule.end());
      if (fails(candidate)) schedule = std::move(candidate);
    }
    if (part <= 1) return schedule;
  }
}

}  // namespace

std::string_view name(Strategy strategy) {
  constexpr std::string_view names[] = {"random", "pct", "exhaustive", "replay"};
  return names[static_cast<int>(strategy)];
}

Report replay(AllReduceProgram& program, const Schedule& schedule) {
  Report report;
  Scheduler scheduler = Scheduler::replay(schedule);
  scheduler.begin();
  program.machine().trace_into(&report.trace, program.world().thread_names());
  report.failure = program.run(scheduler);
  program.machine().trace_into(nullptr, {});
  report.executions = 1;
  report.steps = program.machine().steps();
  report.schedule = scheduler.taken();
  for (const Deviation& wanted : schedule) {
    if (std::ranges::find(report.schedule, wanted) == report.schedule.end()) report.unused.push_back(wanted);
  }
  return report;
}

std::string story(const std::string& setup, const ExploreArgs& args, const Report& report) {
  std::string text;
  for (const std::string& line : report.trace) text += line + "\n";
  text += fmt::format("{}: {}: {}\n", setup, name(report.failure.kind), report.failure.what);
  if (args.strategy == Strategy::exhaustive) {
    text += fmt::format("found in execution {} of --scheduler exhaustive --bound {}\n", report.executions, args.bound);
  } else if (args.strategy != Strategy::replay) {
    text += fmt::format("found in execution {} of --scheduler {} --seed {}\n", report.executions, name(args.strategy),
                        args.seed);
  }
  return text +
         fmt::format("again with\n  weft simulate --protocol {} --replay '{}'\n", setup, to_string(report.schedule));
}

Report explore(AllReduceProgram& program, const ExploreArgs& args) {
  Report report;
  Scheduler scheduler = make_scheduler(args);
  while (report.executions < args.executions) {
    if (!scheduler.begin()) {
      report.complete = true;
      break;
    }
    const Failure failure = program.run(scheduler);
    ++report.executions;
    report.steps += program.machine().steps();
    if (!failure) continue;
    const Report small = replay(program, shrink(program, scheduler.taken(), failure.kind));
    report.failure = small.failure ? small.failure : failure;
    report.schedule = small.schedule;
    report.trace = small.trace;
    return report;
  }
  return report;
}

}  // namespace weft::sim
