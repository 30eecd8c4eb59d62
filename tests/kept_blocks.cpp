// Under ThreadSanitizer, weft-tests keeps large blocks that are freed for the next ones. Most tests make tensors, and
// an allocator gives large blocks back to the system: new pages, and pages of shadow memory for them, took a third of
// the time.
//
// This file is not instrumented: a lock that the sanitizer sees would order the ranks that allocate, and hide their
// races. It is told only that a block's next owner comes behind the one before.
#include <malloc.h>
#include <sanitizer/tsan_interface.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kLarge = std::size_t{64} << 10, kMostKept = std::size_t{256} << 20, kAlignment = 4096;

class Lock {
 public:
  explicit Lock(std::atomic_flag& busy) : busy_(busy) {
    while (busy.test_and_set(std::memory_order_acquire)) busy.wait(true, std::memory_order_relaxed);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    busy_.clear(std::memory_order_release);
    busy_.notify_one();
  }

 private:
  std::atomic_flag& busy_;
};

// Free blocks by their size's first three bits. Sizes are rounded up to such a number, so each block of a class has
// room.
class KeptBlocks {
 public:
  static std::size_t rounded(std::size_t bytes) {
    const std::size_t step = std::bit_floor(bytes) / 4;
    return (bytes + step - 1) / step * step;
  }

  // Null if none is kept.
  void* take(std::size_t rounded) {
    const Lock lock(busy_);
    Block*& first = first_[class_of(rounded)];
    Block* const block = first;
    if (block == nullptr) return nullptr;
    first = block->next;
    kept_ -= block->bytes;
    __tsan_acquire(block);
    return block;
  }
  bool keep(void* memory, std::size_t bytes) {
    const Lock lock(busy_);
    if (kept_ + bytes > kMostKept) return false;
    __tsan_release(memory);
    Block*& first = first_[class_of(bytes)];
    first = new (memory) Block{first, bytes};
    kept_ += bytes;
    return true;
  }

 private:
  static std::size_t class_of(std::size_t bytes) {
    const auto octave = static_cast<std::size_t>(std::bit_width(bytes)) - 1;
    return octave * 4 + ((bytes >> (octave - 2)) & 3);
  }

  struct Block {
    Block* next;
    std::size_t bytes;
  };
  std::atomic_flag busy_;
  std::size_t kept_ = 0;
  std::array<Block*, 256> first_{};
};
constinit KeptBlocks kept_blocks;

void* allocated(std::size_t bytes, std::size_t alignment) {
  void* memory = nullptr;
  if (bytes >= kLarge && bytes <= kMostKept && alignment <= kAlignment) {
    bytes = KeptBlocks::rounded(bytes);
    alignment = kAlignment;
    memory = kept_blocks.take(bytes);
  }
  if (memory == nullptr) memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void give_back(void* memory) {
  if (memory != nullptr && reinterpret_cast<std::uintptr_t>(memory) % kAlignment == 0) {
    const std::size_t bytes = ::malloc_usable_size(memory);
    if (bytes >= kLarge && kept_blocks.keep(memory, bytes)) return;
  }
  std::free(memory);
}

}  // namespace

// Operators new and delete. ThreadSanitizer's library has its own, which a program cannot replace, so the linker leads
// calls of these four here (cmake/tests.cmake). The others may free what these allocate.
extern "C" {
void* __wrap__Znwm(std::size_t bytes) {
  return allocated(bytes, alignof(std::max_align_t));
}
void* __wrap__ZnwmSt11align_val_t(std::size_t bytes, std::align_val_t alignment) {
  return allocated(bytes, static_cast<std::size_t>(alignment));
}
void __wrap__ZdlPv(void* memory) {
  give_back(memory);
}
void __wrap__ZdlPvSt11align_val_t(void* memory, std::align_val_t) {
  give_back(memory);
}
}
