#include "comm/state.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "protocol/mail.hpp"
#include "protocol/session.hpp"

namespace weft::detail {
namespace {

std::uint32_t newest_epoch(const LocalState& local) {
  std::uint32_t newest = local.epochs[0].value;
  for (const BlockWord& word : local.epochs) {
    if (epoch_reached(word.value, newest)) newest = word.value;
  }
  return newest;
}

}  // namespace

GroupState::GroupState(CommunicatorState& communicator, int id, std::vector<int> members, int rank, int window,
                       std::size_t region_offset, RegionLayout layout, MultimemLayout multimem)
    : communicator_(communicator),
      id_(id),
      rank_(rank),
      members_(std::move(members)),
      window_(window),
      region_offset_(region_offset),
      layout_(layout),
      multimem_(multimem),
      tuning_(communicator.tuning_for(size())),
      ordered_(communicator.config().order_streams) {}

void GroupState::try_table(TunedOperation operation, const TuningTable* table) {
  const auto at = static_cast<std::size_t>(operation);
  tuning_[at] = table != nullptr ? TuningChoice{.table = table} : communicator_.tuning_for(size())[at];
}

void GroupState::arm(std::optional<std::uint32_t> first_epoch, bool moved) {
  Fabric& fabric = communicator_.fabric();
  const Control control = fabric.control();
  LocalState local{};
  if (first_epoch) {
    local.begin_at(*first_epoch);
  } else {
    fabric.read(&local, &control.locals[id_], sizeof(local));
    // A graph replayed during release(), which is forbidden, ended in only some of its blocks.
    local.begin_at(newest_epoch(local));
    // A send whose wait will not come was a call: some peers may have waited for theirs, and count it.
    if (local.busy != kIdle && local.busy != kBusy) local.begin_at(local.epochs[0].value + 1);
    local.busy = kIdle;
    // Ranks that make no common calls have no common epoch, but begin again with one.
    if (is_mail()) local.begin_at(communicator_.initial_epoch());
  }

  direct_ = true;
  Channel channel{};
  channel.id = static_cast<std::uint32_t>(id_);
  channel.rank = static_cast<std::uint32_t>(rank_);
  channel.size = static_cast<std::uint32_t>(size());
  channel.deadline_ns = static_cast<std::uint64_t>(communicator_.config().deadline.count());
  channel.layout = layout_;
  channel.local = &control.locals[id_];
  channel.claim = control.claim;
  channel.abort = control.abort;
  channel.record = control.record;
  channel.world_rank = static_cast<std::uint32_t>(communicator_.rank());
  channel.world_size = static_cast<std::uint32_t>(communicator_.size());
  // Poison for a rank that is out of reach goes to this one, which has ended anyhow: kernels store to all windows.
  std::byte* const own = fabric.window(0, communicator_.rank());
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    std::byte* const window = fabric.window(0, peer);
    channel.window[peer] = window != nullptr ? window : own;
  }
  for (int member = 0; member < size(); ++member) {
    const int world_rank = members_[static_cast<std::size_t>(member)];
    channel.member[member] = static_cast<std::uint32_t>(world_rank);
    std::byte* const window = fabric.window(window_, world_rank);
    direct_ &= window != nullptr;
    if (direct_) channel.region[member] = window + region_offset_;
  }
  channel.multimem = multimem_;
  if (multimem_.packs != 0 && fabric.multicast() != nullptr) channel.multicast = fabric.multicast() + region_offset_;

