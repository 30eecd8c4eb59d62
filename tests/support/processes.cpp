#include "support/processes.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <stdexcept>
#include <string_view>

namespace weft::test {
namespace {

constexpr char error_mark = '\x01';  // begins the message of an exception

[[noreturn]] void run_child(pid_t parent, const Child& child, const std::function<void(const Child&)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent ended before the line above
  int code = 0;
  try {
    body(child);
  } catch (const std::exception& e) {
    child.say(error_mark + std::string(e.what()));
    code = 1;
  }
  ::_exit(code);
}

}  // namespace

void Child::say(const std::string& text) const {
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t n = ::write(pipe_, rest.data(), rest.size());
    if (n < 0 && errno != EINTR) ::_exit(1);
    if (n > 0) rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

void expect_all_well(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.exit_code, 0) << "signal " << outcome.signal << ", too slow " << outcome.too_slow;
  }
}

Processes::Processes(int size, const std::function<void(const Child&)>& body, std::chrono::seconds limit)
    : end_(std::chrono::steady_clock::now() + limit) {
  const pid_t parent = ::getpid();
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    Entry& entry = children_.emplace_back();
    entry.pipe = detail::UniqueFd(ends[0]);
    detail::UniqueFd writer(ends[1]);
    entry.pid = ::fork();
    if (entry.pid < 0) throw std::runtime_error("fork");
    if (entry.pid == 0) run_child(parent, Child(rank, writer.get()), body);
  }
}

Processes::~Processes() {
  for (Entry& child : children_) {
    if (child.pid <= 0) continue;
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
  }
}

void Processes::signal(int rank, int number) const {
  ::kill(pid(rank), number);
}

bool Processes::listen() {
  std::vector<pollfd> entries;
  for (const Entry& child : children_) entries.push_back({.fd = child.pipe.get(), .events = POLLIN, .revents = 0});
  if (std::all_of(entries.begin(), entries.end(), [](const pollfd& entry) { return entry.fd < 0; })) return false;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now());
  if (left.count() <= 0) return false;
  ::poll(entries.data(), entries.size(), static_cast<int>(left.count()));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].revents == 0) continue;
    std::array<char, 4096> chunk;
    const ssize_t n = ::read(entries[i].fd, chunk.data(), chunk.size());
    if (n > 0) children_[i].output.append(chunk.data(), static_cast<std::size_t>(n));
    if (n == 0) children_[i].pipe.reset();
  }
  return true;
}

bool Processes::wait_until_said(int rank, const std::string& text) {
  const Entry& child = children_.at(static_cast<std::size_t>(rank));
  while (child.output.find(text) == std::string::npos) {
    if (!child.pipe || !listen()) return false;
  }
  return true;
}

std::vector<Outcome> Processes::wait() {
  while (listen()) {
  }
  std::vector<Outcome> outcomes;
  for (Entry& child : children_) {
    Outcome& outcome = outcomes.emplace_back();
    // A pipe closes when its process ends, so an open pipe means that the child is still running.
    outcome.too_slow = static_cast<bool>(child.pipe);
    if (outcome.too_slow) ::kill(child.pid, SIGKILL);
    int status = 0;
    while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    child.pid = -1;
    if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
    const std::size_t mark = child.output.find(error_mark);
    outcome.said = child.output.substr(0, mark);
    if (mark != std::string::npos) outcome.error = child.output.substr(mark + 1);
  }
  return outcomes;
}

}  // namespace weft::test
