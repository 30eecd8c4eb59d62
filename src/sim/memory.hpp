// Memory as weak as the hardware may be.
//
// Every location keeps the messages (stores) of an execution in one order, its modification order. A thread has a view:
// for each location the oldest message that it may still read (messages older than all views may be forgotten). A
// relaxed load may read any message from there to the newest. A relaxed store may take any place behind the thread's
// view, not only the end. So a store may become visible late, to one reader before another, and after later stores to
// other places; a store of several units tears.
//
// Operations that order memory pass views on. An acquire joins the view that its message has released, and nothing
// else. An acquire fence joins the views that all messages read by its own thread had released. A block's sync() joins
// the views of its threads, but not messages that one of them has read and not acquired. A kernel boundary joins the
// views of all threads of a launch, with all views that the messages they read had released; later launches' stores
// release the result. A thread's copies in bulk have a view of their own (proxy()), which fences and completed copies
// join with the thread's. (The view machine of Kang et al., "A promising semantics for relaxed-memory concurrency",
// POPL 2017, without promises; docs/reliability.md lists the cases that this leaves out.)
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/pack.hpp"

namespace weft::sim {

using detail::Pack;

inline constexpr unsigned kMaxThreads = 64;
using ThreadMask = std::uint64_t;
constexpr ThreadMask bit(unsigned thread) {
  return ThreadMask{1} << thread;
}

// The use of a stretch of memory decides which rules its stores must keep.
enum class AreaKind : std::uint8_t {
  slot,     // of packs that rest at all ones: data lands on rest only, and unread data is not overwritten
  header,   // of words: no peer's word is overwritten before this rank has read it
  record,   // of a dispatch's lines: likewise, but lines that only renew the flag may be (ops/moe/moe_dispatch.hpp)
  word,     // no rule
  ignored,  // loads and stores are no steps, and loads find 0: words that no thread reads in this set-up
  told,     // of words for a host that reads them at any time: none comes twice with one stamp, its lower half
};

struct Area {
  std::size_t begin, end;  // byte offsets
  unsigned owner;          // rank
  AreaKind kind;
  std::function<std::string(std::size_t offset)> name;
};

// The first word of an empty record: a row for no expert.
inline constexpr std::uint32_t kEmptyRecord = 0xffffffffu;

class Memory {
 public:
  using Location = std::uint16_t;
  static constexpr Location kIgnored = 0;
  static constexpr unsigned kMaxLocations = 2048 + 64;  // not a power of two: views would share lines of the cache
  static constexpr unsigned kMaxMessages = 40;
  static constexpr unsigned kMaxSnapshots = 1024;

  struct Message {
    Pack value;
    std::uint16_t snapshot;  // the view that an acquire of this message joins; 0: none
    std::uint8_t rank;       // of the writer; kNobody: initial
    bool read_by_owner : 1;
    bool exchanged : 1;  // by an exchange: no message may come in between
  };
  static constexpr std::uint8_t kNobody = 0xff;

  // `rank_of[t]`: the rank of thread t. `proxies`: whether there are any.
  Memory(std::size_t bytes, std::vector<unsigned> rank_of, bool proxies = false);
  // Copies in bulk of a thread load and store as a thread of their own, which has this number.
  unsigned proxy(unsigned thread) const { return threads_ + thread; }

  // Initial contents: fill them in, then declare the areas.
  std::byte* data() { return data_.get(); }
  std::size_t bytes() const { return bytes_; }
  void add_area(Area area);

  // Back to the initial contents.
  void reset();

  Location locate(const void* address, unsigned bytes) {
    const std::size_t word = word_of(address);
    if (word >= index_.size()) return bad_address();
    const Location location = index_[word];
    return location == kUnknown || places_[location].width != bytes ? create(word, bytes) : location;
  }
  // The last value stored to an ignored word, if only one thread stores to it.
  std::uint32_t last(const std::uint32_t* address) const { return last_[word_of(address)]; }
  void keep(void* address, const void* value, unsigned bytes) { std::memcpy(&last_[word_of(address)], value, bytes); }
  // Memory of one rank that lies elsewhere has no places.
  bool holds(const void* address) const { return word_of(address) < index_.size(); }
  bool ignored(const void* address) const {
    const std::size_t word = word_of(address);
    return word < index_.size() && index_[word] == kIgnored;
  }

  // The number of messages that the thread may read, or of places that its store may take: ages 0 (newest) … n − 1.
  unsigned choices(unsigned thread, Location at) const { return places_[at].count - views_[thread][at]; }
  bool stale(unsigned thread, Location at) const { return choices(thread, at) > 1; }
  unsigned locations() const { return used_; }
  unsigned width(Location at) const { return places_[at].width; }

  const Pack& load(unsigned thread, Location at, unsigned age, bool acquire = false) {
    const Place& place = places_[at];
    const unsigned index = place.count - 1u - age;
    views_[thread][at] = static_cast<std::uint8_t>(index);
    Message& message = histories_[at].messages[index];
    if (place.owner == rank_of_[thread]) message.read_by_owner = true;
    if (message.snapshot != 0 && !(acquire ? known_ : met_)[thread].test(message.snapshot)) {
      see(thread, message.snapshot, acquire);
    }
    return message.value;
  }

