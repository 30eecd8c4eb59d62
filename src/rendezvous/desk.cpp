#include "rendezvous/desk.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <map>
#include <mutex>
#include <utility>

#include "rendezvous/socket.hpp"
#include "weft/error.hpp"

namespace weft::detail {

// The mutex of all halls guards its contents.
struct Desk::Hall {
  UniqueFd listener;
  std::map<std::string, Desk*> desks;
};

namespace {

constexpr std::size_t most_visitors = 64;  // that wait to be read; more are sent away

std::mutex& mutex_of_halls() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

Desk::Desk(const Args& args) : place_(args.place), name_(args.name), bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!bell_) throw_errno("eventfd");
  static std::map<std::string, std::weak_ptr<Hall>> halls;
  const std::scoped_lock lock(mutex_of_halls());
  if (shared()) {
    std::erase_if(halls, [](const auto& entry) { return entry.second.expired(); });
    hall_ = halls[place_].lock();
  }
  if (hall_ == nullptr) {
    hall_ = std::make_shared<Hall>(Hall{.listener = args.open(), .desks = {}});
    if (shared()) halls[place_] = hall_;
  }
  if (!hall_->desks.emplace(name_, this).second) {
    hall_.reset();
    throw Error(Errc::rendezvous,
                fmt::format("this process holds a meeting at {} for a communicator named '{}' already", place_, name_));
  }
  listener_ = hall_->listener.get();
}

Desk::~Desk() {
  const std::scoped_lock lock(mutex_of_halls());
  hall_->desks.erase(name_);
  hall_.reset();  // closes the listener before another meeting can look for it
}

std::vector<Visitor> Desk::handed_over() {
  const std::scoped_lock lock(mutex_of_halls());
  std::uint64_t rung = 0;
  [[maybe_unused]] const ssize_t read = ::read(bell_.get(), &rung, sizeof rung);
  return std::exchange(visitors_, {});
}

bool Desk::hand_over(const std::string& name, Visitor& visitor) {
  const std::scoped_lock lock(mutex_of_halls());
  const auto entry = hall_->desks.find(name);
  if (entry == hall_->desks.end() || entry->second->visitors_.size() >= most_visitors) return false;
  entry->second->visitors_.push_back(std::move(visitor));
  const std::uint64_t ring = 1;
  [[maybe_unused]] const ssize_t written = ::write(entry->second->bell_.get(), &ring, sizeof ring);
  return true;
}

}  // namespace weft::detail
