// The meetings of a stand-in for NCCL: collectives in which all ranks of a group wait for each other, and messages.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "fabric/nccl_call.hpp"
#include "support/reference.hpp"
#include "weft/error.hpp"

namespace weft::detail {

// Ranks wait here for each other, but not for ever.
class Gate {
 public:
  explicit Gate(int size) : size_(size) {}
  void pass() {
    std::unique_lock lock(mutex_);
    const int turn = turn_;
    if (++here_ == size_) {
      here_ = 0;
      ++turn_;
      return changed_.notify_all();
    }
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return turn_ != turn; }))
      throw Error(Errc::timeout, "not every rank calls NCCL");
  }

 private:
  const int size_;
  int here_ = 0, turn_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// A group of a split: its number and color. NCCL has a communicator for each, and for the world.
using Split = std::pair<int, int>;

// Messages that were sent and not yet received, by group, sender and receiver: ranks of the world.
class Mail {
 public:
  using Route = std::tuple<Split, int, int>;
  void send(const Route& route, test::Bytes message) {
    const std::scoped_lock lock(mutex_);
    sent_[route].push_back(std::move(message));
    changed_.notify_all();
  }
  test::Bytes receive(const Route& route) {
    std::unique_lock lock(mutex_);
    auto& messages = sent_[route];
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return !messages.empty(); }))
      throw Error(Errc::timeout, "a message was not sent");
    test::Bytes message = std::move(messages.front());
    messages.pop_front();
    return message;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Route, std::deque<test::Bytes>> sent_;
};

// The calls of the ranks of one group that NCCL would serve.
struct Meeting {
  explicit Meeting(int size) : works(static_cast<std::size_t>(size)), gate(size) {}
  std::vector<NcclWork> works;
  Gate gate;
};
// All ranks of a test share it.
struct Shared {
  std::map<Split, std::shared_ptr<Meeting>> meetings;
  std::map<Split, std::set<int>> members;
  Mail mail;
};
inline std::mutex shared_mutex;
inline std::unique_ptr<Shared> shared;

}  // namespace weft::detail
