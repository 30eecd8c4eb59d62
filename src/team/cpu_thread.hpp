// The CPU executor's team: one block is one thread, so that strided loops have stride one.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <type_traits>

#include "base/peer_watch.hpp"
#include "team/team.hpp"

namespace weft::detail {

class CpuThread {
 public:
  static constexpr int kAtomicBytes = 8;  // the widest store that C++ guarantees to be one piece on every 64-bit CPU
  static constexpr std::uint32_t kLeastThreads = 1;
  static constexpr std::uint32_t kMostBlocks = 2;
  static constexpr std::uint32_t kSpinsPerCheck = 128;
  static constexpr std::uint32_t kSpinsAlone = 64;          // before a wait lets others have the core
  static constexpr std::uint64_t kSomebodyElseNs = 20'000;  // a yield that took longer has let another thread work
  static constexpr bool kMulticast = false;

  CpuThread(std::uint32_t block_rank, std::uint32_t blocks, const PeerWatch* watch)
      : block_rank_(block_rank), blocks_(blocks), watch_(watch) {}

  static constexpr std::uint32_t thread_rank() { return 0; }
  static constexpr std::uint32_t size() { return 1; }
  std::uint32_t block_rank() const { return block_rank_; }
  std::uint32_t blocks() const { return blocks_; }
  static constexpr void sync() {}
  static constexpr bool all(bool good) { return good; }
  static void put(Pack* to, const Pack& value) { *to = value; }
  static Pack get(const Pack* from) { return *from; }
  static constexpr std::uint32_t kPacksAhead = 1;
  static constexpr std::uint32_t kLanes = 1;
  static bool all_lanes(bool good) { return good; }
  static float max_of(float value, std::uint32_t) { return value; }
  static std::uint32_t sum_of(std::uint32_t value, std::uint32_t) { return value; }
  static float sum_of(float value, std::uint32_t) { return value; }
  static std::uint32_t most_of(std::uint32_t value) { return value; }
  static std::uint32_t or_of(std::uint32_t value) { return value; }
  static std::uint32_t from_lane(std::uint32_t value, std::uint32_t) { return value; }

  static constexpr std::uint32_t kScratchWords = 2 * kMostRowPacks;
  static float* scratch() {
    thread_local float words[kScratchWords];
    return words;
  }
  static constexpr std::uint32_t kTallyWords = kMostTallyWords;
  static std::uint32_t* tally() {
    thread_local std::uint32_t words[kTallyWords];
    return words;
  }
  static void add(std::uint32_t* counter) { ++*counter; }
  static constexpr void sync_lanes() {}
  static void prefetch(const void*, std::uint32_t) {}
  void share(std::uint32_t i, std::uint64_t word) { shared_[i] = word; }
  std::uint64_t shared(std::uint32_t i) const { return shared_[i]; }

  // Registers put halves together and take them apart. Through memory, a load that spans two stores would wait for
  // both.
  static void store(Pack* to, Pack value) {
    auto* halves = reinterpret_cast<std::uint64_t*>(to);
    store(halves, value.word[0] | static_cast<std::uint64_t>(value.word[1]) << 32);
    store(halves + 1, value.word[2] | static_cast<std::uint64_t>(value.word[3]) << 32);
  }
  static Pack load(const Pack* from) {
    const auto* halves = reinterpret_cast<const std::uint64_t*>(from);
    const std::uint64_t low = load(halves), high = load(halves + 1);
    return {{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32), static_cast<std::uint32_t>(high),
             static_cast<std::uint32_t>(high >> 32)}};
  }
  template <class Word>
  static void store(Word* to, Word value) {
    std::atomic_ref(*to).store(value, std::memory_order_relaxed);
  }
  template <class Word>
  static void store_release(Word* to, Word value) {
    std::atomic_ref(*to).store(value, std::memory_order_release);
  }
  template <class Word>
  static Word load(const Word* from) {
    return std::atomic_ref(*const_cast<Word*>(from)).load(std::memory_order_relaxed);
  }
  template <class Word>
  static Word load_acquire(const Word* from) {
    return std::atomic_ref(*const_cast<Word*>(from)).load(std::memory_order_acquire);
  }
  static std::uint32_t exchange(std::uint32_t* at, std::uint32_t value) {
    return std::atomic_ref(*at).exchange(value, std::memory_order_acq_rel);
  }

  static std::uint64_t now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
  }
  template <class Value>
  static void settle(Value&) {}
  // Ranks may outnumber cores, so a waiting rank soon yields its core. If others have work for it, the rank sleeps
  // instead, about 70 µs at a time because of timers. Since Linux 6.18 ("sched/fair: Forfeit vruntime on yield") each
  // yield costs a whole slice: a yielding thread looked around once in three milliseconds.
  static void relax(std::uint32_t spins) {
    thread_local bool crowded = false;
    if (spins < kSpinsAlone) return;
    if (spins == kSpinsAlone) crowded = false;
    if (crowded) return std::this_thread::sleep_for(std::chrono::microseconds(20));
    const std::uint64_t begin = now();
    sched_yield();
    crowded = now() - begin > kSomebodyElseNs;
  }

  // Copies in bulk are made at once.
  static constexpr std::uint32_t kStagePlaces = 3, kStageBytes = GpuStage().bytes, kPieceBytes = 512;
  static void begin_stage() {}
  template <class Word>
  static Word staged(std::uint32_t place, std::uint32_t i) {
    return word_at<Word>(place, i);
  }
  template <class Word>
  static void stage(std::uint32_t place, std::uint32_t i, Word word) {
    word_at<Word>(place, i) = word;
  }
  static void load_bulk(std::uint32_t place, const void* from, std::uint32_t bytes) {
    for (std::uint32_t i = 0; i < bytes / sizeof(Pack); ++i) stage(place, i, load(static_cast<const Pack*>(from) + i));
  }
  static void await_load(std::uint32_t) {}
  static void store_bulk(void* to, std::uint32_t place, std::uint32_t bytes, std::uint32_t from = 0) {
    const std::uint32_t first = from / sizeof(Pack);
    for (std::uint32_t i = 0; i < bytes / sizeof(Pack); ++i) {
      store(static_cast<Pack*>(to) + i, staged<Pack>(place, first + i));
    }
  }
  static void commit_stores() {}
  template <std::uint32_t>
  static void await_reads() {}
  template <std::uint32_t>
  static void await_stores() {}
  static void fence_stage() {}
  static void fence_bulk() {}
  static void end_stage() {}

  int dead_peer() const { return watch_ == nullptr ? -1 : watch_->dead_peer().value_or(-1); }

 private:
  template <class Word>
  static Word& word_at(std::uint32_t place, std::uint32_t i) {
    static_assert(std::is_same_v<Word, Pack> || std::is_same_v<Word, std::uint32_t>);
    if constexpr (std::is_same_v<Word, Pack>) {
      return pack_at(place, i);
    } else {
      return pack_at(place, i / 4).word[i % 4];
    }
  }
  static Pack& pack_at(std::uint32_t place, std::uint32_t i) {
    thread_local std::array<std::array<Pack, kStageBytes / sizeof(Pack)>, kStagePlaces> places;
    return places[place][i];
  }

  std::uint32_t block_rank_;
  std::uint32_t blocks_;
  const PeerWatch* watch_;
  std::array<std::uint64_t, kSharedWords> shared_;  // written before it is read
};

static_assert(StagedTeam<CpuThread>);

}  // namespace weft::detail
