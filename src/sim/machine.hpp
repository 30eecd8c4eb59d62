// The machine: threads as fibers of one OS thread, over a memory as weak as the hardware may be, under a scheduler that
// decides every step. Threads form blocks (which have a barrier), and blocks form launches. The launches of one stream
// run one after the other, as kernels do.
#pragma once

#include <array>
#include <boost/context/fiber.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/copies.hpp"
#include "sim/memory.hpp"
#include "sim/schedule.hpp"

namespace weft::sim {

// One launch: the threads of each of its blocks.
using Launch = std::vector<ThreadMask>;

// A program for a machine.
class Program {
 public:
  virtual ~Program() = default;
  // The part of one thread in one launch of its stream.
  virtual void run(unsigned thread, unsigned launch) = 0;
  // After all threads have ended: the fault, or an empty string.
  virtual std::string check() = 0;
};

enum class FailureKind : std::uint8_t { none, wrong_result, deadlock, livelock, broken_rule, not_at_rest, internal };
std::string_view name(FailureKind kind);

struct Failure {
  FailureKind kind = FailureKind::none;
  std::string what;
  explicit operator bool() const { return kind != FailureKind::none; }
};

// A stream stops after this many steps.
struct Stop {
  unsigned stream;
  std::uint64_t step;
  std::uint64_t until = 0;  // goes on at this time; 0: never
  int dead_rank = -1;       // dead_peer()'s answer from then on; −1: its death is not known
};

class Machine {
 public:
  struct Args {
    std::size_t bytes;                         // of memory
    std::vector<unsigned> rank_of;             // of each thread
    std::vector<std::vector<Launch>> streams;  // launches, by stream
    std::uint64_t step_ns = 10;                // a step on the threads' clock
    std::uint64_t idle_ns = 0;                 // when no thread can go on, time does, by this much; 0: a deadlock
    unsigned idle_limit = 64;                  // most times that time goes on so
    std::uint64_t step_limit = 200'000;        // more is a livelock
    unsigned lanes = 1;                        // threads of a warp, which are neighbours in a block
    bool copies = false;                       // whether warps copy in bulk
  };
  explicit Machine(const Args& args);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  Memory& memory() { return memory_; }

  // One execution.
  Failure run(Program& program, Scheduler& scheduler, const std::optional<Stop>& stop = {});
  std::uint64_t steps() const { return steps_; }
  std::uint64_t steps_of(unsigned stream) const { return steps_of_[stream]; }

  // Writes down every thread's steps; `names[t]` is thread t.
  void trace_into(std::vector<std::string>* lines, std::vector<std::string> names);

  // For the running thread. Each is a step; sim/steps.cpp.
  template <int unit>
  Pack load_pack(const Pack* from);
  template <int unit>
  void store_pack(Pack* to, const Pack& value);
  template <class Word>
  Word load(const Word* from, bool acquire = false);
  template <class Word>
  void store(Word* to, Word value, bool release = false);
  std::uint32_t exchange(std::uint32_t* at, std::uint32_t value);
  void fence_acq_rel();
  void fence_seq_cst();
  // Words that the threads of a block share. No step. If no barrier lies between two threads' accesses, one of them a
  // store, this is found whatever the schedule. `block`: its number in the launch, because one thread may be several
  // blocks.
  void share(unsigned block, unsigned i, std::uint64_t word);
  std::uint64_t shared(unsigned block, unsigned i);
  void sync() { all(true); }
  // Scratch memory of the running thread's block: plain memory, because its threads run in turns. Without a barrier
  // they may see each other's values early or late.
  static constexpr std::uint32_t kScratchWords = 128;
  static constexpr std::uint32_t kTallyWords = 32;
  static constexpr std::uint32_t kMostBlocks = 16;  // of a launch, in any set-up
  float* scratch() {
    Block& block = blocks_[block_of_[current_]];
    block.scratched = true;
    return block.scratch.data();
  }
  std::uint32_t* tally() { return blocks_[block_of_[current_]].tally.data(); }
  bool all(bool good);
  // The values of all lanes of the running thread's warp, once all have made this call; sim/lanes.cpp.
  static constexpr unsigned kMostLanes = 16;
  using Lanes = std::array<std::uint32_t, kMostLanes>;
  struct LaneCall {
    std::string_view name;
    unsigned among;  // neighbours in the call
    bool operator==(const LaneCall& other) const {
      const bool one_text = name.data() == other.name.data() && name.size() == other.name.size();
      return among == other.among && (one_text || name == other.name);
    }
  };
  const Lanes& ask_lanes(LaneCall call, std::uint32_t value);
  // A barrier of the warp: a meeting that joins the lanes' views.
  void sync_lanes();
  // Stages of warps, and copies in bulk; throws if Args has none.
  Copies& copies();
  // In a waiting loop: sleeps until a place that it has read holds a newer value. The places are those of its last two
  // turns and since it last slept. (A wait looks at poison in every second turn.)
  void relax();
  std::uint64_t now() const { return steps_ * step_ns_ + idle_time_; }
  // The part of now() in which no thread could go on: in all, and before a stream stopped.
  std::uint64_t idled() const { return idle_time_; }
  std::uint64_t idled_before_stop() const { return idled_before_stop_; }
  // Rank of a stream that has stopped and is known to be dead, or −1. The caller then sees all its stores: the
  // operating system reports a death after the last of them.
  int dead_peer();

