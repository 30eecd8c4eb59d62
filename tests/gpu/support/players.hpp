// Processes that stay: each is a rank, and plays one part after the other, as tests ask for them. Processes begin one
// behind the other, at almost two seconds each, and most parts take less than that.
//
// A part makes a communicator of its own: what ends a communicator ends no process. What is read once in a process,
// such as NCCL's variables, is the same in all parts of its players.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/spawned.hpp"

namespace weft::test {

// What each rank does; it throws where something is wrong. Made at namespace scope, so that processes know it by name.
class Part {
 public:
  Part(std::string name, std::function<void(GpuRank& gpu)> play);
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

class Players {
 public:
  // They start with the first part.
  explicit Players(int size, Variables more = {}) : size_(size), more_(std::move(more)) {}

  int size() const { return size_; }
  bool started() const { return !processes_.empty(); }
  // Tells every rank to play it; all of them have come to the end of the part before.
  void begin(const Part& part);
  Spawned& rank(int rank) { return processes_.at(static_cast<std::size_t>(rank)); }
  // What a rank said in the part, up to its end. Fails where it does not come to that, or has found something wrong;
  // the next part then has new processes.
  std::string finish(int rank);
  // All of it: what each rank said.
  std::vector<std::string> play(const Part& part);
  // There is no part left: fails where a process other than that of the rank `but` does not end, or not well.
  void expect_good_end(int but = -1);
  // Kills them, whatever they do.
  void kill() { processes_.clear(); }

 private:
  void start();

  int size_;
  Variables more_;
  std::vector<Spawned> processes_;
  std::string part_;
  std::chrono::steady_clock::time_point end_;  // when a rank that has not come to the end of the part will not
  bool broken_ = false;
};

// On one host, with every GPU; on two, with half of the GPUs each, as NCCL takes them to be.
Players& players_on_one_host();
Players& players_on_two_hosts();

// In a part: says it to the test at once.
void say(const std::string& text);

}  // namespace weft::test
