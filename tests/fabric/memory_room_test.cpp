// The memory that machine and control groups leave for CPU ranks, and windows that exceed it.
#include "fabric/memory_room.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/symmetric.hpp"

namespace weft::detail {
namespace {

using test::expect_says;
using test::index;
using test::long_deadline;
using test::run_ranks;

// A folder with copies of the kernel's files.
class MemoryRooms : public testing::Test {
 protected:
  MemoryRooms() : folder_(testing::TempDir() + "weft-memory-" + std::to_string(::getpid())) {}
  ~MemoryRooms() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = folder_ + '/' + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // Puts the process into `group` of a tree of version 1 or 2 that begins at `root`.
  void mount(bool second, const std::string& group, const std::string& root = "/") const {
    write("groups", (second ? "0::" : "7:cpu:/elsewhere\n5:hugetlb,memory:") + group + "\n");
    write("mounts", "20 1 0:1 / /proc rw shared:1 - proc proc rw\n34 28 0:29 " + root + " " + folder_ +
                        "/tree rw,nosuid shared:9 - " + (second ? "cgroup2 cgroup2 rw" : "cgroup memory rw,memory") +
                        "\n");
  }
  MemoryFiles files() const { return {folder_ + "/meminfo", folder_ + "/groups", folder_ + "/mounts"}; }
  std::uint64_t room() const {
    const auto room = group_room(files());
    return room ? room->bytes : UINT64_MAX;
  }

  const std::string folder_;
};

TEST_F(MemoryRooms, OfTheMachineAreWhatItCanFreeAndSwap) {
  write("meminfo", "MemTotal:  100 kB\nMemFree:  5 kB\nMemAvailable:  30 kB\nSwapTotal: 9 kB\nSwapFree:  4 kB\n");
  EXPECT_EQ(machine_room(files())->bytes, 34u * 1024);
  write("meminfo", "MemTotal:  100 kB\n");
  EXPECT_FALSE(machine_room(files()));
}

TEST_F(MemoryRooms, OfTheSecondVersion) {
  mount(true, "/job/rank");
  write("tree/job/rank/memory.max", "1000\n");
  write("tree/job/rank/memory.current", "700\n");
  write("tree/job/rank/memory.stat", "anon 400\nfile 300\nactive_file 50\ninactive_file 200\n");
  EXPECT_EQ(room(), 550u);
  write("tree/job/rank/memory.max", "max\n");
  EXPECT_FALSE(group_room(files()));
}

TEST_F(MemoryRooms, OfTheFirstVersion) {
  mount(false, "/job");
  write("tree/job/memory.limit_in_bytes", "1000\n");
  write("tree/job/memory.usage_in_bytes", "700\n");
  write("tree/job/memory.stat", "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 0\n");
  EXPECT_EQ(room(), 400u);
  write("tree/job/memory.usage_in_bytes", "1200\n");  // the use may exceed the limit for a moment
  EXPECT_EQ(room(), 0u);
}

TEST_F(MemoryRooms, AreTheLeastOfAllGroupsAbove) {
  mount(true, "/job/rank");
  write("tree/job/rank/memory.max", "max\n");
  write("tree/job/rank/memory.current", "10\n");
  write("tree/job/memory.max", "500\n");
  write("tree/job/memory.current", "100\n");
  write("tree/memory.max", "450\n");
  write("tree/memory.current", "400\n");
  const auto least = group_room(files());
  ASSERT_TRUE(least);
  EXPECT_EQ(least->bytes, 50u);
  expect_says(least->text, "/tree has a limit of 450 bytes, of which 400 are in use");
}

// A container sees its own group as the root, or paths that do not exist here.
TEST_F(MemoryRooms, OfAContainer) {
  for (const std::string group : {"/pod/box", "/pod/box/part", "/../other"}) {
    mount(true, group, "/pod/box");
    write("tree/memory.max", "900\n");
    write("tree/memory.current", "100\n");
    EXPECT_EQ(room(), 800u) << group;
  }
}

TEST_F(MemoryRooms, AreUnknownWithoutFiles) {
  EXPECT_FALSE(machine_room(files()));
  EXPECT_FALSE(group_room(files()));
  mount(true, "/job");
  EXPECT_FALSE(group_room(files()));
}

// All ranks of a group, and of the machine, share the room.
TEST_F(MemoryRooms, AreSharedByRanks) {
  write("meminfo", "MemAvailable: 3 kB\n");
  mount(true, "/job");
  const auto check = [&](std::uint64_t bytes) {
    auto bootstraps = make_thread_bootstraps(3, long_deadline);
    return run_ranks(3, [&](int rank) { check_memory_room(*bootstraps[index(rank)], bytes, files()); });
  };
  test::expect_no_errors(check(1024));
  test::expect_all_say(check(1025), "1025 bytes of memory for each of 3 CPU ranks are more than the 3072 bytes that");
  write("tree/job/memory.max", "3000\n");
  write("tree/job/memory.current", "600\n");
  test::expect_no_errors(check(800));
  test::expect_all_say(check(801), "801 bytes of memory for each of 3 CPU ranks are more than the 2400 bytes that");
}

TEST(MemoryBeyondTheMachine, IsRejectedBeforeItIsTouched) {
  test::expect_all_well(test::run_world(2, test::cpu_config(), [](Communicator& communicator, int rank) {
    try {
      SymmetricMemory::allocate(communicator, std::size_t{1} << 45);
      ADD_FAILURE() << "taken on rank " << rank;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::system) << error.what();
      expect_says(error.what(), "bytes of memory for each of 2 CPU ranks are more than the ");
    }
    SymmetricMemory::allocate(communicator, 4096).free();
  }));
}

// A file of that size is forbidden as well, so that a missing check cannot fill the machine.
TEST(MemoryBeyondTheMachine, IsRejectedAtCreation) {
  test::Processes process(1, [](const test::Child&) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit most{.rlim_cur = rlim_t{1} << 30, .rlim_max = rlim_t{1} << 30};
    test::ensure(::setrlimit(RLIMIT_FSIZE, &most) == 0, "setrlimit");
    Config config = test::cpu_config();
    config.two_shot_bytes = std::size_t{1} << 40;
    Communicator::local(2, config);
  });
  const test::Outcome outcome = process.wait().front();
  EXPECT_EQ(outcome.signal, 0);
  expect_says(outcome.error, "bytes of memory for each of 2 CPU ranks are more than the ");
}

}  // namespace
}  // namespace weft::detail