  if (direct_) {
    std::byte* const mine = channel.region[rank_];
    // Sentinels and lines need memory at rest. Chunks of a pipeline follow signals: filling their slots, too, would
    // take most of a creation on CPU ranks.
    fabric.fill(mine, 0xff, layout_.pipeline_packs != 0 ? layout_.pipeline_signals : layout_.bytes);
    if (multimem_.packs != 0) fabric.fill(mine + multimem_.stage, 0xff, layout_.bytes - multimem_.stage);
    // Words of the call before the first: older than any word that a call waits for.
    const auto make_old = [&](std::uint64_t offset, std::uint64_t words) {
      const std::vector<std::uint64_t> old(words, static_cast<std::uint64_t>(local.epochs[0].value - 1) << 32);
      fabric.write(mine + offset, old.data(), old.size() * sizeof(std::uint64_t));
    };
    if (is_mail()) {
      each_old_mail_word(layout_, channel.size, make_old);
    } else {
      each_old_words(layout_, channel.size, make_old);
    }
    const auto members = static_cast<std::uint64_t>(size());
    make_old(multimem_.signals, 2 * multimem_.chunks * members);
  }
  if (moved) generation_ = communicator_.new_generation();  // graphs captured before hold the old addresses
  local.admit(local.dead != 0 ? kEnded : generation_);
  table_ = channel;
  fabric.write(&control.locals[id_], &local, sizeof(local));
  fabric.write(&control.channels[id_], &channel, sizeof(channel));
}

void GroupState::set_released() {
  Fabric& fabric = communicator_.fabric();
  LocalState local{};
  local.admit(kReleased);
  fabric.write(&fabric.control().locals[id_].admitted, &local.admitted, sizeof(local.admitted));
}

void GroupState::set_mark(Stream stream) {
  communicator_.fabric().mark(id_, stream);
  marked_ = true;
}
void GroupState::follow_mark(Stream stream) {
  communicator_.fabric().follow(id_, stream);
  marked_ = ordered_;
}

Call GroupState::call(std::uint32_t fingerprint) const {
  const Control control = communicator_.fabric().control();
  return make_call(table_, &control.channels[id_], generation_, fingerprint);
}

HostNumbers* GroupState::host_numbers() const {
  return communicator_.fabric().control().numbers + id_;
}

void GroupState::remember(const CallName& name) {
  const auto channel = static_cast<std::uint32_t>(id_);
  communicator_.board().note(channel, name);
  if (name.part) communicator_.board().note_anew(channel, {kNewestPart, name.words});
  const std::scoped_lock lock(mutex_);
  RecentCall& recent = recent_[calls_++ % kRecentCalls];
  recent.time = std::chrono::system_clock::now();
  recent.words = name.words;
}

std::vector<CallRecord> GroupState::recent_calls() const {
  const std::scoped_lock lock(mutex_);
  std::vector<CallRecord> calls;
  for (std::uint64_t number = calls_ - std::min<std::uint64_t>(calls_, kRecentCalls); number < calls_; ++number) {
    const RecentCall& recent = recent_[number % kRecentCalls];
    calls.push_back({.number = number, .operation = recent.words.text(), .time = recent.time});
  }
  return calls;
}

namespace {

std::string unnamed(std::uint32_t fingerprint) {
  return fmt::format("a call with fingerprint {:08x}", fingerprint);
}

}  // namespace

std::optional<CallBoard::Match> GroupState::find_call(int world_rank, std::uint32_t fingerprint) const {
  return communicator_.board().find(world_rank, static_cast<std::uint32_t>(id_), fingerprint);
}

std::string GroupState::name_of(std::uint32_t fingerprint) const {
  const auto own = find_call(communicator_.rank(), fingerprint);
  const std::string text = own ? own->words.text() : "";
  return !text.empty() ? text : unnamed(fingerprint);
}

std::string GroupState::progress_of(int peer) const {
  const auto newest = communicator_.board().newest(peer, static_cast<std::uint32_t>(id_));
  if (!newest || (newest->fingerprint != kNewestPart && newest->fingerprint != kRejectedCall)) return {};
  return fmt::format("the last call of rank {}: {}", peer, newest->words.text());
}

// Calls that only differ in counts have one name, so the text says that the counts differ.
std::string GroupState::name_of(std::uint32_t fingerprint, int peer) const {
  if (fingerprint != kRejectedCall) {
    const auto own = find_call(communicator_.rank(), fingerprint);
    if (own) return own->words.text() + (own->other_counts ? ", with other counts," : "");
  }
  const auto theirs = find_call(peer, fingerprint);
  const std::string text = theirs ? theirs->words.text() : "";
  if (!text.empty()) return text;
  return fingerprint == kRejectedCall ? "a call that it rejected" : unnamed(fingerprint);
}

}  // namespace weft::detail
