// Symmetric windows in shared memory.
#include "fabric/shared_memory.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "fabric/liveness.hpp"
#include "rendezvous/unique_id.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"

namespace weft::detail {
namespace {

using test::Child;
using test::ensure;
using test::expect_all_say;
using test::expect_no_errors;
using test::index;
using test::long_deadline;
using test::Outcome;
using test::Processes;
using test::run_ranks;

std::size_t page_size() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t entries(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Every rank writes at both ends of every window, and all ranks see it.
void exchange(Bootstrap& bootstrap, const SharedMemoryWindow& window) {
  const int rank = bootstrap.rank(), size = bootstrap.size();
  const std::size_t end = window.bytes_per_rank() - index(size);
  for (int to = 0; to < size; ++to) {
    window.at(to)[rank] = static_cast<std::byte>(16 * rank + to);
    window.at(to)[end + index(rank)] = static_cast<std::byte>(to + 16 * rank + 1);
  }
  bootstrap.barrier("written");
  for (int to = 0; to < size; ++to) {
    for (int from = 0; from < size; ++from) {
      ensure(window.at(to)[from] == static_cast<std::byte>(16 * from + to), "first bytes");
      ensure(window.at(to)[end + index(from)] == static_cast<std::byte>(to + 16 * from + 1), "last bytes");
    }
  }
}

class Windows : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Windows, testing::Range(1, 9));

TEST_P(Windows, OfThreads) {
  const int size = GetParam();
  auto bootstraps = make_thread_bootstraps(size, long_deadline);
  std::vector<std::byte*> first(index(size));
  const auto errors = run_ranks(size, [&](int rank) {
    const SharedMemoryWindow window = SharedMemoryWindow::create(*bootstraps[index(rank)], 10'000);
    EXPECT_EQ(window.bytes_per_rank(), (10'000 / page_size() + 1) * page_size());
    EXPECT_EQ(window.size(), size);
    exchange(*bootstraps[index(rank)], window);
    first[index(rank)] = window.at(0);
    bootstraps[index(rank)]->barrier("used");
  });
  expect_no_errors(errors);
  // Each byte has one address, or race detectors would miss races.
  EXPECT_EQ(std::set<std::byte*>(first.begin(), first.end()).size(), 1u);
}

// Whether the memory is a file with a name. A killed process would not unlink it.
bool has_a_name(const std::byte* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    if (begin <= address && address < end) return !line.ends_with(" (deleted)");
  }
  throw std::runtime_error("the memory is not mapped");
}

TEST_P(Windows, OfProcesses) {
  const int size = GetParam();
  const UniqueId id = UniqueId::create();
  Processes processes(size, [&](const Child& self) {
    const auto bootstrap = make_id_bootstrap(id, self.rank(), size, long_deadline);
    const SharedMemoryWindow window = SharedMemoryWindow::create(*bootstrap, 10'000);
    exchange(*bootstrap, window);
    for (int rank = 0; rank < size; ++rank) ensure(!has_a_name(window.at(rank)), "a file is left");
  });
  for (const Outcome& outcome : processes.wait()) EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
}

TEST(Window, StartsAsZeros) {
  auto bootstraps = make_thread_bootstraps(1, long_deadline);
  const SharedMemoryWindow window = SharedMemoryWindow::create(*bootstraps[0], 3 * page_size());
  EXPECT_EQ(std::count(window.at(0), window.at(0) + window.bytes_per_rank(), std::byte{0}),
            static_cast<std::ptrdiff_t>(window.bytes_per_rank()));
}

TEST(Window, TwoAtATimeAreApart) {
  auto bootstraps = make_thread_bootstraps(2, long_deadline);
  const auto errors = run_ranks(2, [&](int rank) {
    Bootstrap& mine = *bootstraps[index(rank)];
    const SharedMemoryWindow one = SharedMemoryWindow::create(mine, 64), two = SharedMemoryWindow::create(mine, 64);
    one.at(rank)[0] = std::byte{1};
    mine.barrier("written");
    ensure(two.at(0)[0] == std::byte{0} && two.at(1)[0] == std::byte{0}, "one window's byte is in the other");
  });
  expect_no_errors(errors);
}

// More than the machine's memory: only written pages count.
TEST(Window, SparseWithOffsetsPast4GiB) {
  const std::size_t size = std::size_t{8} << 30, far = (std::size_t{1} << 32) + 123'456;
  const UniqueId id = UniqueId::create();
  Processes processes(4, [&](const Child& self) {
    const auto bootstrap = make_id_bootstrap(id, self.rank(), 4, long_deadline);
    const SharedMemoryWindow window = SharedMemoryWindow::create(*bootstrap, size);
    const int to = (self.rank() + 1) % 4;
    window.at(to)[far] = static_cast<std::byte>(to + 1);
    window.at(to)[size - 1] = static_cast<std::byte>(to + 101);
    bootstrap->barrier("written");
    const std::byte* own = window.at(self.rank());
    ensure(own[far] == static_cast<std::byte>(self.rank() + 1), "far byte");
    ensure(own[size - 1] == static_cast<std::byte>(self.rank() + 101), "last byte");
    ensure(own[far - (std::size_t{1} << 32)] == std::byte{0}, "the offset lost its upper bits");
  });
  for (const Outcome& outcome : processes.wait()) EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
}

// The signal that ends a process when it touches a byte of a world of two.
int signal_of_touching(std::ptrdiff_t offset_from_rank, int rank) {
  Processes process(1, [&](const Child&) {
    ::signal(SIGSEGV, SIG_DFL);  // sanitizers install a handler
    auto bootstraps = make_thread_bootstraps(2, long_deadline);
    SharedMemoryWindow windows[2];
    for (const std::string& error :
         run_ranks(2, [&](int r) { windows[r] = SharedMemoryWindow::create(*bootstraps[index(r)], page_size()); })) {
      ensure(error.empty(), error);
    }
    std::atomic_ref(*(windows[0].at(rank) + offset_from_rank)).store(std::byte{1});
  });
  return process.wait()[0].signal;
}

TEST(Window, NeighboursFault) {
  const auto page = static_cast<std::ptrdiff_t>(page_size());
  EXPECT_EQ(signal_of_touching(0, 0), 0);
  EXPECT_EQ(signal_of_touching(page - 1, 1), 0);
  EXPECT_EQ(signal_of_touching(-1, 0), SIGSEGV);
  EXPECT_EQ(signal_of_touching(page, 0), SIGSEGV);
  EXPECT_EQ(signal_of_touching(-1, 1), SIGSEGV);
  EXPECT_EQ(signal_of_touching(page, 1), SIGSEGV);
}

// Unmapped pages would also fault, until another mapping takes them.
TEST(Window, GuardsAreReserved) {
  auto bootstraps = make_thread_bootstraps(1, long_deadline);
  const SharedMemoryWindow window = SharedMemoryWindow::create(*bootstraps[0], page_size());
  unsigned char resident = 0;
  EXPECT_EQ(::mincore(window.at(0) - page_size(), page_size(), &resident), 0);
  EXPECT_EQ(::mincore(window.at(0) + page_size(), page_size(), &resident), 0);
}

TEST(Window, SizesAreChecked) {
  const auto create = [](std::size_t first, std::size_t second) {
    auto bootstraps = make_thread_bootstraps(2, long_deadline);
    return run_ranks(
        2, [&](int rank) { SharedMemoryWindow::create(*bootstraps[index(rank)], rank == 0 ? first : second); });
  };
  expect_all_say(create(4096, 8192), "rank 0 wants 4096 bytes, rank 1 8192");
  expect_all_say(create(0, 0), "bytes per rank is 0, allowed is 1 …");
  expect_all_say(create(SIZE_MAX, SIZE_MAX), "allowed is 1 …");
  expect_all_say(create(std::size_t{1} << 60, std::size_t{1} << 60), "Cannot allocate memory");
}

TEST(Window, MovesAndEndsOnce) {
  auto bootstraps = make_thread_bootstraps(1, long_deadline);
  SharedMemoryWindow window = SharedMemoryWindow::create(*bootstraps[0], 64);
  std::byte* const place = window.at(0);
  SharedMemoryWindow other = std::move(window);
  EXPECT_EQ(other.at(0), place);
  EXPECT_EQ(window.size(), 0);
  other = SharedMemoryWindow();
  EXPECT_EQ(other.size(), 0);
}

// Opens everything that a communicator on CPUs opens, a hundred times.
TEST(Window, NoDescriptorAndNoMappingIsLeft) {
  const auto cycle = [] {
    auto bootstraps = make_thread_bootstraps(3, long_deadline);
    const auto errors = run_ranks(3, [&](int rank) {
      const std::vector<int> members = rank < 2 ? std::vector{0, 1} : std::vector{2};
      const auto group = make_group_bootstrap(*bootstraps[index(rank)], members);
      const SharedMemoryWindow window = SharedMemoryWindow::create(*group, 4096);
      const Liveness liveness = Liveness::create(*bootstraps[index(rank)]);
    });
    expect_no_errors(errors);
    const UniqueId id = UniqueId::create();
    make_id_bootstrap(id, 0, 1, long_deadline);
  };
  const auto mappings_of_windows = [] {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) count += line.find("memfd:weft") != std::string::npos;
    return count;
  };
  cycle();
  const std::size_t descriptors = entries("/proc/self/fd"), mappings = mappings_of_windows();
  for (int i = 0; i < 100; ++i) cycle();
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(mappings_of_windows(), mappings);
}

}  // namespace
}  // namespace weft::detail
