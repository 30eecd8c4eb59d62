#include "support/spawned.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <execinfo.h>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>

#include "support/free_port.hpp"

namespace weft::test {
namespace {

// Prints the stack of a process that does not end.
void say_where(int) {
  std::array<void*, 64> frames;
  ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), static_cast<int>(frames.size())), STDERR_FILENO);
}

}  // namespace

void answer_where() {
  struct sigaction action {};
  action.sa_handler = say_where;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
}

Spawned::Spawned(const std::string& test, const Variables& variables) {
  std::vector<std::string> texts;
  for (char** variable = environ; *variable != nullptr; ++variable) texts.emplace_back(*variable);
  const auto forget = [&](const std::string& given) {
    std::erase_if(texts, [&](const std::string& text) { return text.rfind(given, 0) == 0; });
  };
  for (const char* share : {"GTEST_TOTAL_SHARDS=", "GTEST_SHARD_INDEX="}) forget(share);  // of this process's cases
  for (const auto& [name, value] : variables) {
    const std::string given = name + "=";
    forget(given);
    texts.push_back(given + value);
  }
  std::vector<char*> environment;
  for (std::string& text : texts) environment.push_back(text.data());
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe", filter = "--gtest_filter=" + test;
  std::string disabled = "--gtest_also_run_disabled_tests";
  char* arguments[] = {program.data(), filter.data(), disabled.data(), nullptr};

  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  pipe_ = detail::UniqueFd(ends[0]);
  const detail::UniqueFd writer(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), STDERR_FILENO);
  const int error = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("posix_spawn");
}

Spawned::~Spawned() {
  if (pid_ <= 0 || !pipe_) return;  // waited for, or moved from
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Spawned::signal(int number) const {
  ::kill(pid_, number);
}

bool Spawned::listen(std::chrono::steady_clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  if (left.count() <= 0) return false;
  pollfd entry{.fd = pipe_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&entry, 1, static_cast<int>(left.count())) <= 0) return true;
  std::array<char, 4096> chunk;
  const ssize_t n = ::read(pipe_.get(), chunk.data(), chunk.size());
  if (n > 0) output_.append(chunk.data(), static_cast<std::size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

bool Spawned::wait_until_said(const std::string& text, std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (output_.find(text) == std::string::npos) {
    if (!listen(end)) return false;
  }
  return true;
}

Outcome Spawned::wait(std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (listen(end)) {
  }
  Outcome outcome;
  outcome.too_slow = std::chrono::steady_clock::now() >= end;
  if (outcome.too_slow) {
    ::kill(pid_, SIGUSR1);
    while (listen(end + std::chrono::seconds(2))) {
    }
    ::kill(pid_, SIGKILL);
  }
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pipe_.reset();
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  outcome.said = output_;
  return outcome;
}

std::vector<Spawned> start_ranks(const std::string& test, int size, const Variables& more) {
  const std::string port = std::to_string(free_master_port());
  std::vector<Spawned> ranks;
  for (int rank = 0; rank < size; ++rank) {
    Variables environment{{"RANK", std::to_string(rank)},
                          {"LOCAL_RANK", std::to_string(rank)},
                          {"WORLD_SIZE", std::to_string(size)},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", port}};
    environment.insert(environment.end(), more.begin(), more.end());
    for (auto& [name, value] : environment) {
      if (name == "NCCL_HOSTID") value += std::to_string(rank * 2 / size);
      if (name == "CUDA_VISIBLE_DEVICES") value = std::to_string(rank);
    }
    ranks.emplace_back(test, environment);
  }
  return ranks;
}

int variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set");
  return std::atoi(value);
}

}  // namespace weft::test
