#include "support/moving_windows.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

extern "C" {
void* __real_mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset);
int __real_munmap(void* address, std::size_t bytes);
}

namespace weft::test {
namespace {

struct Range {
  void* address;
  std::size_t bytes;
  bool operator==(const Range&) const = default;
};

constexpr int kReservation = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
constexpr std::size_t kMostKept = 256;  // places of gone windows; older ones are free again

struct Places {
  std::mutex mutex;
  int staying = 0;
  std::vector<Range> windows;
  std::deque<Range> gone;  // reserved, so that no other mapping takes them
};

Places& places() {
  static auto* const instance = new Places;  // static communicators free windows after static objects
  return *instance;
}

void* reserve(void* address, std::size_t bytes, int flags) {
  return __real_mmap(address, bytes, PROT_NONE, kReservation | flags, -1, 0);
}

}  // namespace

WindowsStay::WindowsStay() {
  const std::scoped_lock lock(places().mutex);
  ++places().staying;
}
WindowsStay::~WindowsStay() {
  const std::scoped_lock lock(places().mutex);
  --places().staying;
}

void WindowsStay::take(const void* place) {
  const std::scoped_lock lock(places().mutex);
  std::erase_if(places().gone, [&](const Range& range) {
    const auto* const begin = static_cast<const std::byte*>(range.address);
    return place >= begin && place < begin + range.bytes;  // the place stays reserved
  });
}

}  // namespace weft::test

extern "C" {

// A window begins with a reservation for the parts of all ranks.
void* __wrap_mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  using namespace weft::test;
  if (address != nullptr || protection != PROT_NONE || flags != kReservation) {
    return __real_mmap(address, bytes, protection, flags, file, offset);
  }
  Places& all = places();
  const std::scoped_lock lock(all.mutex);
  const auto before =
      std::find_if(all.gone.rbegin(), all.gone.rend(), [&](const Range& range) { return range.bytes == bytes; });
  if (all.staying != 0 && before != all.gone.rend()) {
    address = before->address;
    all.gone.erase(std::next(before).base());
  } else {
    address = reserve(nullptr, bytes, 0);
  }
  if (address != MAP_FAILED) all.windows.push_back({address, bytes});
  return address;
}

int __wrap_munmap(void* address, std::size_t bytes) {
  using namespace weft::test;
  Places& all = places();
  const std::scoped_lock lock(all.mutex);
  if (std::erase(all.windows, Range{address, bytes}) == 0) return __real_munmap(address, bytes);
  if (reserve(address, bytes, MAP_FIXED) == MAP_FAILED) return -1;
  all.gone.push_back({address, bytes});
  if (all.gone.size() <= kMostKept) return 0;
  const Range oldest = all.gone.front();
  all.gone.pop_front();
  return __real_munmap(oldest.address, oldest.bytes);
}

}  // extern "C"
