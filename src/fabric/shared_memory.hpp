// The CPU fabric: symmetric windows in shared memory.
#pragma once

#include <cstddef>
#include <memory>

#include "rendezvous/bootstrap.hpp"

namespace weft::detail {

class SharedMemoryMapping;

// One window per rank, all in one memfd: nothing in /dev/shm, no name, gone with the last process. Untouched pages take
// no memory. An access before, after or between windows faults. Ranks that are threads of one process share the
// mapping, so that tools like ThreadSanitizer see one address per byte.
class SharedMemoryWindow {
 public:
  // Collective. `bytes_per_rank` must be the same on every rank and is rounded up to whole pages.
  // `name`: of the memfd, in /proc.
  static SharedMemoryWindow create(Bootstrap& bootstrap, std::size_t bytes_per_rank, const char* name = "weft");

  SharedMemoryWindow() = default;
  SharedMemoryWindow(SharedMemoryWindow&&) noexcept = default;
  SharedMemoryWindow& operator=(SharedMemoryWindow&&) noexcept = default;

  std::byte* at(int rank) const;
  std::size_t bytes_per_rank() const;
  int size() const;  // number of windows, 0 when default-constructed

 private:
  std::shared_ptr<const SharedMemoryMapping> mapping_;
};

}  // namespace weft::detail
