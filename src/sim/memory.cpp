#include "sim/memory.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

namespace weft::sim {
namespace {

bool at_rest(const Pack& value, unsigned bytes) {
  for (unsigned i = 0; i < bytes / 4; ++i) {
    if (value.word[i] != detail::kRestPack.word[i]) return false;
  }
  return true;
}

}  // namespace

Memory::Memory(std::size_t bytes, std::vector<unsigned> rank_of, bool proxies)
    : bytes_(bytes),
      data_(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{256}))),
      threads_(static_cast<unsigned>(rank_of.size())),
      viewers_(proxies ? 2 * threads_ : threads_),
      rank_of_(std::move(rank_of)),
      sent_(rank_of_.empty() ? 0 : std::ranges::max(rank_of_) + 1),
      sent_packs_(sent_.size()),
      index_(bytes / 4, kUnknown),
      last_(bytes / 4),
      histories_(kMaxLocations),
      snapshot_views_(kMaxSnapshots) {
  std::memset(data_.get(), 0, bytes);
  rank_of_.resize(viewers_);
  for (unsigned i = threads_; i < viewers_; ++i) rank_of_[i] = rank_of_[i - threads_];
  places_[kIgnored] = {.count = 1, .width = 0, .owner = 0, .kind = AreaKind::ignored};
}

void Memory::add_area(Area area) {
  if (area.kind == AreaKind::ignored) {
    std::fill(index_.begin() + static_cast<std::ptrdiff_t>(area.begin / 4),
              index_.begin() + static_cast<std::ptrdiff_t>(area.end / 4), kIgnored);
  }
  areas_.push_back(std::move(area));
}

Memory::Location Memory::create(std::size_t word, unsigned bytes) {
  if (index_[word] == kIgnored) return kIgnored;
  if (index_[word] != kUnknown) throw std::logic_error("simulator: one place is accessed in two widths");
  if (used_ == kMaxLocations) throw std::logic_error("simulator: too many locations; make the set-up smaller");
  const std::size_t offset = word * 4;
  const auto area = std::find_if(areas_.begin(), areas_.end(),
                                 [&](const Area& a) { return a.begin <= offset && offset + bytes <= a.end; });
  if (area == areas_.end()) bad_address();
  const auto at = static_cast<Location>(used_++);
  for (std::size_t i = 0; i < bytes / 4; ++i) index_[word + i] = at;
  places_[at] = {.count = 1,
                 .width = static_cast<std::uint8_t>(bytes),
                 .owner = static_cast<std::uint8_t>(area->owner),
                 .kind = area->kind};
  offsets_[at] = offset;
  put_initial(at);
  return at;
}

void Memory::put_initial(Location at) {
  Message& initial = histories_[at].messages[0];
  initial = {.value = {}, .snapshot = 0, .rank = kNobody, .read_by_owner = false, .exchanged = false};
  std::memcpy(&initial.value, data_.get() + offsets_[at], places_[at].width);
}

// Makes room: removes messages that no thread may read any more.
void Memory::forget(Location at) {
  unsigned oldest = kMaxMessages;
  for (unsigned i = 0; i < viewers_; ++i) oldest = std::min<unsigned>(oldest, views_[i][at]);
  const auto move_down = [&](View& view) {
    view[at] = static_cast<std::uint8_t>(view[at] - std::min<unsigned>(view[at], oldest));
  };
  for (unsigned i = 0; i < viewers_; ++i) move_down(views_[i]);
  for (unsigned i = 1; i < snapshots_; ++i) move_down(snapshot_views_[i]);
  move_down(seq_cst_);
  auto& messages = histories_[at].messages;
  std::copy(messages.begin() + oldest, messages.begin() + places_[at].count, messages.begin());
  places_[at].count = static_cast<std::uint8_t>(places_[at].count - oldest);
  forgotten_[at] += oldest;
}

Memory::Location Memory::bad_address() {
  throw std::out_of_range("simulator: access outside of all declared memory");
}

std::string Memory::name_of(const void* address) const {
  const std::size_t offset = word_of(address) * 4;
  for (const Area& area : areas_) {
    if (area.begin <= offset && offset < area.end) return area.name(offset - area.begin);
  }
  return "?";
}

