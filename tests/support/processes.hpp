// Runs ranks as forked processes, for tests in which one dies or stops.
//
// Fork before the test starts a thread of its own. Children die with the test, and at the latest after the time limit.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "rendezvous/unique_fd.hpp"

namespace weft::test {

// A child's own view.
class Child {
 public:
  Child(int rank, int pipe) : rank_(rank), pipe_(pipe) {}
  int rank() const { return rank_; }
  // Sends text to the parent at once.
  void say(const std::string& text) const;

 private:
  int rank_, pipe_;
};

struct Outcome {
  int exit_code = -1;  // 0: the body returned; 1: it threw
  int signal = 0;      // the signal that killed the process, else 0
  bool too_slow = false;
  std::string said;   // by say()
  std::string error;  // message of the exception that ended the body
};

// Expects that every body returned.
void expect_all_well(const std::vector<Outcome>& outcomes);

class Processes {
 public:
  Processes(int size, const std::function<void(const Child&)>& body,
            std::chrono::seconds limit = std::chrono::seconds(60));
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();

  pid_t pid(int rank) const { return children_.at(static_cast<std::size_t>(rank)).pid; }
  void signal(int rank, int number) const;
  // False if the child ended, or time ran out, before it said `text`.
  bool wait_until_said(int rank, const std::string& text);
  // Waits for all children, and kills those that exceed the limit.
  std::vector<Outcome> wait();

 private:
  struct Entry {
    pid_t pid = -1;
    detail::UniqueFd pipe;
    std::string output;
  };
  // Reads the children's text. False if no child is left, or no time.
  bool listen();

  std::chrono::steady_clock::time_point end_;
  std::vector<Entry> children_;
};

}  // namespace weft::test
