#include "sim/explore.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weft/error.hpp"

namespace weft::sim {
namespace {

constexpr std::uint64_t kTold = 1000;  // executions between two words of progress

Scheduler make_scheduler(const ExploreArgs& args, std::uint64_t seed) {
  switch (args.strategy) {
    case Strategy::pct:
      return Scheduler::pct(seed, args.bound);
    case Strategy::exhaustive:
      return Scheduler::exhaustive(args.bound);
    default:
      return Scheduler::random(seed);
  }
}

std::optional<Stop> stop_at(const Faults& faults, std::uint64_t step) {
  if (step == 0) return {};
  return Stop{.stream = static_cast<unsigned>(faults.stopping_rank),  // set-ups with faults have a stream per rank
              .step = step,
              .until = faults.until,
              .dead_rank = faults.death_is_told ? faults.stopping_rank : -1};
}

// Whether a schedule fails. A rank that stops may do so at another step than `stop`, which then becomes that step.
bool fails(AllReduceProgram& program, const Schedule& schedule, FailureKind kind, std::uint64_t& stop) {
  const Faults& faults = program.setup().faults;
  const auto fails_at = [&](std::uint64_t step) {
    Scheduler scheduler = Scheduler::replay(schedule);
    scheduler.begin();
    return program.run(scheduler, stop_at(faults, step)).kind == kind;
  };
  if (fails_at(stop)) return true;
  for (std::uint64_t step = 1; stop != 0; ++step) {
    if (fails_at(step)) return stop = step, true;
    if (program.machine().steps_of(static_cast<unsigned>(faults.stopping_rank)) < step) break;
  }
  return false;
}

// Leaves out choices that the failure does not need: halves first, then ever smaller parts (Zeller's ddmin).
Schedule shrink(AllReduceProgram& program, Schedule schedule, FailureKind kind, std::uint64_t& stop) {
  if (!fails(program, schedule, kind, stop)) return schedule;
  for (std::size_t part = std::max<std::size_t>(schedule.size(), 1), before = 0;;
       part = std::max<std::size_t>(part / 2, 1)) {
    before = schedule.size();
    for (std::size_t end = schedule.size(); end > 0; end = end > part ? end - part : 0) {
      const std::size_t begin = end > part ? end - part : 0;
      Schedule candidate(schedule.begin(), schedule.begin() + static_cast<std::ptrdiff_t>(begin));
      candidate.insert(candidate.end(), schedule.begin() + static_cast<std::ptrdiff_t>(std::min(end, schedule.size())),
                       schedule.end());
      if (fails(program, candidate, kind, stop)) schedule = std::move(candidate);
    }
    if (part == 1 && schedule.size() == before) return schedule;
  }
}

}  // namespace

std::string_view name(Strategy strategy) {
  constexpr std::string_view names[] = {"random", "pct", "exhaustive", "replay"};
  return names[static_cast<int>(strategy)];
}

Report replay(AllReduceProgram& program, const Schedule& schedule, std::uint64_t stop) {
  const Faults& faults = program.setup().faults;
  if (stop != 0 && faults.stopping_rank < 0) {
    throw Error(Errc::invalid_argument, fmt::format("no rank stops in set-up \"{}\"", program.setup().name));
  }
  Report report;
  report.stop = stop;
  report.listed = is_listed(program.setup());
  Scheduler scheduler = Scheduler::replay(schedule);
  scheduler.begin();
  program.machine().trace_into(&report.trace, program.world().thread_names());
  report.failure = program.run(scheduler, stop_at(faults, stop));
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
  const std::string schedule = to_string(report.schedule);
  if (!report.listed) {
    return text + fmt::format(
                      "again, as weft simulate does not know this set-up, in the test that has it, with\n"
                      "  replay(program, parse_schedule(\"{}\"), {})\n",
                      schedule, report.stop);
  }
  const std::string stop = report.stop == 0 ? "" : fmt::format(" --stop {}", report.stop);
  return text + fmt::format("again with\n  weft simulate --protocol {}{} --replay '{}'\n", setup, stop, schedule);
}

Report explore(AllReduceProgram& program, const ExploreArgs& args) {
  const Faults& faults = program.setup().faults;
  const bool stops = faults.stopping_rank >= 0;
  Report report;
  report.complete = args.strategy == Strategy::exhaustive;
  for (std::uint64_t step = stops ? 1 : 0;; ++step) {
    Scheduler scheduler = make_scheduler(args, args.seed + step);
    if (args.newest) scheduler.keep_newest();
    const std::optional<Stop> stop = stop_at(faults, step);
    bool reached = false;  // by the rank that stops there
    for (std::uint64_t left = args.executions; scheduler.begin(); --left) {
      if (left == 0) {
        report.complete = false;
        break;
      }
      if (args.progress && report.executions % kTold == 0) args.progress(report.executions);
      const Failure failure = program.run(scheduler, stop);
      ++report.executions;
      report.steps += program.machine().steps();
      reached = reached || (stop && program.machine().steps_of(stop->stream) >= step);
      if (!failure) continue;
      report.complete = false;
      report.stop = step;
      // A failure of the simulator itself says nothing about the protocol: results behind it do not count.
      if (args.counts && failure.kind != FailureKind::internal) {
        if (report.failures++ != 0) continue;
        report.first = report.executions;
        report.failure = failure;
        continue;
      }
      const Schedule least = shrink(program, scheduler.taken(), failure.kind, report.stop);
      const Report small = replay(program, least, report.stop);
      report.failure = small.failure ? small.failure : failure;
      report.schedule = small.schedule;
      report.trace = small.trace;
      report.listed = small.listed;
      return report;
    }
    if (!reached) return report;
  }
}

}  // namespace weft::sim
