// Copies in bulk of the machine's warps, which run beside their threads: a model of cp.async.bulk.
//
// A warp has a stage, which is a few places that its lanes share. A load copies memory into a place, a store copies a
// place into memory. Both belong to the async proxy of the lane that has begun them. The proxy has a view of memory of
// its own (Memory::proxy). So a copy knows what an acquire of its lane has made known only behind fence_bulk. When a
// copy is made is a choice: at once, or when somebody awaits it.
//
// Words of a place are plain ones, and rules stand for views. Two accesses by different lanes, one of them a store,
// need a barrier of the warp in between. Copies must have been awaited, and ordinary stores be passed on to the proxy
// by fence_stage. Breaking a rule is found whatever the schedule. If none is broken, all accesses to a word are
// ordered, and it has one value.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernel/blocks.hpp"
#include "sim/memory.hpp"

namespace weft::sim {

class Machine;

class Copies {
 public:
  static constexpr unsigned kPlaces = 3, kBytes = 512;

  // A place of the running thread's warp. `block`: as in Machine::share.
  struct Spot {
    unsigned block, place;
  };

  explicit Copies(Machine& machine);

  // Called by the machine when a launch begins with this block, threads have met in a barrier, or one ends its launch.
  void start_block(ThreadMask block);
  void synced(ThreadMask threads);
  void leave_launch(unsigned thread);
  std::string missing() const;  // in words: which loads are awaited that nobody begins

  // For the running thread; src/team/team.hpp. `unit`: in which packs travel.
  void begin(unsigned block);
  void end(unsigned block);
  void read(Spot spot, unsigned first_byte, void* to, unsigned bytes);
  void write(Spot spot, unsigned first_byte, const void* from, unsigned bytes);
  void fence_stage(unsigned block);
  void fence_bulk();
  void load(Spot spot, const void* from, unsigned bytes, int unit);
  void await_load(Spot spot);
  void store(void* to, Spot spot, unsigned from, unsigned bytes, int unit);
  void commit(unsigned block);
  void await_reads(unsigned block, unsigned pending);
  void await_stores(unsigned block, unsigned pending);

 private:
  static constexpr unsigned kMostLanes = 16, kNobody = kMostLanes, kWords = kBytes / 4;
  static constexpr std::uint32_t kPoison = 0xdeadc0deu;
  using LaneMask = std::uint32_t;

  // Times are numbers of the warp's barriers, from 1.
  struct Word {
    std::uint32_t value = kPoison;
    unsigned load = 0;                     // the number of the last load that covers it; 0: none
    unsigned writer = kNobody;             // the lane that has stored it since then …
    std::uint64_t stored = 0, fenced = 0;  // … and when; 0: not yet
    std::uint64_t read = 0;                // the last time …
    LaneMask readers = 0;                  // … and who read it then
    LaneMask senders = 0;                  // lanes with a store under way that may still read it
  };
  enum class Phase : std::uint8_t { called, issued, runs, done };
  struct Load {
    unsigned number = 0;  // of the place, from 1
    const std::byte* from = nullptr;
    unsigned bytes = 0;
    int unit = 0;
    Phase phase = Phase::done;
    ThreadMask sleepers = 0;  // threads that wait for the next phase
  };
  struct Place {
    std::array<Word, kWords> words{};
    unsigned used = 0;  // words in front; the others are as at the beginning
    Load load = {};

    Word& use(unsigned i) {
      if (i >= used) used = i + 1;
      return words[i];
    }
    std::span<Word> all_used() { return {words.data(), used}; }
    void clear() {
      std::ranges::fill(all_used(), Word{});
      used = 0;
      load = {};
    }
  };
  struct Store {
    std::byte* to;
    unsigned place, from, bytes;
    int unit;
    std::uint64_t group;
    bool reads = true, late = true;  // whether it may still read its place, and has still to write
    std::array<std::uint32_t, kWords> data = {};
  };
  struct Lane {
    std::array<unsigned, kPlaces> called{}, awaited{};  // numbers of loads
    std::uint64_t groups = 0;                           // that have ended
    std::vector<Store> stores = {};                     // under way
  };
  struct Stage {
    std::array<Place, kPlaces> places{};
    std::array<Lane, kMostLanes> lanes{};
    LaneMask begun = 0;
  };

  unsigned lane() const;
  unsigned first() const;  // thread of the running thread's warp
  std::uint64_t now() const { return barriers_[first()]; }
  // A thread that is a whole rank makes the part of each of its blocks.
  Stage& stage_of(unsigned first, unsigned block) {
    return stages_[first * detail::kThreadBlocks + block % detail::kThreadBlocks];
  }
  Stage& stage(Spot spot);  // which this lane has begun
  static bool awaits(const Lane& lane, unsigned place) { return lane.awaited[place] != lane.called[place]; }
  void issue(Place& place, unsigned number);
  void finish(Load& load, Place& place, unsigned issuer);
  void sleep(Load& load);
  void wake(Load& load);
  void run(Store& store);
  void see(const std::byte* memory, unsigned bytes, int unit, unsigned by, bool poll);
  void mark_read(Word& word);
  void note(const std::string& what) const;
  void check_copy(unsigned place, const void* memory, unsigned bytes);
  void check_loaded(const Stage& stage, unsigned place, unsigned word, const char* act);
  [[noreturn]] void broken(unsigned place, const std::string& rule);

  Machine& machine_;
  std::vector<Stage> stages_;            // two for a thread, of which those of a warp's first one are used
  std::vector<std::uint64_t> barriers_;  // of the warp that begins with this thread, in its launch
};

}  // namespace weft::sim
