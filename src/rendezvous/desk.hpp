// Rank 0's place to listen. Meetings of one process at one place at a time share the listener, because a port has only
// one. Each has a desk there, under its communicator's name, and hands over visitors for the others.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/connection.hpp"
#include "rendezvous/unique_fd.hpp"

namespace weft::detail {

// A connection that has said hello, and has proved nothing yet.
struct Visitor {
  Connection connection;
  Bytes hello;
};

class Desk {
 public:
  struct Args {
    std::string place = {};  // "node7 port 29600", as shared by this process; empty: a place that is not shared
    std::string name = {};
    std::function<UniqueFd()> open;  // listens, if no other meeting of the process does so at this place
  };
  // Throws Errc::rendezvous if the place has a desk of that name.
  explicit Desk(const Args& args);
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;
  // The last desk closes the listener.
  ~Desk();

  bool shared() const { return !place_.empty(); }
  int listener() const { return listener_; }
  // Readable when a visitor was handed over.
  int bell() const { return bell_.get(); }
  std::vector<Visitor> handed_over();
  // False, and the visitor stays, if no desk here has that name.
  bool hand_over(const std::string& name, Visitor& visitor);

 private:
  struct Hall;

  std::string place_, name_;
  std::shared_ptr<Hall> hall_;
  int listener_ = -1;
  UniqueFd bell_;
  std::vector<Visitor> visitors_;  // guarded by the mutex of all halls
};

}  // namespace weft::detail
