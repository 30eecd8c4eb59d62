// Warps of the machine. Lanes meet in the calls that exchange their values (shfl, vote and redux). PTX says that these
// calls wait for all lanes and order no memory. So a meeting is no step, and joins no views. Two cases are errors,
// whatever the schedule: lanes that meet make different calls, or one of them has left, because shfl's value from that
// lane is undefined. Only bar.warp.sync orders memory.
#include <fmt/format.h>

#include <bit>

#include "sim/machine.hpp"

namespace weft::sim {
namespace {

constexpr std::string_view kBarrier = "sync_lanes";

}  // namespace

void Machine::start_warps(ThreadMask block) {
  for (ThreadMask rest = block; rest != 0;) {
    Warp& warp = warps_[static_cast<unsigned>(std::countr_zero(rest))];
    warp = {};
    for (unsigned lane = 0; lane < lanes_ && rest != 0; ++lane, rest &= rest - 1) warp.live |= rest & (0 - rest);
  }
}

const Machine::Lanes& Machine::ask_lanes(LaneCall call, std::uint32_t value) {
  const unsigned lane = lane_of(current_);
  Warp& warp = warps_[current_ - lane];
  if (trace_ != nullptr) {
    trace_->push_back(fmt::format("{} {} among {}: {:08x}", names_[current_], call.name, call.among, value));
  }
  if (count(warp.live) != lanes_) {
    fail(FailureKind::broken_rule, fmt::format("thread {}: {} in a warp that is not whole", current_, call.name));
  }
  if (warp.arrived != 0 && warp.call != call) {
    fail(FailureKind::broken_rule, fmt::format("thread {}: {} among {} where other lanes of its warp make {} among {}",
                                               current_, call.name, call.among, warp.call.name, warp.call.among));
  }
  warp.call = call;
  warp.given[lane] = value;
  warp.arrived |= bit(current_);
  // The others may be in a waiting loop, for a value that only this lane has seen: they look again before they sleep,
  // or wake.
  warp.called = warp.live & ~waiting_ & ~warp.arrived;
  ready_ |= warp.live & waiting_;
  waiting_ &= ~warp.live;
  if (warp.arrived == warp.live) {
    if (call.name == kBarrier) {
      memory_.join(warp.arrived);
      if (copies_) copies_->synced(warp.arrived);
    }
    ready_ |= warp.arrived;
    warp.arrived = warp.called = 0;
    warp.told = warp.given;
  } else {
    ready_ &= ~bit(current_);
    go_on();
  }
  return warp.told;
}

void Machine::sync_lanes() {
  if (lanes_ == 1) return;
  point();
  ask_lanes({kBarrier, lanes_}, 0);
}

bool Machine::take_call() {
  Warp& warp = warps_[current_ - lane_of(current_)];
  const bool called = (warp.called & bit(current_)) != 0;
  warp.called &= ~bit(current_);
  return called;
}

void Machine::leave_warp(unsigned thread) {
  Warp& warp = warps_[thread - lane_of(thread)];
  warp.live &= ~bit(thread);
  if (warp.arrived == 0) return;
  fail(FailureKind::broken_rule, fmt::format("thread {} leaves its warp, whose other lanes make {} among {}", thread,
                                             warp.call.name, warp.call.among));
}

std::string Machine::missing_lanes() const {
  std::string text;
  for (const Stream& stream : streams_) {
    for (ThreadMask rest = stream.live; rest != 0; rest &= rest - 1) {
      const auto thread = static_cast<unsigned>(std::countr_zero(rest));
      const Warp& warp = warps_[thread - lane_of(thread)];
      if (warp.arrived == 0 || (warp.arrived & bit(thread)) != 0) continue;
      text += fmt::format("{}thread {} does not come to {} among {} of its warp", text.empty() ? "" : ", ", thread,
                          warp.call.name, warp.call.among);
    }
  }
  return text;
}

}  // namespace weft::sim
