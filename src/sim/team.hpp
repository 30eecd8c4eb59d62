// The simulator's team: one thread of a block. Its every access to shared memory is a step of the machine.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "sim/machine.hpp"
#include "team/team.hpp"

namespace weft::sim {

// One launch in the view of one thread.
struct Place {
  std::uint32_t block, blocks;
  std::uint32_t thread, threads;
  std::uint32_t host_epoch;  // a host's count of calls, made or recorded
};

// `atomic_bytes`: the unit in which a pack travels. `lanes`: of a warp, as in Machine::Args.
template <int atomic_bytes, std::uint32_t lanes = 1>
class SimTeam {
 public:
  static constexpr int kAtomicBytes = atomic_bytes;
  static constexpr std::uint32_t kLeastThreads = lanes;
  static constexpr std::uint32_t kMostBlocks = Machine::kMostBlocks;
  static constexpr std::uint32_t kSpinsPerCheck = 2;  // a wait sleeps until there is something new, so turns are few
  static constexpr bool kMulticast = false;

  SimTeam(Machine& machine, Place place) : machine_(&machine), place_(place) {}

  std::uint32_t thread_rank() const { return place_.thread; }
  std::uint32_t size() const { return place_.threads; }
  std::uint32_t block_rank() const { return place_.block; }
  std::uint32_t blocks() const { return place_.blocks; }
  void sync() const { machine_->sync(); }
  bool all(bool good) const { return machine_->all(good); }
  // Weak enough for ordinary accesses: data that no signal orders may be seen late and torn.
  void put(Pack* to, const Pack& value) const { machine_->store_pack<atomic_bytes>(to, value); }
  Pack get(const Pack* from) const { return machine_->load_pack<atomic_bytes>(from); }
  static constexpr std::uint32_t kPacksAhead = 4;
  static constexpr std::uint32_t kLanes = lanes;
  bool all_lanes(bool good) const {
    return reduced("all_lanes", std::uint32_t{good}, lanes, [](std::uint32_t a, std::uint32_t b) { return a & b; }) !=
           0;
  }
  float max_of(float value, std::uint32_t among) const {
    return reduced("max_of", value, among, [](float a, float b) { return std::fmax(a, b); });
  }
  std::uint32_t sum_of(std::uint32_t value, std::uint32_t among) const {
    return reduced("sum_of", value, among, [](std::uint32_t a, std::uint32_t b) { return a + b; });
  }
  float sum_of(float value, std::uint32_t among) const {
    return reduced("sum_of floats", value, among, [](float a, float b) { return a + b; });
  }
  std::uint32_t most_of(std::uint32_t value) const {
    return reduced("most_of", value, lanes, [](std::uint32_t a, std::uint32_t b) { return a > b ? a : b; });
  }
  std::uint32_t or_of(std::uint32_t value) const {
    return reduced("or_of", value, lanes, [](std::uint32_t a, std::uint32_t b) { return a | b; });
  }
  std::uint32_t from_lane(std::uint32_t value, std::uint32_t lane) const {
    if constexpr (lanes == 1) return value;
    return machine_->ask_lanes({"from_lane", lanes}, value)[lane % lanes];
  }
  static constexpr std::uint32_t kScratchWords = Machine::kScratchWords;
  float* scratch() const { return machine_->scratch(); }
  static constexpr std::uint32_t kTallyWords = Machine::kTallyWords;
  static void prefetch(const void*, std::uint32_t) {}
  std::uint32_t* tally() const { return machine_->tally(); }
  static void add(std::uint32_t* counter) { ++*counter; }
  void sync_lanes() const { machine_->sync_lanes(); }

  static constexpr std::uint32_t kStagePlaces = Copies::kPlaces, kStageBytes = Copies::kBytes;
  static constexpr std::uint32_t kPieceBytes = 16;
  void begin_stage() const { machine_->copies().begin(place_.block); }
  template <class Word>
  Word staged(std::uint32_t place, std::uint32_t i) const {
    Word word;
    machine_->copies().read({place_.block, place}, i * sizeof(Word), &word, sizeof(Word));
    return word;
  }
  template <class Word>
  void stage(std::uint32_t place, std::uint32_t i, Word word) const {
    machine_->copies().write({place_.block, place}, i * sizeof(Word), &word, sizeof(Word));
  }
  void load_bulk(std::uint32_t place, const void* from, std::uint32_t bytes) const {
    machine_->copies().load({place_.block, place}, from, bytes, atomic_bytes);
  }
  void await_load(std::uint32_t place) const { machine_->copies().await_load({place_.block, place}); }
  void store_bulk(void* to, std::uint32_t place, std::uint32_t bytes, std::uint32_t from = 0) const {
    machine_->copies().store(to, {place_.block, place}, from, bytes, atomic_bytes);
  }
  void commit_stores() const { machine_->copies().commit(place_.block); }
  template <std::uint32_t pending>
  void await_reads() const {
    machine_->copies().await_reads(place_.block, pending);
  }
  template <std::uint32_t pending>
  void await_stores() const {
    machine_->copies().await_stores(place_.block, pending);
  }
  void fence_stage() const { machine_->copies().fence_stage(place_.block); }
  void fence_bulk() const { machine_->copies().fence_bulk(); }
  void end_stage() const { machine_->copies().end(place_.block); }

  void share(std::uint32_t i, std::uint64_t word) const { machine_->share(place_.block, i, word); }
  std::uint64_t shared(std::uint32_t i) const { return machine_->shared(place_.block, i); }

  void store(Pack* to, Pack value) const { machine_->store_pack<atomic_bytes>(to, value); }
  Pack load(const Pack* from) const { return machine_->load_pack<atomic_bytes>(from); }
  template <class Word>
  void store(Word* to, Word value) const {
    machine_->store(to, value);
  }
  template <class Word>
  Word load(const Word* from) const {
    return machine_->load(from);
  }
  template <class Word>
  void store_release(Word* to, Word value) const {
    machine_->store(to, value, true);
  }
  template <class Word>
  Word load_acquire(const Word* from) const {
    return machine_->load(from, true);
  }
  std::uint32_t exchange(std::uint32_t* at, std::uint32_t value) const { return machine_->exchange(at, value); }

  std::uint64_t now() const { return machine_->now(); }
  template <class Value>
  static void settle(Value&) {}
  void relax(std::uint32_t) const { machine_->relax(); }
  int dead_peer() const { return machine_->dead_peer(); }
  // For a seeded bug: production kernels count by themselves.
  std::uint32_t host_epoch() const { return place_.host_epoch; }

 private:
  // Joins values of this thread and its neighbours: pairs, then neighbouring pairs, and so on.
  template <class Value, class Join>
  Value reduced(std::string_view call, Value value, std::uint32_t among, Join join) const {
    if constexpr (lanes == 1) return value;
    const Machine::Lanes& all = machine_->ask_lanes({call, among}, std::bit_cast<std::uint32_t>(value));
    std::array<Value, lanes> values;
    const std::uint32_t first = thread_rank() % lanes / among * among;
    for (std::uint32_t i = 0; i < among; ++i) values[i] = std::bit_cast<Value>(all[first + i]);
    for (std::uint32_t count = among; count > 1; count /= 2) {
      for (std::uint32_t i = 0; i < count / 2; ++i) values[i] = join(values[2 * i], values[2 * i + 1]);
    }
    return values[0];
  }

  Machine* machine_;
  Place place_;
};

static_assert(detail::Team<SimTeam<4>> && detail::Team<SimTeam<8>> && detail::Team<SimTeam<16>> &&
              detail::Team<SimTeam<16, 2>>);

}  // namespace weft::sim