  bool dead_or_stopped() const { return stopped_ != 0; }
  // The number of stores that the stopped rank had made to others' memory by then.
  std::uint64_t sent_before_stop() const { return sent_before_stop_; }

 private:
  friend class Copies;
  struct Abandoned {};  // unwinds a fiber whose execution is over
  struct Stream {
    std::vector<Launch> launches;
    unsigned launch = 0;
    ThreadMask live = 0, last = 0;
    bool stopped = false;
  };
  struct Block {
    ThreadMask live = 0, arrived = 0;
    bool good = true, verdict = true;  // of all(): so far, and of the last barrier
    bool scratched = false;            // whether anybody has asked for `scratch` in this launch
    std::array<float, kScratchWords> scratch = {};
    std::array<std::uint32_t, kTallyWords> tally = {};
    // On the clock of barriers: when the launch began, and the last barrier.
    std::uint64_t began = 0, synced = 0;
  };
  struct Warp {
    ThreadMask live = 0, arrived = 0, called = 0;
    LaneCall call = {};           // of the lanes that have arrived
    Lanes given = {}, told = {};  // by them, and by all lanes at the last complete meeting
  };
  struct SharedWord {
    std::uint64_t value = 0;
    std::uint64_t stored = 0, loaded = 0;  // the last barrier before it
    unsigned writer = 0, reader = 0;       // kMain: several
  };
  static constexpr unsigned kMain = kMaxThreads;

  void point();
  void count_step();
  void stop_stream();
  void go_on();  // the present thread cannot: another does
  void switch_to(unsigned next);
  void resume(unsigned next);
  bool wake_somebody();
  void fiber_body(unsigned thread);
  void run_launches(unsigned thread);
  void start_launch(Stream& stream, ThreadMask ended);
  void leave_launch(unsigned thread);
  void release_barrier(Block& block);
  unsigned lane_of(unsigned thread) const { return lane_of_[thread]; }
  bool take_call();  // whether another lane of the running thread's warp has waited for it since it last asked
  void start_warps(ThreadMask block);
  void leave_warp(unsigned thread);
  std::string missing_lanes() const;  // in words: which lanes wait for which
  SharedWord& shared_word(unsigned block, unsigned i);
  [[noreturn]] void unshared(unsigned i, const char* rule);
  ThreadMask enabled() const { return ready_ & ~stopped_; }
  [[noreturn]] void fail(FailureKind kind, std::string what);

  // `viewer`: the running thread, or the proxy of one.
  const Pack& read_as(unsigned viewer, Memory::Location at, const char* what, bool acquire = false);
  void write_as(unsigned viewer, Memory::Location at, const Pack& value, const char* what, bool release = false);
  const Pack& read(Memory::Location at, const char* what, bool acquire = false);
  void write(Memory::Location at, const Pack& value, bool release);
  void wake_waiters(Memory::Location at);
  [[noreturn]] void broken(Memory::Location at, const char* rule);
  void note(const char* what, Memory::Location at, const Pack& value, unsigned age, unsigned choices);

  Memory memory_;
  std::uint64_t step_ns_, idle_ns_, step_limit_;
  unsigned idle_limit_, lanes_;
  unsigned threads_;
  std::vector<Stream> streams_;
  std::vector<unsigned> stream_of_, rank_of_;
  std::vector<unsigned> block_of_, lane_of_;  // in the present launch
  std::vector<Block> blocks_;                 // index: first thread of the block
  std::vector<Warp> warps_;                   // index: first thread of the warp
  std::vector<SharedWord> shared_;            // of blocks, with two for a thread
  std::uint64_t barriers_ = 0;                // … and beginnings of launches, ever
  std::unique_ptr<Copies> copies_;            // none: warps do not copy in bulk

  // of one execution
  Program* program_ = nullptr;
  Scheduler* scheduler_ = nullptr;
  std::optional<Stop> stop_;
  Failure failure_;
  std::uint64_t steps_ = 0, idle_time_ = 0;
  std::vector<std::uint64_t> steps_of_;  // by stream
  unsigned idle_count_ = 0;
  int dead_rank_ = -1;
  std::uint64_t sent_before_stop_ = 0, idled_before_stop_ = 0;
  unsigned running_streams_ = 0;
  unsigned current_ = kMain;
  unsigned previous_ = kMain;
  bool unwinding_ = false;
  ThreadMask ready_ = 0, waiting_ = 0, stopped_ = 0, inside_ = 0;
  std::vector<std::vector<Memory::Location>> polled_;         // by thread: since the last relax()
  std::vector<std::vector<Memory::Location>> polled_before_;  // and before that, unless the earlier one slept
  std::vector<ThreadMask> waiters_;                           // by location

  std::vector<boost::context::fiber> fibers_;
  std::vector<std::string>* trace_ = nullptr;
  std::vector<std::string> names_;
};

inline unsigned Copies::lane() const {
  return machine_.lane_of(machine_.current_);
}

inline unsigned Copies::first() const {
  return machine_.current_ - lane();
}

}  // namespace weft::sim