std::uint64_t Memory::stores(std::size_t begin, std::size_t end) const {
  std::uint64_t count = 0;
  for (unsigned at = 1; at < used_; ++at) {
    if (begin <= offsets_[at] && offsets_[at] < end) count += forgotten_[at] + places_[at].count - 1u;
  }
  return count;
}

void Memory::reset() {
  const std::size_t bytes = used_bytes();
  for (const Area& area : areas_) {
    if (area.kind == AreaKind::ignored) {
      std::memcpy(last_.data() + area.begin / 4, data_.get() + area.begin, area.end - area.begin);
    }
  }
  for (unsigned at = 1; at < used_; ++at) {
    places_[at].count = 1;
    histories_[at].messages[0].read_by_owner = false;
    if (forgotten_[at] != 0) put_initial(static_cast<Location>(at));
    forgotten_[at] = 0;
  }
  for (unsigned viewer = 0; viewer < viewers_; ++viewer) {
    std::memset(views_[viewer].data(), 0, bytes);
    known_[viewer].reset();
    met_[viewer].reset();
    pending_[viewer].clear();
  }
  released_.fill(0);
  std::memset(seq_cst_.data(), 0, bytes);
  std::ranges::fill(sent_, 0);
  std::ranges::fill(sent_packs_, 0);
  snapshots_ = 1;
}

// Whether a line, or its second half, is an empty record: a row for no expert, with no weight.
bool Memory::only_renews(Location at, const Pack& value) const {
  return value.word[0] == (offsets_[at] % sizeof(Pack) == 0 ? kEmptyRecord : 0u);
}

const char* Memory::broken_rule(Location at, unsigned index) const {
  const Place& place = places_[at];
  if (place.kind == AreaKind::word) return nullptr;
  const Message& before = histories_[at].messages[index - 1];
  const Message& after = histories_[at].messages[index];
  const bool from_peer = before.rank != kNobody && before.rank != place.owner;
  const bool awaited =
      place.kind == AreaKind::header || (place.kind == AreaKind::record && !only_renews(at, before.value));
  if (awaited && from_peer && !before.read_by_owner) {
    return "overwrites a word that its reader has not read yet";
  }
  if (place.kind == AreaKind::told && before.rank != kNobody && before.value.word[0] == after.value.word[0]) {
    return "tells the host a number twice with one stamp";
  }
  if (place.kind != AreaKind::slot) return nullptr;
  const bool data_before = !at_rest(before.value, place.width);
  if (data_before && !before.read_by_owner) return "overwrites data that its reader has not read yet";
  if (data_before && !at_rest(after.value, place.width)) return "data lands on a slot that is not at rest";
  return nullptr;
}

const char* Memory::store(unsigned thread, Location at, const Pack& value, unsigned age, bool release) {
  if (at == kIgnored) return nullptr;
  Place& place = places_[at];
  if (const unsigned rank = rank_of_[thread]; rank != place.owner) {
    ++sent_[rank];
    sent_packs_[rank] += place.width == sizeof(Pack);
  }
  if (place.count == kMaxMessages) forget(at);
  const unsigned count = place.count;
  if (count == kMaxMessages) throw std::logic_error("simulator: too many stores to one place; make fewer calls");
  auto& messages = histories_[at].messages;
  unsigned index = count - age;
  if (index < count && messages[index].exchanged) index = count;
  if (index < count) {
    std::copy_backward(messages.begin() + index, messages.begin() + count, messages.begin() + count + 1);
    const auto move_up = [&](View& view) { view[at] = static_cast<std::uint8_t>(view[at] + (view[at] >= index)); };
    for (unsigned i = 0; i < viewers_; ++i) move_up(views_[i]);
    for (unsigned i = 1; i < snapshots_; ++i) move_up(snapshot_views_[i]);
    move_up(seq_cst_);
  }
  place.count = static_cast<std::uint8_t>(count + 1);
  views_[thread][at] = static_cast<std::uint8_t>(index);
  messages[index] = {.value = value,
                     .snapshot = release ? snapshot_of(views_[thread]) : released_[thread],
                     .rank = static_cast<std::uint8_t>(rank_of_[thread]),
                     .read_by_owner = false,
                     .exchanged = false};
  if (const char* broken = broken_rule(at, index)) return broken;
  return index < count ? broken_rule(at, index + 1) : nullptr;
}

