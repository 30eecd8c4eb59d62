#include "sim/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/context/fixedsize_stack.hpp>
#include <exception>

#include "kernel/blocks.hpp"
#include "team/team.hpp"

namespace weft::sim {
namespace {

constexpr unsigned kBlocksOfThread = detail::kThreadBlocks;
constexpr std::uint32_t kAnyCount = 0xa5a5;  // in counters that nobody has cleared

}  // namespace

std::string_view name(FailureKind kind) {
  constexpr std::string_view names[] = {"none",    "wrong result", "deadlock",      "livelock",
                                        "overrun", "not at rest",  "internal error"};
  return names[static_cast<int>(kind)];
}

Machine::Machine(const Args& args)
    : memory_(args.bytes, args.rank_of, args.copies),
      step_ns_(args.step_ns),
      idle_ns_(args.idle_ns),
      step_limit_(args.step_limit),
      idle_limit_(args.idle_limit),
      lanes_(args.lanes),
      threads_(static_cast<unsigned>(args.rank_of.size())),
      stream_of_(threads_),
      rank_of_(args.rank_of),
      block_of_(threads_),
      lane_of_(threads_),
      blocks_(threads_),
      warps_(threads_),
      shared_(threads_ * kBlocksOfThread * detail::kSharedWords),
      copies_(args.copies ? std::make_unique<Copies>(*this) : nullptr),
      polled_(threads_),
      polled_before_(threads_),
      waiters_(Memory::kMaxLocations),
      fibers_(kMaxThreads + 1) {
  if (threads_ > kMaxThreads) throw std::invalid_argument("simulator: more than 64 threads");
  if (lanes_ > kMostLanes) throw std::invalid_argument("simulator: more than 16 lanes");
  for (const auto& launches : args.streams) {
    for (const Launch& launch : launches) {
      for (const ThreadMask block : launch) {
        for (unsigned thread = 0; thread < threads_; ++thread) {
          if ((block & bit(thread)) != 0) stream_of_[thread] = static_cast<unsigned>(streams_.size());
        }
      }
    }
    Stream stream;
    stream.launches = launches;
    streams_.push_back(std::move(stream));
  }
  steps_of_.resize(streams_.size());
  for (auto& polled : polled_) polled.reserve(256);
  constexpr std::size_t kStackBytes = std::size_t{64} << 10;
  for (unsigned thread = 0; thread < threads_; ++thread) {
    fibers_[thread] = boost::context::fiber(std::allocator_arg, boost::context::fixedsize_stack(kStackBytes),
                                            [this, thread](boost::context::fiber&& from) {
                                              fibers_[previous_] = std::move(from);
                                              fiber_body(thread);
                                              return std::move(fibers_[kMain]);
                                            });
  }
}

Machine::~Machine() = default;

Copies& Machine::copies() {
  if (!copies_) throw std::logic_error("simulator: copies in bulk in a set-up without copies");
  return *copies_;
}

void Machine::trace_into(std::vector<std::string>* lines, std::vector<std::string> names) {
  trace_ = lines;
  names_ = std::move(names);
}

Failure Machine::run(Program& program, Scheduler& scheduler, const std::optional<Stop>& stop) {
  program_ = &program;
  scheduler_ = &scheduler;
  stop_ = stop;
  failure_ = {};
  steps_ = idle_time_ = 0;
  idle_count_ = 0;
  dead_rank_ = -1;
  sent_before_stop_ = idled_before_stop_ = 0;
  ready_ = waiting_ = stopped_ = 0;
  std::fill_n(waiters_.begin(), memory_.locations(), 0);
  memory_.reset();
  running_streams_ = 0;
  std::ranges::fill(steps_of_, 0);
  for (Stream& stream : streams_) {
    stream.launch = 0;
    stream.stopped = false;
    stream.last = 0;
    if (stream.launches.empty()) continue;
    ++running_streams_;
    start_launch(stream, 0);
  }
  // The main program is no thread: the first choice is thread 0's.
  current_ = 0;
  const unsigned first = scheduler_->next_thread(0, enabled());
  current_ = kMain;
  if (running_streams_ != 0) switch_to(first);

  unwinding_ = true;
  while (inside_ != 0) switch_to(static_cast<unsigned>(__builtin_ctzll(inside_)));
  unwinding_ = false;
  if (!failure_) {
    const std::string wrong = program.check();
    if (!wrong.empty()) failure_ = {FailureKind::wrong_result, wrong};
  }
  return failure_;
}

void Machine::fiber_body(unsigned thread) {
  for (;;) {
    try {
      run_launches(thread);
    } catch (const Abandoned&) {
    } catch (const std::exception& error) {
      if (!failure_) failure_ = {FailureKind::internal, error.what()};
    }
    inside_ &= ~bit(thread);
    resume(kMain);
  }
}

// Between launches, and between executions, a fiber rests in go_on().
void Machine::run_launches(unsigned thread) {
  for (;;) {
    polled_[thread].clear();
    polled_before_[thread].clear();
    inside_ |= bit(thread);
    program_->run(thread, streams_[stream_of_[thread]].launch);
    inside_ &= ~bit(thread);
    leave_launch(thread);
    go_on();
  }
}

void Machine::start_launch(Stream& stream, ThreadMask ended) {
  ThreadMask started = 0;
  for (const ThreadMask block : stream.launches[stream.launch]) {
    const auto first = static_cast<unsigned>(__builtin_ctzll(block));
    Block& begun = blocks_[first];
    begun.live = block;
    begun.arrived = 0;
    begun.good = begun.verdict = true;
    begun.began = begun.synced = ++barriers_;
    begun.tally.fill(kAnyCount);
    if (begun.scratched) begun.scratch = {};
    begun.scratched = false;
    for (ThreadMask rest = block; rest != 0; rest &= rest - 1) {
      const auto thread = static_cast<unsigned>(__builtin_ctzll(rest));
      block_of_[thread] = first;
      lane_of_[thread] = (thread - first) % lanes_;
    }
    start_warps(block);
    if (copies_) copies_->start_block(block);
    started |= block;
  }
  stream.live = stream.last = started;
  memory_.boundary(ended, started);
  ready_ |= started;
}

void Machine::leave_launch(unsigned thread) {
  ready_ &= ~bit(thread);
  if (copies_) copies_->leave_launch(thread);
  leave_warp(thread);
  Block& block = blocks_[block_of_[thread]];
  block.live &= ~bit(thread);
  if (block.live != 0 && block.arrived == block.live) release_barrier(block);
  Stream& stream = streams_[stream_of_[thread]];
  stream.live &= ~bit(thread);
  if (stream.live != 0) return;
  if (++stream.launch < stream.launches.size()) {
    start_launch(stream, stream.last);
  } else {
    --running_streams_;
  }
}

void Machine::release_barrier(Block& block) {
  memory_.join(block.arrived);
  if (copies_) copies_->synced(block.arrived);
  block.synced = ++barriers_;
  ready_ |= block.arrived;
  block.arrived = 0;
  block.verdict = block.good;
  block.good = true;
}

bool Machine::all(bool good) {
  point();
  if (trace_ != nullptr) trace_->push_back(names_[current_] + " sync");
  Block& block = blocks_[block_of_[current_]];
  block.arrived |= bit(current_);
  block.good &= good;
  if (block.arrived == block.live) {
    release_barrier(block);
  } else {
    ready_ &= ~bit(current_);
    go_on();
  }
  return block.verdict;
}

// A thread that is a whole rank makes the part of each of its blocks.
Machine::SharedWord& Machine::shared_word(unsigned block, unsigned i) {
  return shared_[(block_of_[current_] * kBlocksOfThread + block % kBlocksOfThread) * detail::kSharedWords + i];
}

void Machine::share(unsigned block, unsigned i, std::uint64_t value) {
  SharedWord& word = shared_word(block, i);
  const std::uint64_t now = blocks_[block_of_[current_]].synced;
  if (word.loaded == now && word.reader != current_) unshared(i, "is stored without a barrier behind its reader");
  if (word.stored == now && word.writer != current_) unshared(i, "is stored by two threads without a barrier between");
  word = {.value = value, .stored = now, .loaded = word.loaded, .writer = current_, .reader = word.reader};
}

std::uint64_t Machine::shared(unsigned block, unsigned i) {
  SharedWord& word = shared_word(block, i);
  const Block& own = blocks_[block_of_[current_]];
  if (word.stored < own.began) unshared(i, "is read before anybody has stored it");
  if (word.stored == own.synced && word.writer != current_) unshared(i, "is read without a barrier behind its writer");
  word.reader = word.loaded == own.synced && word.reader != current_ ? kMain : current_;
  word.loaded = own.synced;
  return word.value;
}

void Machine::unshared(unsigned i, const char* rule) {
  fail(FailureKind::broken_rule, fmt::format("thread {}: word {} that its block shares {}", current_, i, rule));
}

int Machine::dead_peer() {
  if (dead_rank_ < 0) return -1;
  memory_.join_rank(current_, static_cast<unsigned>(dead_rank_));
  if (trace_ != nullptr)
    trace_->push_back(fmt::format("{} is told that rank {} is gone", names_[current_], dead_rank_));
  return dead_rank_;
}

// No thread can go on, so time does. Returns false if that does not help any thread either.
bool Machine::wake_somebody() {
  if (idle_ns_ == 0 || idle_count_ == idle_limit_) return false;
  ++idle_count_;
  idle_time_ += idle_ns_;
  if (stop_ && stop_->until != 0 && now() >= stop_->until) {
    if (stopped_ != 0 && trace_ != nullptr) trace_->push_back("the stopped stream goes on");
    stopped_ = 0;
    streams_[stop_->stream].stopped = false;
    stop_.reset();
  }
  ready_ |= waiting_;
  waiting_ = 0;
  return true;
}

void Machine::go_on() {
  while (enabled() == 0) {
    bool all_ended = true;
    for (unsigned i = 0; i < streams_.size(); ++i) {
      const bool over = streams_[i].launch == streams_[i].launches.size();
      const bool stopped_for_ever = streams_[i].stopped && stop_ && stop_->until == 0;
      all_ended = all_ended && (over || stopped_for_ever);
    }
    if (all_ended) return switch_to(kMain);
    if (!wake_somebody()) {
      std::string missing = missing_lanes();
      if (missing.empty() && copies_) missing = copies_->missing();
      fail(FailureKind::deadlock,
           "nobody can go on: " + (missing.empty() ? "every thread waits for what nobody will send" : missing));
    }
  }
  const unsigned next = scheduler_->next_thread(current_, enabled());
  if (next != current_) switch_to(next);
}

void Machine::switch_to(unsigned next) {
  resume(next);
  if (unwinding_ && current_ != kMain) throw Abandoned{};
}

void Machine::resume(unsigned next) {
  const unsigned self = current_;
  previous_ = self;
  current_ = next;
  auto from = std::move(fibers_[next]).resume();
  fibers_[previous_] = std::move(from);
  current_ = self;
}

void Machine::fail(FailureKind kind, std::string what) {
  if (!failure_) failure_ = {kind, std::move(what)};
  throw Abandoned{};
}

}  // namespace weft::sim
