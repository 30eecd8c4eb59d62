// Steps of the machine's threads: their accesses to memory, and waits. All of a step stands in one file, which is
// compiled for speed (cmake/simulator.cmake).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sim/machine.hpp"

namespace weft::sim {

inline void Machine::count_step() {
  ++steps_;
  const unsigned stream = stream_of_[current_];
  const std::uint64_t own = ++steps_of_[stream];
  if (stop_ && own == stop_->step && stream == stop_->stream && !streams_[stream].stopped) {
    stop_stream();
  } else if (steps_ > step_limit_) {
    fail(FailureKind::livelock, "no end after " + std::to_string(steps_) + " steps");
  }
}

void Machine::stop_stream() {
  streams_[stop_->stream].stopped = true;
  dead_rank_ = stop_->dead_rank;
  sent_before_stop_ = memory_.sent(rank_of_[current_]);
  idled_before_stop_ = idle_time_;
  for (unsigned thread = 0; thread < threads_; ++thread) {
    if (stream_of_[thread] == stop_->stream) stopped_ |= bit(thread);
  }
  if (trace_ != nullptr) trace_->push_back(names_[current_] + " stops, and all of its stream");
  go_on();
}

// Before every step the scheduler may let another thread go first.
void Machine::point() {
  count_step();
  const unsigned next = scheduler_->next_thread(current_, enabled());
  if (next != current_) switch_to(next);
}

const Pack& Machine::read_as(unsigned viewer, Memory::Location at, const char* what, bool acquire) {
  const unsigned choices = memory_.choices(viewer, at);
  const unsigned age = scheduler_->choose(Kind::age, current_, choices);
  const Pack& value = memory_.load(viewer, at, age, acquire);
  if (trace_ != nullptr) note(what, at, value, age, choices);
  return value;
}

inline const Pack& Machine::read(Memory::Location at, const char* what, bool acquire) {
  polled_[current_].push_back(at);
  return read_as(current_, at, what, acquire);
}

void Machine::write_as(unsigned viewer, Memory::Location at, const Pack& value, const char* what, bool release) {
  const unsigned choices = memory_.choices(viewer, at);
  const unsigned age = scheduler_->choose(Kind::age, current_, choices);
  if (trace_ != nullptr) note(what, at, value, age, choices);
  if (const char* rule = memory_.store(viewer, at, value, age, release)) broken(at, rule);
  wake_waiters(at);
}

inline void Machine::write(Memory::Location at, const Pack& value, bool release) {
  write_as(current_, at, value, release ? "store.release" : "store", release);
}

inline void Machine::wake_waiters(Memory::Location at) {
  if (waiters_[at] == 0) return;
  ready_ |= waiters_[at] & waiting_;
  waiting_ &= ~waiters_[at];
  waiters_[at] = 0;
}

template <int unit>
Pack Machine::load_pack(const Pack* from) {
  point();
  Pack result;
  for (int i = 0; i < 16; i += unit) {
    const Pack& value = read(memory_.locate(reinterpret_cast<const std::byte*>(from) + i, unit), "load");
    std::memcpy(reinterpret_cast<std::byte*>(&result) + i, &value, unit);
  }
  return result;
}

template <int unit>
void Machine::store_pack(Pack* to, const Pack& value) {
  for (int i = 0; i < 16; i += unit) {
    if (i == 0 || stop_) point();  // a killed rank may leave half a pack
    Pack part{};
    std::memcpy(&part, reinterpret_cast<const std::byte*>(&value) + i, unit);
    write(memory_.locate(reinterpret_cast<std::byte*>(to) + i, unit), part, false);
  }
}

template Pack Machine::load_pack<4>(const Pack*);
template Pack Machine::load_pack<8>(const Pack*);
template Pack Machine::load_pack<16>(const Pack*);
template void Machine::store_pack<4>(Pack*, const Pack&);
template void Machine::store_pack<8>(Pack*, const Pack&);
template void Machine::store_pack<16>(Pack*, const Pack&);

template <class Word>
Word Machine::load(const Word* from, bool acquire) {
  if (memory_.ignored(from)) return Word{};
  point();
  const Pack& value = read(memory_.locate(from, sizeof(Word)), acquire ? "load.acquire" : "load", acquire);
  Word word;
  std::memcpy(&word, &value, sizeof(word));
  return word;
}

template <class Word>
void Machine::store(Word* to, Word value, bool release) {
  if (memory_.ignored(to)) return memory_.keep(to, &value, sizeof(value));
  point();
  const Memory::Location at = memory_.locate(to, sizeof(Word));
  Pack pack{};
  std::memcpy(&pack, &value, sizeof(value));
  write(at, pack, release);
}

template std::uint32_t Machine::load(const std::uint32_t*, bool);
template std::uint64_t Machine::load(const std::uint64_t*, bool);
template void Machine::store(std::uint32_t*, std::uint32_t, bool);
template void Machine::store(std::uint64_t*, std::uint64_t, bool);

void Machine::relax() {
  count_step();
  auto &polled = polled_[current_], &polled_before = polled_before_[current_];
  polled_before.insert(polled_before.end(), polled.begin(), polled.end());
  const bool called = take_call();
  const bool newer =
      called || std::ranges::any_of(polled_before, [&](Memory::Location at) { return memory_.stale(current_, at); });
  if (!newer) {
    for (const Memory::Location at : polled_before) waiters_[at] |= bit(current_);
    waiting_ |= bit(current_);
    ready_ &= ~bit(current_);
    polled.clear();
    polled_before.clear();
    return go_on();
  }
  std::swap(polled, polled_before);
  polled.clear();
  const unsigned next = scheduler_->next_thread(current_, enabled());
  if (next != current_) switch_to(next);
}

std::uint32_t Machine::exchange(std::uint32_t* at, std::uint32_t value) {
  point();
  const Memory::Location location = memory_.locate(at, sizeof(value));
  const Pack old = memory_.exchange(current_, location, Pack{{value, 0, 0, 0}});
  wake_waiters(location);
  if (trace_ != nullptr) note("exchange", location, Pack{{value, 0, 0, 0}}, 0, 1);
  return old.word[0];
}

void Machine::fence_acq_rel() {
  point();
  memory_.fence(current_, true, true);
  if (trace_ != nullptr) trace_->push_back(names_[current_] + " fence.acq_rel");
}

void Machine::fence_seq_cst() {
  point();
  memory_.fence_seq_cst(current_);
  if (trace_ != nullptr) trace_->push_back(names_[current_] + " fence.sc");
}

void Machine::broken(Memory::Location at, const char* rule) {
  fail(FailureKind::broken_rule, fmt::format("thread {}: store to {} {}", current_, memory_.name(at), rule));
}

void Machine::note(const char* what, Memory::Location at, const Pack& value, unsigned age, unsigned choices) {
  std::string line = fmt::format("{:>6} {:<10} {:<13} {}", steps_, names_[current_], what, memory_.name(at));
  const unsigned words = memory_.width(at) / 4;
  line += " =";
  for (unsigned i = words; i > 0; --i) fmt::format_to(std::back_inserter(line), " {:08x}", value.word[i - 1]);
  if (age != 0) fmt::format_to(std::back_inserter(line), "  [{} of {} newest]", age, choices - 1);
  trace_->push_back(std::move(line));
}

}  // namespace weft::sim
