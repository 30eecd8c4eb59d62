// The outcome of calls, in words.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "comm/call.hpp"
#include "comm/state.hpp"

namespace weft::detail {

std::shared_ptr<const GroupState> CommunicatorState::channel_owner(std::uint32_t channel) const {
  for (const auto& group : groups_) {
    if (group != nullptr && group->id() == static_cast<int>(channel)) return {std::shared_ptr<void>(), group.get()};
  }
  if (channel == kMailChannel) return {std::shared_ptr<void>(), mail_.get()};
  for (const Tenants& kind : tenants_) {
    for (const auto& tenant : kind.by_slot) {
      if (tenant == nullptr) continue;
      for (const GroupState* own : tenant->channels()) {
        if (own->id() == static_cast<int>(channel)) return {tenant, own};
      }
    }
  }
  return nullptr;
}

// A tenant's channel has the history of all its channels, by time.
std::vector<CallRecord> CommunicatorState::history(const GroupState& group) const {
  std::vector<CallRecord> calls = group.recent_calls();
  const std::scoped_lock lock(mutex_);
  each_tenant([&](const Tenant& tenant) {
    const std::vector<const GroupState*> channels = tenant.channels();
    if (std::ranges::find(channels, &group) == channels.end()) return;
    for (const GroupState* other : channels) {
      if (other == &group) continue;
      const std::vector<CallRecord> others = other->recent_calls();
      calls.insert(calls.end(), others.begin(), others.end());
    }
    std::ranges::stable_sort(calls, {}, &CallRecord::time);
  });
  return calls;
}

namespace {

// The number that did not fit, in words; empty if none did.
std::string describe_misfit(const FaultRecord& record) {
  const auto number = [](const std::uint32_t(&halves)[2]) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(halves[1]) << 32 | halves[0]);
  };
  const std::int64_t value = number(record.misfit_value), limit = number(record.misfit_limit);
  const std::uint32_t place = record.misfit_place;
  switch (static_cast<Misfit>(record.misfit)) {
    case Misfit::none:
      return {};
    case Misfit::count:
      return fmt::format("the count of rank {} is {}, allowed is 0 or more", place, value);
    case Misfit::slot:
      return fmt::format("the slot of rank {} has {} rows, allowed is 0 or more", place, value);
    case Misfit::count_slot:
      return fmt::format("the count of rank {} is {}, and its slot has {} rows", place, value, limit);
    case Misfit::other_count:
      return fmt::format("the count of rank {} is {}, and that of its group's first rank {}", place, value, limit);
    case Misfit::whole_rows:
      return fmt::format("all slots together have {} rows, and the tensor that holds them {}", value, limit);
    case Misfit::own_rows:
      return fmt::format("the part of rank {} has {} rows, and its tensor {}", place, value, limit);
    case Misfit::total_rows:
      return fmt::format("all slots together have {} rows, allowed are {}", value, limit);
    case Misfit::taken_rows:
      return fmt::format("what is taken of slot {} has {} rows, and the output {}", place, value, limit);
    case Misfit::expert_rows:
      return fmt::format("local expert {} gets {} rows, and has room for {}", place, value, limit);
    case Misfit::rows_of_all:
      return fmt::format("the local experts get {} rows together, and there is room for {}", value, limit);
    case Misfit::tokens:
      return fmt::format("it has {} tokens, and the dispatch whose routing it takes had {}", value, limit);
    case Misfit::routing:
      return fmt::format("that rank takes the routing of epoch {}, and this one that of epoch {}", value, limit);
  }
  return {};
}

int rank_or_none(std::uint32_t peer) {
  return peer == kNoPeer ? -1 : static_cast<int>(peer);
}

// Two ranks that exchange messages have no common epoch.
bool has_no_epochs(const GroupState* group) {
  return group != nullptr && group->is_mail();
}
std::string waited_for(const GroupState* group, const Fault& fault) {
  if (has_no_epochs(group)) return " has not come for its part of the message";
  return fmt::format(" was last seen in epoch {}", fault.epoch_seen);
}
std::string told(const GroupState* group, const Fault& fault) {
  if (has_no_epochs(group)) return fmt::format(" sent {}", fault.theirs);
  return fmt::format(" called {} in epoch {}", fault.theirs, fault.epoch_seen);
}

}  // namespace

std::optional<CommunicatorState::Found> CommunicatorState::found_by_kernel(const FaultRecord& record) const {
  if (record.complete == 0) return std::nullopt;
  const auto code = static_cast<Errc>(record.code);
  std::shared_ptr<const GroupState> group = channel_owner(record.channel);
  const std::string freed = "a call of an exchange that was freed";
  Fault fault{.code = code,
              .rank = rank(),
              .peer = rank_or_none(record.peer),
              .reporter = rank_or_none(record.reporter),
              .epoch_wanted = record.epoch_wanted,
              .epoch_seen = record.epoch_seen,
              .operation = group != nullptr ? group->name_of(record.fingerprint) : freed,
              .theirs = {},
              .reason = describe_misfit(record)};
  if (code == Errc::mismatch) fault.theirs = group != nullptr ? group->name_of(record.theirs, fault.peer) : freed;
  if (code == Errc::peer_failed) fault.reported = static_cast<Errc>(record.theirs);
  const bool needs_peer = code == Errc::timeout || code == Errc::peer_died || code == Errc::peer_failed;
  if (needs_peer && group != nullptr && fault.peer >= 0 && fault.peer != rank())
    fault.reason = group->progress_of(fault.peer);
  return Found{.fault = std::move(fault), .group = std::move(group)};
}