Pack Memory::exchange(unsigned thread, Location at, const Pack& value) {
  const Pack old = load(thread, at, 0);
  store(thread, at, value, 0);
  histories_[at].messages[places_[at].count - 1u].exchanged = true;
  return old;
}

// Whole cache lines, so that the loop becomes a few vector instructions (cmake/simulator.cmake sees to that).
void Memory::join_view(View& into, const View& from) const {
  const std::size_t bytes = used_bytes();
  for (std::size_t line = 0; line < bytes; line += 64) {
    for (std::size_t i = line; i < line + 64; ++i) into[i] = std::max(into[i], from[i]);
  }
}

std::uint16_t Memory::snapshot_of(const View& view) {
  if (snapshots_ == kMaxSnapshots) throw std::logic_error("simulator: too many releases; make fewer calls");
  std::memcpy(snapshot_views_[snapshots_].data(), view.data(), used_bytes());
  return static_cast<std::uint16_t>(snapshots_++);
}

void Memory::see(unsigned thread, std::uint16_t snapshot, bool acquire) {
  met_[thread].set(snapshot);
  if (acquire) return learn(thread, snapshot);
  pending_[thread].push_back(snapshot);
}

// Views only grow, so none is joined twice.
void Memory::learn(unsigned thread, std::uint16_t snapshot) {
  if (known_[thread].test(snapshot)) return;
  known_[thread].set(snapshot);
  join_view(views_[thread], snapshot_views_[snapshot]);
}

void Memory::fence(unsigned thread, bool acquire, bool release) {
  if (acquire) {
    for (const std::uint16_t snapshot : pending_[thread]) learn(thread, snapshot);
    pending_[thread].clear();
  }
  if (release) released_[thread] = snapshot_of(views_[thread]);
}

void Memory::fence_seq_cst(unsigned thread) {
  fence(thread, true, false);
  join_view(views_[thread], seq_cst_);
  join_view(seq_cst_, views_[thread]);
  fence(thread, false, true);
}

// Joins the threads' views into the first thread's view.
unsigned Memory::gather(ThreadMask threads) {
  const auto first = static_cast<unsigned>(__builtin_ctzll(threads));
  for (ThreadMask rest = threads & (threads - 1); rest != 0; rest &= rest - 1) {
    const auto thread = static_cast<unsigned>(__builtin_ctzll(rest));
    join_view(views_[first], views_[thread]);
  }
  return first;
}

void Memory::spread(unsigned from, ThreadMask threads) {
  for (ThreadMask rest = threads & ~bit(from); rest != 0; rest &= rest - 1) {
    const auto thread = static_cast<unsigned>(__builtin_ctzll(rest));
    std::memcpy(views_[thread].data(), views_[from].data(), used_bytes());
  }
}

void Memory::join(ThreadMask threads) {
  if ((threads & (threads - 1)) != 0) spread(gather(threads), threads);
}

void Memory::join_rank(unsigned thread, unsigned rank) {
  for (unsigned other = 0; other < viewers_; ++other) {
    if (rank_of_[other] == rank) join_view(views_[thread], views_[other]);
  }
}

void Memory::boundary(ThreadMask ended, ThreadMask started) {
  const bool proxies = viewers_ != threads_;
  for (ThreadMask rest = ended; rest != 0; rest &= rest - 1) {
    const auto thread = static_cast<unsigned>(__builtin_ctzll(rest));
    fence(thread, true, false);
    if (!proxies) continue;
    fence(proxy(thread), true, false);
    join_view(views_[thread], views_[proxy(thread)]);
  }
  const unsigned first = gather(ended | started);
  fence(first, false, true);
  spread(first, started);
  for (ThreadMask rest = started; rest != 0; rest &= rest - 1) {
    const auto thread = static_cast<unsigned>(__builtin_ctzll(rest));
    released_[thread] = released_[first];
    if (!proxies) continue;
    fence_proxy(thread);
    released_[proxy(thread)] = released_[first];
  }
}

}  // namespace weft::sim
