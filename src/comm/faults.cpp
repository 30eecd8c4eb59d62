// What became of calls, in words.
#include <fmt/format.h>

#include <algorithm>

#include "comm/call.hpp"
#include "comm/exchange_state.hpp"
#include "comm/state.hpp"
#include "core/log.hpp"

namespace weft::detail {

std::shared_ptr<const GroupState> CommunicatorState::channel_owner(std::uint32_t channel) const {
  for (const auto& group : groups_) {
    if (group != nullptr && group->id() == static_cast<int>(channel)) return {std::shared_ptr<void>(), group.get()};
  }
  for (const auto& exchange : exchanges_) {
    if (exchange == nullptr) continue;
    for (const GroupState* half : {&exchange->dispatch_channel(), &exchange->combine_channel()}) {
      if (half->id() == static_cast<int>(channel)) return {exchange, half};
    }
  }
  return nullptr;
}

// Dispatch and combine are channels of their own, and one is nothing without the other.
std::vector<CallRecord> CommunicatorState::history(const GroupState& group) const {
  std::vector<CallRecord> calls = group.recent_calls();
  const std::scoped_lock lock(mutex_);
  for (const auto& exchange : exchanges_) {
    if (exchange == nullptr) continue;
    const GroupState* const halves[] = {&exchange->dispatch_channel(), &exchange->combine_channel()};
    if (&group != halves[0] && &group != halves[1]) continue;
    const std::vector<CallRecord> others = halves[&group == halves[0] ? 1 : 0]->recent_calls();
    calls.insert(calls.end(), others.begin(), others.end());
    std::ranges::stable_sort(calls, {}, &CallRecord::time);
  }
  return calls;
}

std::optional<CommunicatorState::Found> CommunicatorState::found_by_kernel(const FaultRecord& record) const {
  if (record.complete == 0) return std::nullopt;
  const auto code = static_cast<Errc>(record.code);
  std::shared_ptr<const GroupState> group = channel_owner(record.channel);
  const auto name_of = [&](std::uint32_t fingerprint) {
    return group != nullptr ? group->name_of(fingerprint) : "a call of an exchange that was freed";
  };
  Fault fault{.code = code,
              .rank = rank(),
              .peer = record.peer == kNoPeer ? -1 : static_cast<int>(record.peer),
              .epoch_wanted = record.epoch_wanted,
              .epoch_seen = record.epoch_seen,
              .operation = name_of(record.fingerprint),
              .theirs = {}};
  if (code == Errc::mismatch) fault.theirs = name_of(record.theirs);
  if (code == Errc::peer_failed) fault.theirs = name(static_cast<Errc>(record.theirs));
  return Found{.fault = std::move(fault), .group = std::move(group), .reason = {}};
}

// NCCL does not say who is late or gone.
std::optional<CommunicatorState::Found> CommunicatorState::found_by_host() const {
  const std::optional<HostFault> seen = fabric_->host_fault();
  if (!seen) return std::nullopt;
  return Found{.fault = {.code = seen->code,
                         .rank = rank(),
                         .peer = seen->code == Errc::aborted ? rank() : -1,
                         .epoch_wanted = static_cast<std::uint32_t>(seen->call),
                         .epoch_seen = 0,
                         .operation = seen->operation,
                         .theirs = seen->code == Errc::peer_failed ? seen->reason : ""},
               .group = channel_owner(static_cast<std::uint32_t>(seen->group)),
               .reason = seen->reason};
}

std::optional<CommunicatorState::Found> CommunicatorState::find_fault() const {
  const std::scoped_lock lock(mutex_);  // or a stale replay could be read here and noted once it is forgotten
  const FaultRecord ending = fabric_->record(kEnding), stale = fabric_->record(kStaleReplay);
  warn_when_slow(ending);
  if (found_ && found_->fault.code != Errc::released) return found_;
  // What ends the communicator says more than a stale replay before it.
  std::optional<Found> ended = found_by_kernel(ending);
  if (!ended) ended = found_by_host();
  if (ended) found_ = std::move(ended);
  if (!found_) found_ = found_by_kernel(stale);
  return found_;
}

std::optional<Fault> CommunicatorState::fault() const {
  const std::optional<Found> found = find_fault();
  return found ? std::optional(found->fault) : std::nullopt;
}

// The one fault from which there is a way back.
void CommunicatorState::forget_release() {
  const std::scoped_lock lock(mutex_);
  if (fabric_->record(kStaleReplay).complete != 0) fabric_->clear_record(kStaleReplay);
  if (found_ && found_->fault.code == Errc::released) found_.reset();
}

void CommunicatorState::warn_when_slow(const FaultRecord& record) const {
  if (record.slow_epoch == 0 || record.slow_epoch == warned_epoch_) return;
  warned_epoch_ = record.slow_epoch;
  logger().warn("rank {}: call {} has waited for rank {} for more than a tenth of the deadline", rank(),
                record.slow_epoch, record.slow_peer);
}

void CommunicatorState::check(const GroupState& asked) const {
  const std::optional<Found> found = find_fault();
  if (!found) return;
  const Fault& fault = found->fault;
  std::string text =
      fmt::format("{} on rank {}: {}, epoch {}", name(fault.code), fault.rank, fault.operation, fault.epoch_wanted);
  if (fault.peer >= 0) text += fmt::format("; peer {}", fault.peer);
  if (fault.code == Errc::timeout) {
    if (fault.peer >= 0) text += fmt::format(" was last seen in epoch {}", fault.epoch_seen);
    text += fmt::format("; deadline {} ms",
                        std::chrono::duration_cast<std::chrono::milliseconds>(config_.deadline).count());
  }
  if (fault.code == Errc::mismatch) text += fmt::format(" called {} in epoch {}", fault.theirs, fault.epoch_seen);
  if (fault.code == Errc::peer_failed && found->reason.empty()) text += fmt::format(" reported: {}", fault.theirs);
  if (!found->reason.empty()) text += fmt::format("; {}", found->reason);
  const GroupState& group = found->group != nullptr ? *found->group : asked;
  text += last_calls(&group == &asked ? "this group" : "the group that failed", history(group));
  throw Error(fault, text);
}

}  // namespace weft::detail
