#include "sim/timed_machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/context/fixedsize_stack.hpp>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace weft::sim {

TimedMachine::TimedMachine(unsigned ranks, std::size_t window_bytes, unsigned streams_of_rank)
    : memory_(ranks, window_bytes),
      streams_of_rank_(streams_of_rank),
      streams_(std::size_t{ranks} * streams_of_rank),
      sleepers_(memory_.places()),
      leaving_(ranks),
      arriving_(ranks) {}

void TimedMachine::launch(unsigned number, TimedLaunch launch) {
  const std::size_t at = launches_.size();
  Stream& last = stream(launch.rank, number);
  launches_.push_back({.launch = std::move(launch), .behind = {}});
  for (const std::size_t before : last) launches_[before].behind.push_back(at);
  launches_[at].missing = static_cast<unsigned>(last.size());
  last = {at};
}

void TimedMachine::order(unsigned rank, unsigned front, unsigned behind) {
  const Stream before = stream(rank, front);
  Stream& last = stream(rank, behind);
  last.insert(last.end(), before.begin(), before.end());
}

void TimedMachine::order_all() {
  Stream all(launches_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::ranges::fill(streams_, all);
}

double TimedMachine::end(std::size_t launches) const {
  double end = 0;
  for (std::size_t i = launches; i < launches_.size(); ++i) end = std::max(end, launches_[i].end);
  return end;
}

void TimedMachine::run() {
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    if (launches_[i].missing == 0) start(i);
  }
  while (!ready_.empty() || memory_.next_landing() != TimedMemory::kNever) {
    if (ready_.empty() || memory_.next_landing() <= ready_.top().clock) {
      land();
      continue;
    }
    current_ = ready_.top().thread;
    ready_.pop();
    current_->fiber = std::move(current_->fiber).resume();
    if (!current_->fiber) end_block(*current_);
  }
  for (const Started& started : launches_) {
    if (started.end < 0) {
      throw std::logic_error(fmt::format("{} of rank {} does not end", started.launch.what, started.launch.rank));
    }
  }
}

void TimedMachine::start(std::size_t number) {
  Started& started = launches_[number];
  started.begin = started.ready + kCosts.launch;
  started.running = started.launch.blocks;
  for (unsigned block = 0; block < started.launch.blocks; ++block) {
    const double others = (started.launch.processors - 1) / std::max(1u, started.launch.blocks - 1);
    const double own = started.launch.blocks == 1 ? started.launch.processors : block == 0 ? 1 : others;
    threads_.push_back(std::make_unique<Thread>(
        Thread{.fiber = {}, .launch = number, .block = block, .clock = started.begin, .processors = own}));
    constexpr std::size_t kStackBytes = std::size_t{64} << 10;
    threads_.back()->fiber = boost::context::fiber(std::allocator_arg, boost::context::fixedsize_stack(kStackBytes),
                                                   [this, number, block](boost::context::fiber&& from) {
                                                     main_ = std::move(from);
                                                     launches_[number].launch.run(block);
                                                     return std::move(main_);
                                                   });
    make_ready(*threads_.back());
  }
}

void TimedMachine::end_block(Thread& thread) {
  Started& started = launches_[thread.launch];
  started.end = std::max(started.end, thread.clock);
  thread.reads = {};
  if (--started.running != 0) return;
  for (const std::size_t behind : started.behind) {
    Started& next = launches_[behind];
    next.ready = std::max(next.ready, started.end);
    if (--next.missing == 0) start(behind);
  }
}

void TimedMachine::wake(std::size_t place, double time) {
  for (const Sleeper& sleeper : std::exchange(sleepers_[place], {})) {
    Thread& thread = *sleeper.thread;
    if (thread.sleep != sleeper.sleep) continue;  // another place has woken it
    ++thread.sleep;
    thread.clock = std::max(thread.clock, time);
    make_ready(thread);
  }
}

void TimedMachine::land() {
  const auto [place, time] = memory_.land();
  wake(place, time);
}

// Stores land and threads go on in the order of time.
void TimedMachine::let_others_go_first() {
  while (memory_.next_landing() <= current_->clock &&
         (ready_.empty() || memory_.next_landing() <= ready_.top().clock)) {
    land();
  }
  if (ready_.empty() || ready_.top().clock >= current_->clock) return;
  make_ready(*current_);
  switch_away();
}