// NCCL does not say which rank is late or gone.
std::optional<CommunicatorState::Found> CommunicatorState::found_by_host() const {
  const std::optional<HostFault> seen = fabric_->host_fault();
  if (!seen) return std::nullopt;
  return Found{.fault = {.code = seen->code,
                         .rank = rank(),
                         .peer = seen->code == Errc::aborted ? rank() : -1,
                         .epoch_wanted = static_cast<std::uint32_t>(seen->call),
                         .epoch_seen = 0,
                         .operation = seen->operation,
                         .theirs = {},
                         .reason = seen->reason},
               .group = channel_owner(static_cast<std::uint32_t>(seen->group))};
}

// A fault that the next call would find: a peer has ended the communicator, or its process is gone without leaving in
// peace. The result is not kept, because that call will say more.
std::optional<CommunicatorState::Found> CommunicatorState::find_between_calls() const {
  Fault fault{.code = Errc::ok, .rank = rank(), .operation = {}, .theirs = {}, .reason = {}};
  const std::uint32_t poison = fabric_->poison();
  if (poison != 0) {
    fault.reported = static_cast<Errc>(poison_code(poison));
    fault.code = fault.reported == Errc::aborted ? Errc::aborted : Errc::peer_failed;
    fault.peer = static_cast<int>(poison_culprit(poison));
    fault.reporter = static_cast<int>(poison_reporter(poison));
    return Found{.fault = std::move(fault), .group = nullptr};
  }
  if (!board_->is_shared()) return std::nullopt;  // ranks that have left cannot be told from dead ones
  for (const int peer : fabric_->dead_peers()) {
    if (board_->has_left(peer)) continue;
    fault.code = Errc::peer_died;
    fault.peer = peer;
    return Found{.fault = std::move(fault), .group = nullptr};
  }
  return std::nullopt;
}

std::optional<CommunicatorState::Found> CommunicatorState::find_ending() const {
  const std::scoped_lock lock(mutex_);
  if (!ending_) ending_ = found_by_kernel(fabric_->record(kEnding));
  if (!ending_) ending_ = found_by_host();
  return ending_;
}

std::optional<CommunicatorState::Found> CommunicatorState::find_stale_replay() const {
  const std::scoped_lock lock(mutex_);  // or a record could be read here and noted after it is forgotten
  if (!stale_replay_) stale_replay_ = found_by_kernel(fabric_->record(kStaleReplay));
  return stale_replay_;
}

// A fault that ends the communicator says more than an earlier stale replay. Both say more than a fault that no call
// has found.
std::optional<CommunicatorState::Found> CommunicatorState::find_fault() const {
  std::optional<Found> found = find_ending();
  if (!found) found = find_stale_replay();
  return found ? found : find_between_calls();
}

std::optional<Fault> CommunicatorState::fault() const {
  const std::optional<Found> found = find_fault();
  return found ? std::optional(found->fault) : std::nullopt;
}

// The one fault from which there is a way back.
void CommunicatorState::forget_stale_replay() {
  const std::scoped_lock lock(mutex_);
  if (fabric_->record(kStaleReplay).complete != 0) fabric_->clear_record(kStaleReplay);
  stale_replay_.reset();
}

void CommunicatorState::check(const GroupState& asked) const {
  if (const std::optional<Found> found = find_fault()) throw_found(*found, asked);
}

void CommunicatorState::check_ending(const GroupState& asked) const {
  if (const std::optional<Found> found = find_ending()) throw_found(*found, asked);
}

// A thread that has reported another group's fault may still be writing the record. The kernel has already waited for
// it, as long as a thread may.
void CommunicatorState::throw_failed(const GroupState& asked, const Call& call) const {
  check_ending(asked);
  const bool ended = std::atomic_ref(call.local->admitted[0].value).load(std::memory_order_relaxed) == kEnded;
  if (const std::optional<Found> stale = find_stale_replay(); stale && !ended) throw_found(*stale, asked);
  throw Error(Errc::system, fmt::format("{} failed on rank {}, and the thread that noticed why has not recorded it "
                                        "within {} ms{}",
                                        asked.name_of(call.fingerprint), rank(), kRecordPatienceNs / 1'000'000,
                                        last_calls("this group", history(asked))));
}

void CommunicatorState::throw_found(const Found& found, const GroupState& asked) const {
  const Fault& fault = found.fault;
  std::string text = fmt::format("{} on rank {}: ", name(fault.code), fault.rank);
  text += fault.operation.empty() ? "no call was under way"
                                  : fmt::format("{}, epoch {}", fault.operation, fault.epoch_wanted);
  if (fault.code == Errc::peer_failed && fault.reporter >= 0) {
    text += fmt::format("; peer {} reported: {}", fault.reporter, name(fault.reported));
    if (fault.peer != fault.reporter) {
      text += fault.peer == fault.rank ? " of this rank" : fmt::format(" of rank {}", fault.peer);
    }
  } else if (fault.peer >= 0) {
    text += fmt::format("; peer {}", fault.peer);
  }
  if (fault.code == Errc::timeout) {
    if (fault.peer >= 0) text += waited_for(found.group.get(), fault);
    text += fmt::format("; deadline {} ms",
                        std::chrono::duration_cast<std::chrono::milliseconds>(config_.deadline).count());
  }
  if (fault.code == Errc::mismatch) text += told(found.group.get(), fault);
  if (!fault.reason.empty()) text += fmt::format("; {}", fault.reason);
  const GroupState& group = found.group != nullptr ? *found.group : asked;
  text += last_calls(&group == &asked ? "this group" : "the group that failed", history(group));
  throw Error(fault, text);
}

}  // namespace weft::detail
