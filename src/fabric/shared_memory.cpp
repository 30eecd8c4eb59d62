#include "fabric/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>
#include <map>
#include <mutex>

#include "fabric/origin.hpp"
#include "rendezvous/socket.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::size_t page_size() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Rounds up to pages, after checking that all windows and guards can be addressed.
std::size_t window_bytes(std::size_t bytes_per_rank, int size) {
  const std::size_t page = page_size();
  const std::size_t most = std::numeric_limits<off_t>::max() / static_cast<std::size_t>(size + 1) - 2 * page;
  if (bytes_per_rank == 0 || bytes_per_rank > most) {
    throw Error(Errc::invalid_argument,
                fmt::format("bytes per rank is {}, allowed is 1 … {} for {} ranks", bytes_per_rank, most, size));
  }
  return (bytes_per_rank + page - 1) / page * page;
}

UniqueFd create_memory(std::size_t bytes, const char* name) {
  UniqueFd memory(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) throw_errno("memfd_create");
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) throw_errno(fmt::format("memfd of {} bytes", bytes));
  if (::fcntl(memory.get(), F_ADD_SEALS, seals) != 0) throw_errno("sealing the memfd");
  return memory;
}

}  // namespace

class SharedMemoryMapping {
 public:
  SharedMemoryMapping(int memory, std::size_t bytes_per_rank, int size)
      : bytes_per_rank_(bytes_per_rank), size_(size), guard_(page_size()) {
    void* base = ::mmap(nullptr, total(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw_errno(fmt::format("reserving {} bytes of addresses", total()));
    base_ = static_cast<std::byte*>(base);
    const auto give_up = [&](const std::string& what) {
      const int error = errno;
      ::munmap(base_, total());
      errno = error;
      throw_errno(what);
    };
    for (int rank = 0; rank < size_; ++rank) {
      const auto offset = static_cast<off_t>(static_cast<std::size_t>(rank) * bytes_per_rank_);
      if (::mmap(at(rank), bytes_per_rank_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, memory,
                 offset) == MAP_FAILED) {
        give_up(fmt::format("mapping {} bytes of shared memory", bytes_per_rank_));
      }
    }
    // A child of fork() is no rank: its writes would change its parent's data.
    if (::madvise(base_, total(), MADV_DONTFORK) != 0) give_up("keeping shared memory from children of fork()");
  }
  SharedMemoryMapping(const SharedMemoryMapping&) = delete;
  SharedMemoryMapping& operator=(const SharedMemoryMapping&) = delete;
  ~SharedMemoryMapping() {
    if (is_here()) ::munmap(base_, total());  // in a child, something else may lie there
  }

  bool is_here() const { return origin_.is_here(); }

  std::byte* at(int rank) const { return base_ + guard_ + static_cast<std::size_t>(rank) * (bytes_per_rank_ + guard_); }
  std::size_t bytes_per_rank() const { return bytes_per_rank_; }
  int size() const { return size_; }

 private:
  std::size_t total() const { return guard_ + static_cast<std::size_t>(size_) * (bytes_per_rank_ + guard_); }

  std::size_t bytes_per_rank_;
  int size_;
  std::size_t guard_;
  Origin origin_;
  std::byte* base_ = nullptr;
};

namespace {

// The mapping of this memory in this process: a second rank of the process gets the first one's. No new file can have
// the inode while a mapping holds the memory.
std::shared_ptr<const SharedMemoryMapping> map_once(int memory, std::size_t bytes_per_rank, int size) {
  static std::mutex mutex;
  static std::map<ino_t, std::weak_ptr<const SharedMemoryMapping>> mappings;

  struct stat info {};
  if (::fstat(memory, &info) != 0) throw_errno("fstat of the shared memory");
  // If another process could shrink the file, accesses would become SIGBUS.
  if ((::fcntl(memory, F_GET_SEALS) & seals) != seals ||
      info.st_size != static_cast<off_t>(bytes_per_rank * static_cast<std::size_t>(size))) {
    throw Error(Errc::rendezvous,
                fmt::format("the memory that was handed over has {} bytes or lacks seals, not {} × {}", info.st_size,
                            size, bytes_per_rank));
  }
  const std::lock_guard lock(mutex);
  std::erase_if(mappings, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const SharedMemoryMapping>& known = mappings[info.st_ino];
  std::shared_ptr<const SharedMemoryMapping> mapping = known.lock();
  if (!mapping || !mapping->is_here())
    known = mapping = std::make_shared<const SharedMemoryMapping>(memory, bytes_per_rank, size);
  return mapping;
}

}  // namespace

SharedMemoryWindow SharedMemoryWindow::create(Bootstrap& bootstrap, std::size_t bytes_per_rank, const char* name) {
  const int size = bootstrap.size();
  const std::vector<std::size_t> all_requested = bootstrap.all_gather_value("shared memory size", bytes_per_rank);
  for (int rank = 0; rank < size; ++rank) {
    const std::size_t requested = all_requested[static_cast<std::size_t>(rank)];
    if (requested != all_requested[0]) {
      throw Error(Errc::rendezvous, fmt::format("ranks disagree about the window: rank 0 wants {} bytes, rank {} {}",
                                                all_requested[0], rank, requested));
    }
  }
  const std::size_t bytes = window_bytes(bytes_per_rank, size);

  UniqueFd memory;
  bootstrap.agree_on("shared memory creation", [&] {
    if (bootstrap.rank() == 0) memory = create_memory(bytes * static_cast<std::size_t>(size), name);
  });
  memory = bootstrap.share_fd("shared memory hand-over", 0, memory.get());
  SharedMemoryWindow window;
  bootstrap.agree_on("shared memory mapping", [&] { window.mapping_ = map_once(memory.get(), bytes, size); });
  return window;
}

std::byte* SharedMemoryWindow::at(int rank) const {
  return mapping_->at(rank);
}
std::size_t SharedMemoryWindow::bytes_per_rank() const {
  return mapping_->bytes_per_rank();
}
int SharedMemoryWindow::size() const {
  return mapping_ ? mapping_->size() : 0;
}

}  // namespace weft::detail
