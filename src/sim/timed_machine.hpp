// Threads with clocks. Nothing is chosen here: the thread with the smallest clock goes on. Each step moves its clock by
// the step's cost (sim/costs.hpp), and a store to a peer lands later. So an execution has one order and one duration.
//
// A thread stands for all threads of its block's processors. Bytes go at the rate of all these processors, and their
// warps make round trips to memory beside each other. A rank's bytes to and from its peers go through its port.
// Memory beside the windows costs nothing: users' tensors, and a rank's own words.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "sim/costs.hpp"
#include "sim/timed_memory.hpp"

namespace weft::sim {

// A launch of a rank. Each block is one thread.
struct TimedLaunch {
  std::string what;
  unsigned rank;
  double processors;  // the first block has one of them, the others share the rest
  unsigned blocks;
  std::function<void(unsigned block)> run;
};

class TimedMachine {
 public:
  TimedMachine(unsigned ranks, std::size_t window_bytes, unsigned streams_of_rank);

  TimedMemory& memory() { return memory_; }

  // Launches of a rank's stream run one after the other.
  void launch(unsigned stream, TimedLaunch launch);
  // Later launches of stream `behind` of the rank wait for all that stream `front` has by now.
  void order(unsigned rank, unsigned front, unsigned behind);
  // Later launches of all streams wait for all launches so far.
  void order_all();
  // Throws std::logic_error if some launch does not end.
  void run();
  // The time at which the last of the launches ends that have been made behind the first `launches`.
  double end(std::size_t launches = 0) const;
  double begin(std::size_t launch) const { return launches_[launch].begin; }
  std::size_t launches() const { return launches_.size(); }

  // For the running thread; each is a step.
  void load(const void* from, void* value, unsigned bytes);
  void store(void* to, const void* value, unsigned bytes, bool release = false);
  // Copies in bulk, of packs.
  void load_bulk(const void* from, void* value, unsigned bytes);
  void store_bulk(void* to, const void* value, unsigned bytes);
  void pass(double ns);
  // The next step cannot do without what the thread has asked for.
  void await_answers();
  // In a waiting loop: sleeps until a store lands at a place that the thread has read since it last slept.
  void relax();
  double now() const { return current_->clock; }

 private:
  struct Started {
    TimedLaunch launch;
    std::vector<std::size_t> behind;  // launches that wait for this one
    unsigned missing = 0;             // launches that this one waits for
    unsigned running = 0;             // blocks
    double ready = 0, begin = 0, end = -1;
  };
  struct Read {
    std::size_t place;
    double time;
  };
  struct Thread {
    boost::context::fiber fiber;
    std::size_t launch;
    unsigned block;
    double clock;
    double processors;
    double asked = 0;  // the longest round trip that it has not waited for
    std::vector<Read> reads = {};
    std::uint64_t sleep = 0;  // number of its present sleep; even: it is awake
  };
  struct Ready {
    double clock;
    std::uint64_t number;
    Thread* thread;
    bool operator<(const Ready& other) const {
      return clock != other.clock ? clock > other.clock : number > other.number;
    }
  };
  struct Sleeper {
    Thread* thread;
    std::uint64_t sleep;
  };
  using Stream = std::vector<std::size_t>;  // launches that its next one waits for

  Stream& stream(unsigned rank, unsigned number) { return streams_[rank * streams_of_rank_ + number]; }
  void start(std::size_t launch);
  void end_block(Thread& thread);
  void make_ready(Thread& thread) { ready_.push({thread.clock, ready_number_++, &thread}); }
  void land();
  void let_others_go_first();
  void switch_away();
  void wake(std::size_t place, double time);
  void ask(const void* from, unsigned bytes);
  bool is_own(const void* address) const;
  void write_own(void* to, const void* value, unsigned bytes);
  // Brings bytes to the peer that has `to`, at the rate of a processor. Returns when they are there.
  double carry(const void* to, unsigned bytes, double rate);

  TimedMemory memory_;
  unsigned streams_of_rank_;
  std::vector<Stream> streams_;
  std::vector<Started> launches_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::priority_queue<Ready> ready_;
  std::uint64_t ready_number_ = 0;
  std::vector<std::vector<Sleeper>> sleepers_;  // by place
  std::vector<double> leaving_, arriving_;      // by rank: when its port is free again
  Thread* current_ = nullptr;
  boost::context::fiber main_;
};

}  // namespace weft::sim
