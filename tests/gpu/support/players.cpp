#include "gpu/support/players.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>

#include "support/free_port.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds kLimit = 90s;  // more than ranks wait for each other when they make a communicator
constexpr const char* kWrong = "[something is wrong]";
constexpr const char* kEnd = "[end of part]";

std::map<std::string, std::function<void(GpuRank& gpu)>>& parts() {
  static std::map<std::string, std::function<void(GpuRank & gpu)>> all;
  return all;
}

int failures() {
  return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
}

// A line for each part: the port at which its ranks meet, and its name.
TEST(GpuProcess, DISABLED_Player) {
  answer_where();
  GpuRank gpu(variable("RANK"));
  std::string port, name;
  while (std::getline(std::cin >> port >> std::ws, name)) {
    ASSERT_EQ(::setenv("MASTER_PORT", port.c_str(), 1), 0);
    const int before = failures();
    try {
      parts().at(name)(gpu);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    if (failures() != before) say(kWrong);
    say(kEnd);
  }
}

}  // namespace

Part::Part(std::string name, std::function<void(GpuRank& gpu)> play) : name_(std::move(name)) {
  parts()[name_] = std::move(play);
}

void Players::start() {
  if (broken_) processes_.clear();
  broken_ = false;
  if (processes_.empty()) processes_ = start_ranks("GpuProcess.DISABLED_Player", size_, more_);
}

void Players::begin(const Part& part) {
  start();
  part_ = part.name();
  end_ = std::chrono::steady_clock::now() + kLimit;
  const int port = free_port();
  for (Spawned& process : processes_) process.tell(fmt::format("{} {}\n", port, part_));
}

std::string Players::finish(int rank) {
  Spawned& process = this->rank(rank);
  const std::string who = fmt::format("rank {} in '{}'", rank, part_);
  const std::chrono::seconds left = std::chrono::ceil<std::chrono::seconds>(end_ - std::chrono::steady_clock::now());
  if (process.wait_until_said(kEnd, std::max(left, 1s))) {
    std::string said = process.take();
    if (said.find(kWrong) != std::string::npos) {
      broken_ = true;
      ADD_FAILURE() << who << ": " << said;
    }
    return said;
  }
  broken_ = true;
  const Outcome outcome = process.wait(1s);
  ADD_FAILURE() << who
                << (outcome.too_slow
                        ? " does not come to its end: "
                        : fmt::format(" ends with code {}, signal {}: ", outcome.exit_code, outcome.signal))
                << outcome.said;
  return outcome.said;
}

std::vector<std::string> Players::play(const Part& part) {
  begin(part);
  std::vector<std::string> said;
  for (int rank = 0; rank < size_; ++rank) said.push_back(finish(rank));
  return said;
}

void Players::expect_good_end(int but) {
  if (broken_) return kill();  // which has failed already
  for (Spawned& process : processes_) process.hang_up();
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    if (static_cast<int>(rank) == but) continue;
    const Outcome outcome = processes_[rank].wait(kLimit);
    EXPECT_FALSE(outcome.too_slow) << "rank " << rank << " does not end: " << outcome.said;
    EXPECT_EQ(outcome.exit_code, 0) << "rank " << rank << ": " << outcome.said;
  }
  processes_.clear();
}

Players& players_on_one_host() {
  static Players players(gpu_count());
  return players;
}

Players& players_on_two_hosts() {
  static Players players(gpu_count(), {{"NCCL_HOSTID", "host"}});
  return players;
}

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

}  // namespace weft::test
