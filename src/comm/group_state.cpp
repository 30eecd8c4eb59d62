#include "comm/state.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "protocol/session.hpp"

namespace weft::detail {
namespace {

constexpr std::size_t kRecentCalls = 32;
constexpr std::size_t kMostKnown = 4096;  // of different calls that one group remembers in words

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
      tuning_(communicator.tuning_for(size())) {}

void GroupState::arm(std::optional<std::uint32_t> first_epoch, bool moved) {
  Fabric& fabric = communicator_.fabric();
  const Control control = fabric.control();
  LocalState local{};
  if (first_epoch) {
    local.begin_at(*first_epoch);
  } else {
    fabric.read(&local, &control.locals[id_], sizeof(local));
    // A graph that was replayed beside release(), which nobody may do, ended in some of its blocks alone.
    local.begin_at(newest_epoch(local));
    // A send whose wait will not come was a call: some peers may have waited for theirs, and count it.
    if (local.busy == kSent) local.begin_at(local.epochs[0].value + 1);
    local.busy = kIdle;
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
  // Poison for a rank that is out of reach goes to this one, which has ended anyhow: kernels store to all of them.
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
    fabric.fill(mine, 0xff, layout_.bytes);
    // Words of the call before the first: older than anything that is waited for.
    const auto make_old = [&](std::uint64_t offset, std::uint64_t words) {
      const std::vector<std::uint64_t> old(words, static_cast<std::uint64_t>(local.epochs[0].value - 1) << 32);
      fabric.write(mine + offset, old.data(), old.size() * sizeof(std::uint64_t));
    };
    const auto members = static_cast<std::uint64_t>(size());
    make_old(layout_.headers, (kBanks + 1) * members);
    make_old(layout_.bulk_signals, 2 * layout_.bulk_slots * members);
    make_old(layout_.bulk_credits, layout_.bulk_slots * members);
    make_old(layout_.symmetric_signals, 2 * layout_.symmetric_chunks * members);
    make_old(layout_.invitations, layout_.symmetric_chunks != 0 ? members : 0);
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

Call GroupState::call(std::uint32_t fingerprint) const {
  const Control control = communicator_.fabric().control();
  return make_call(table_, &control.channels[id_], generation_, fingerprint);
}

void GroupState::remember(const CallName& name) {
  const std::scoped_lock lock(mutex_);
  const auto [known, is_new] = known_.try_emplace(name.fingerprint, KnownCall{.name = name, .last = 0, .entry = 0});
  known->second.last = calls_;
  CallBoard& board = communicator_.board();
  if (!board.holds(known->second.entry)) {
    known->second.entry = board.publish(static_cast<std::uint32_t>(id_), name);
  }
  if (is_new && known_.size() > kMostKnown) forget_old_calls();
  CallRecord record{.number = calls_, .operation = name.text, .time = std::chrono::system_clock::now()};
  if (recent_.size() < kRecentCalls) {
    recent_.push_back(std::move(record));
  } else {
    recent_[calls_ % kRecentCalls] = std::move(record);
  }
  ++calls_;
}

// The half of them that was not made for the longest time.
void GroupState::forget_old_calls() {
  std::vector<std::uint64_t> last;
  for (const auto& [fingerprint, known] : known_) last.push_back(known.last);
  const auto middle = last.begin() + static_cast<std::ptrdiff_t>(last.size() / 2);
  std::ranges::nth_element(last, middle);
  std::erase_if(known_, [oldest = *middle](const auto& entry) { return entry.second.last < oldest; });
}

void GroupState::publish(const CallName& name) {
  static_cast<void>(communicator_.board().publish(static_cast<std::uint32_t>(id_), name));
}

std::vector<CallRecord> GroupState::recent_calls() const {
  const std::scoped_lock lock(mutex_);
  std::vector<CallRecord> calls = recent_;
  std::ranges::sort(calls, {}, &CallRecord::number);
  return calls;
}

const GroupState::KnownCall* GroupState::find_call(std::uint32_t fingerprint) const {
  const KnownCall* found = nullptr;
  for (const auto& [number, known] : known_) {
    const int how = match(known.name, fingerprint);
    if (how == 2) return &known;
    if (how == 1) found = &known;
  }
  return found;
}

std::string GroupState::name_of(std::uint32_t fingerprint) const {
  const std::scoped_lock lock(mutex_);
  if (const KnownCall* const known = find_call(fingerprint)) return known->name.text;
  return fmt::format("a call with fingerprint {:08x}", fingerprint);
}

// Calls in which counts alone differ have one name, so it is said that they do.
std::string GroupState::name_of(std::uint32_t fingerprint, int peer) const {
  const std::scoped_lock lock(mutex_);
  const KnownCall* const own = find_call(fingerprint);
  if (own != nullptr) return own->name.text + (own->name.fingerprint != fingerprint ? ", with other counts," : "");
  const auto theirs = communicator_.board().find(peer, static_cast<std::uint32_t>(id_), fingerprint);
  if (theirs) return *theirs;
  if (fingerprint == kRejectedCall) return "a call that it rejected";
  return fmt::format("a call with fingerprint {:08x}", fingerprint);
}

}  // namespace weft::detail