void TimedMachine::switch_away() {
  main_ = std::move(main_).resume();
}

void TimedMachine::pass(double ns) {
  current_->clock += ns;
  let_others_go_first();
}

void TimedMachine::ask(const void* from, unsigned bytes) {
  const TimedMemory::Area& area = memory_.area_of(from);
  const bool once = area.once || current_->block == 0;
  const double looks = once ? 1 / area.lanes : area.looks / (current_->processors * kCosts.warps);
  current_->asked = std::max(current_->asked, kCosts.look * looks);
  pass(bytes * memory_.weight_of(from) / (current_->processors * kCosts.sm_local));
}

void TimedMachine::load(const void* from, void* value, unsigned bytes) {
  const bool window = memory_.owner(from) != TimedMemory::kNobody;
  if (window) ask(from, bytes);
  std::memcpy(value, from, bytes);
  if (!window) return;
  // A waiting loop reads fewer places in a turn.
  constexpr std::size_t kMostReads = 1024;
  std::vector<Read>& reads = current_->reads;
  if (reads.size() == kMostReads) reads.erase(reads.begin(), reads.begin() + kMostReads / 2);
  reads.push_back({memory_.place(from), current_->clock});
}

void TimedMachine::load_bulk(const void* from, void* value, unsigned bytes) {
  if (memory_.owner(from) != TimedMemory::kNobody) ask(from, bytes);
  std::memcpy(value, from, bytes);
}

void TimedMachine::await_answers() {
  current_->clock += std::exchange(current_->asked, 0);
}

// Ports carry one store after the other, and a port takes no more than it can carry.
double TimedMachine::carry(const void* to, unsigned bytes, double rate) {
  let_others_go_first();
  const double whole = bytes * memory_.weight_of(to), through_port = whole / kCosts.port;
  double& leaving = leaving_[launches_[current_->launch].launch.rank];
  double& arriving = arriving_[memory_.owner(to)];
  const double begun = std::max(leaving, current_->clock);
  leaving = begun + through_port;
  arriving = std::max(arriving, begun) + through_port;
  current_->clock = std::max(current_->clock + whole / (current_->processors * rate), begun);
  return std::max(leaving, arriving);
}

void TimedMachine::write_own(void* to, const void* value, unsigned bytes) {
  const bool window = memory_.owner(to) != TimedMemory::kNobody;
  if (window) pass(bytes * memory_.weight_of(to) / (current_->processors * kCosts.sm_local));
  std::memcpy(to, value, bytes);
  if (!window) return;
  memory_.note_store(to, current_->clock);
  wake(memory_.place(to), current_->clock);
}

bool TimedMachine::is_own(const void* address) const {
  const unsigned owner = memory_.owner(address);
  return owner == TimedMemory::kNobody || owner == launches_[current_->launch].launch.rank;
}

void TimedMachine::store(void* to, const void* value, unsigned bytes, bool release) {
  if (is_own(to)) return write_own(to, value, bytes);
  const double there = carry(to, bytes, kCosts.sm_store);
  memory_.send(there + (release ? kCosts.release : kCosts.flag), to, value, bytes);
}

void TimedMachine::store_bulk(void* to, const void* value, unsigned bytes) {
  if (is_own(to)) return write_own(to, value, bytes);
  const double there = carry(to, bytes, kCosts.sm_bulk);
  for (unsigned i = 0; i < bytes; i += sizeof(detail::Pack)) {
    memory_.send(there + kCosts.flag, static_cast<std::byte*>(to) + i, static_cast<const std::byte*>(value) + i,
                 sizeof(detail::Pack));
  }
}

void TimedMachine::relax() {
  await_answers();
  let_others_go_first();
  std::vector<Read> reads = std::exchange(current_->reads, {});
  if (std::ranges::any_of(reads, [&](const Read& read) { return memory_.landed(read.place) > read.time; })) return;
  ++current_->sleep;
  for (const Read& read : reads) sleepers_[read.place].push_back({current_, current_->sleep});
  switch_away();
}

}  // namespace weft::sim
