// The simulator's team: one thread of a block, whose every access to shared memory is a step of the machine.
#pragma once

#include <cstdint>

#include "sim/machine.hpp"
#include "team/team.hpp"

namespace weft::sim {

// What one launch is for one thread.
struct Place {
  std::uint32_t block, blocks;
  std::uint32_t thread, threads;
  std::uint32_t host_epoch;  // what a host that counts calls as it makes or records them would have passed
};

// `atomic_bytes`: the unit in which a pack travels.
template <int atomic_bytes>
class SimTeam {
 public:
  static constexpr int kAtomicBytes = atomic_bytes;
  static constexpr std::uint32_t kLeastThreads = 1;
  static constexpr std::uint32_t kSpinsPerCheck = 2;  // a wait sleeps until there is something new, so turns are few

  SimTeam(Machine& machine, Place place) : machine_(&machine), place_(place) {}

  std::uint32_t thread_rank() const { return place_.thread; }
  std::uint32_t size() const { return place_.threads; }
  std::uint32_t block_rank() const { return place_.block; }
  std::uint32_t blocks() const { return place_.blocks; }
  void sync() const { machine_->sync(); }
  bool all(bool good) const { return machine_->all(good); }
  // Weak enough for ordinary accesses: whatever no signal orders may be seen late and torn.
  void put(Pack* to, const Pack& value) const { machine_->store_pack<atomic_bytes>(to, value); }
  Pack get(const Pack* from) const { return machine_->load_pack<atomic_bytes>(from); }
  static constexpr std::uint32_t kLanes = 1;
  static bool all_lanes(bool good) { return good; }
  static float max_of(float value, std::uint32_t) { return value; }
  static std::uint32_t sum_of(std::uint32_t value, std::uint32_t) { return value; }
  static float sum_of(float value, std::uint32_t) { return value; }
  static constexpr std::uint32_t kScratchWords = Machine::kScratchWords;
  float* scratch() const { return machine_->scratch(); }
  static std::uint32_t or_of(std::uint32_t value) { return value; }
  static std::uint32_t from_lane(std::uint32_t value, std::uint32_t) { return value; }

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
  Machine* machine_;
  Place place_;
};

static_assert(detail::Team<SimTeam<4>> && detail::Team<SimTeam<8>> && detail::Team<SimTeam<16>>);

}  // namespace weft::sim
