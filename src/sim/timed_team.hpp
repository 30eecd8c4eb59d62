// The team of a machine with clocks: a block is one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "sim/timed_machine.hpp"
#include "team/team.hpp"

namespace weft::sim {

class TimedTeam {
 public:
  static constexpr int kAtomicBytes = 16;
  static constexpr std::uint32_t kLeastThreads = 1, kLanes = 1;
  static constexpr std::uint32_t kMostBlocks = 2;
  static constexpr std::uint32_t kSpinsPerCheck = 1u << 31;  // nothing fails, and no deadline passes
  static constexpr bool kMulticast = false;
  static constexpr std::uint32_t kPacksAhead = 4;
  static constexpr std::uint32_t kScratchWords = 128, kTallyWords = 1024;

  TimedTeam(TimedMachine& machine, std::uint32_t block) : machine_(&machine), block_(block) {}

  static std::uint32_t thread_rank() { return 0; }
  static std::uint32_t size() { return 1; }
  std::uint32_t block_rank() const { return block_; }
  static std::uint32_t blocks() { return kMostBlocks; }

  void sync() const { machine_->await_answers(); }
  bool all(bool good) const { return machine_->await_answers(), good; }
  void sync_lanes() const {}
  bool all_lanes(bool good) const { return machine_->await_answers(), good; }
  template <class Value>
  Value max_of(Value value, std::uint32_t) const {
    return value;
  }
  template <class Value>
  Value sum_of(Value value, std::uint32_t) const {
    return value;
  }
  static std::uint32_t most_of(std::uint32_t value) { return value; }
  static std::uint32_t or_of(std::uint32_t value) { return value; }
  static std::uint32_t from_lane(std::uint32_t value, std::uint32_t) { return value; }
  void share(std::uint32_t i, std::uint64_t word) { shared_[i] = word; }
  std::uint64_t shared(std::uint32_t i) const { return shared_[i]; }
  float* scratch() { return scratch_.data(); }
  std::uint32_t* tally() { return tally_.data(); }
  static void add(std::uint32_t* counter) { ++*counter; }
  static void prefetch(const void*, std::uint32_t) {}

  template <class Word>
  void store(Word* to, Word value) const {
    machine_->store(to, &value, sizeof(Word));
  }
  template <class Word>
  Word load(const Word* from) const {
    Word value;
    machine_->load(from, &value, sizeof(Word));
    return value;
  }
  void put(detail::Pack* to, const detail::Pack& value) const { store(to, value); }
  detail::Pack get(const detail::Pack* from) const { return load(from); }
  template <class Word>
  void store_release(Word* to, Word value) const {
    machine_->store(to, &value, sizeof(Word), true);
  }
  template <class Word>
  Word load_acquire(const Word* from) const {
    return load(from);
  }
  static constexpr std::uint32_t kStagePlaces = 3, kStageBytes = 512, kPieceBytes = 16;
  static void begin_stage() {}
  template <class Word>
  Word staged(std::uint32_t place, std::uint32_t i) const {
    Word word;
    std::memcpy(&word, stage_[place].data() + i * sizeof(Word), sizeof(Word));
    return word;
  }
  template <class Word>
  void stage(std::uint32_t place, std::uint32_t i, Word word) {
    std::memcpy(stage_[place].data() + i * sizeof(Word), &word, sizeof(Word));
  }
  void load_bulk(std::uint32_t place, const void* from, std::uint32_t bytes) {
    machine_->load_bulk(from, stage_[place].data(), bytes);
  }
  void await_load(std::uint32_t) const { machine_->await_answers(); }
  void store_bulk(void* to, std::uint32_t place, std::uint32_t bytes, std::uint32_t from = 0) const {
    machine_->store_bulk(to, stage_[place].data() + from, bytes);
  }
  static void commit_stores() {}
  template <std::uint32_t pending>
  static void await_reads() {}
  template <std::uint32_t pending>
  static void await_stores() {}
  static void fence_stage() {}
  static void fence_bulk() {}
  static void end_stage() {}

  std::uint32_t exchange(std::uint32_t* at, std::uint32_t value) const {
    const std::uint32_t old = load(at);
    store(at, value);
    machine_->await_answers();
    return old;
  }

  std::uint64_t now() const { return static_cast<std::uint64_t>(machine_->now()); }
  template <class Value>
  static void settle(Value&) {}
  void relax(std::uint32_t) const { machine_->relax(); }
  static int dead_peer() { return -1; }
  static std::uint32_t host_epoch() { return 0; }  // for a seeded bug, as in SimTeam

 private:
  TimedMachine* machine_;
  std::uint32_t block_;
  std::array<std::uint64_t, detail::kSharedWords> shared_ = {};
  std::array<std::array<std::byte, kStageBytes>, kStagePlaces> stage_ = {};
  std::array<float, kScratchWords> scratch_ = {};
  std::array<std::uint32_t, kTallyWords> tally_ = {};
};

static_assert(detail::StagedTeam<TimedTeam>);

}  // namespace weft::sim