  // Returns the rule that the store broke, or null.
  const char* store(unsigned thread, Location at, const Pack& value, unsigned age, bool release = false);
  Pack exchange(unsigned thread, Location at, const Pack& value);

  // An acquire adds the views of messages that the thread has read to its own. A release passes its view to threads
  // that acquire its later stores.
  void fence(unsigned thread, bool acquire, bool release);
  void fence_seq_cst(unsigned thread);
  // A proxy learns all that its thread knows.
  void fence_proxy(unsigned thread) { join_view(views_[proxy(thread)], views_[thread]); }
  // A thread knows what a proxy has loaded from a place, or stored there.
  void see_copy(unsigned thread, unsigned by, Location at) {
    views_[thread][at] = std::max(views_[thread][at], views_[by][at]);
  }
  // Barrier of a block.
  void join(ThreadMask threads);
  // The thread is told that a rank is gone: all that rank's stores come before.
  void join_rank(unsigned thread, unsigned rank);
  // Kernel boundary: everything in `ended` happens before everything in `started` and in the messages that it sends.
  void boundary(ThreadMask ended, ThreadMask started);

  // The final state, for checks at the end of an execution.
  const Pack& newest(Location at) const { return histories_[at].messages[places_[at].count - 1u].value; }
  template <class Visit>
  void each_location(Visit&& visit) const {
    for (Location at = 1; at < used_; ++at) visit(at, places_[at].kind, places_[at].width);
  }
  std::string name(Location at) const { return at == kIgnored ? "ignored" : name_of(data_.get() + offsets_[at]); }
  std::string name_of(const void* address) const;
  // Stores so far to places between two byte offsets.
  std::uint64_t stores(std::size_t begin, std::size_t end) const;
  // Stores so far by a rank to the memory of others: all, and those of whole packs.
  std::uint64_t sent(unsigned rank) const { return sent_[rank]; }
  std::uint64_t sent_packs(unsigned rank) const { return sent_packs_[rank]; }

 private:
  static constexpr Location kUnknown = 0xffff;
  using View = std::array<std::uint8_t, kMaxLocations>;
  // Every access looks at these, so they lie side by side.
  struct Place {
    std::uint8_t count, width, owner;  // messages, bytes, rank
    AreaKind kind;
  };
  // An odd number of lines, so that places do not meet in a few sets of the cache.
  struct alignas(64) History {
    std::array<Message, kMaxMessages> messages;
    std::byte beyond[64];
  };
  static_assert(sizeof(History) / 64 % 2 == 1);

  std::size_t word_of(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - data_.get()) / 4;
  }
  Location create(std::size_t word, unsigned bytes);
  void put_initial(Location at);
  void forget(Location at);
  [[noreturn]] static Location bad_address();
  std::size_t used_bytes() const { return std::size_t{used_ + 63u} / 64 * 64; }
  void join_view(View& into, const View& from) const;
  std::uint16_t snapshot_of(const View& view);
  void see(unsigned thread, std::uint16_t snapshot, bool acquire);
  void learn(unsigned thread, std::uint16_t snapshot);
  unsigned gather(ThreadMask threads);
  void spread(unsigned from, ThreadMask threads);
  bool only_renews(Location at, const Pack& value) const;
  const char* broken_rule(Location at, unsigned index) const;

  struct AlignedDelete {
    void operator()(std::byte* data) const { ::operator delete[](data, std::align_val_t{256}); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte[], AlignedDelete> data_;
  unsigned threads_, viewers_;  // viewers: threads, then their proxies
  std::vector<unsigned> rank_of_;
  std::vector<std::uint64_t> sent_, sent_packs_;  // by rank
  std::vector<Area> areas_;
  std::vector<Location> index_;      // by word of data_
  std::vector<std::uint32_t> last_;  // of ignored words

  unsigned used_ = 1;  // location 0 stands for all ignored words
  std::array<Place, kMaxLocations> places_{};
  std::array<std::size_t, kMaxLocations> offsets_{};
  std::array<std::uint32_t, kMaxLocations> forgotten_{};  // messages of the execution that were removed
  std::vector<History> histories_;

  static constexpr unsigned kMaxViewers = 2 * kMaxThreads;
  std::array<View, kMaxViewers> views_{};
  // Snapshots that the view has; these, and those of messages read but not acquired; the latter as a list.
  std::array<std::bitset<kMaxSnapshots>, kMaxViewers> known_{}, met_{};
  std::array<std::vector<std::uint16_t>, kMaxViewers> pending_{};
  std::array<std::uint16_t, kMaxViewers> released_{};  // snapshot that relaxed stores carry
  unsigned snapshots_ = 1;                             // 0 is the empty view
  std::vector<View> snapshot_views_;
  View seq_cst_{};
};

}  // namespace weft::sim
