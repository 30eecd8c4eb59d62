// Under ThreadSanitizer, weft-tests keeps large blocks that are freed for the next ones. Most tests make tensors, and
// an allocator gives large blocks back to the system: new pages, and pages of shadow memory for them, took a third of
// the time.
//
// No block goes from one running thread to another: that would order ranks, and hide their races. A thread keeps its
// blocks, and leaves them to all when it ends. This file is not instrumented. It tells the sanitizer that a block's
// next owner comes behind the thread that has left it.
#include <malloc.h>
#include <pthread.h>
#include <sanitizer/tsan_interface.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

namespace {

constexpr std::size_t kLarge = std::size_t{64} << 10, kMostKept = std::size_t{256} << 20, kAlignment = 4096;

// Free blocks by their size's first three bits. Sizes are rounded up to such a number, so each block of a class has
// room.
class Blocks {
 public:
  static std::size_t rounded(std::size_t bytes) {
    const std::size_t step = std::bit_floor(bytes) / 4;
    return (bytes + step - 1) / step * step;
  }

  // Null if there is none.
  void* take(std::size_t rounded) {
    Block*& first = first_[class_of(rounded)];
    Block* const block = first;
    if (block == nullptr) return nullptr;
    first = block->next;
    kept_ -= block->bytes;
    return block;
  }
  bool keep(void* memory, std::size_t bytes) {
    if (kept_ + bytes > kMostKept) return false;
    Block*& first = first_[class_of(bytes)];
    first = new (memory) Block{first, bytes};
    kept_ += bytes;
    return true;
  }
  void leave_to(Blocks& others) {
    for (Block*& first : first_) {
      while (first != nullptr) {
        Block* const block = first;
        first = block->next;
        __tsan_release(block);
        if (!others.keep(block, block->bytes)) std::free(block);
      }
    }
    kept_ = 0;
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
  std::size_t kept_ = 0;
  std::array<Block*, 256> first_{};
};

class SpinLock {
 public:
  void lock() {
    while (busy_.test_and_set(std::memory_order_acquire)) ::sched_yield();
  }
  void unlock() { busy_.clear(std::memory_order_release); }

 private:
  std::atomic_flag busy_;
};

constinit SpinLock lock;
constinit Blocks left;  // by threads that have ended
// A child of fork() has only one thread, and no other that would give the lock back.
[[maybe_unused]] const int at_fork =
    ::pthread_atfork([] { lock.lock(); }, [] { lock.unlock(); }, [] { lock.unlock(); });

constinit thread_local Blocks own;
constinit thread_local bool ended = false;
struct AtEnd {
  ~AtEnd() {
    ended = true;
    const std::scoped_lock locked(lock);
    own.leave_to(left);
  }
};
thread_local const AtEnd at_end;

void* taken(std::size_t rounded) {
  if (void* const memory = own.take(rounded)) return memory;
  const std::scoped_lock locked(lock);
  void* const memory = left.take(rounded);
  if (memory != nullptr) __tsan_acquire(memory);
  return memory;
}

void* allocated(std::size_t bytes, std::size_t alignment) {
  void* memory = nullptr;
  if (bytes >= kLarge && bytes <= kMostKept && alignment <= kAlignment) {
    bytes = Blocks::rounded(bytes);
    alignment = kAlignment;
    memory = taken(bytes);
  }
  if (memory == nullptr) memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void give_back(void* memory) {
  if (memory != nullptr && reinterpret_cast<std::uintptr_t>(memory) % kAlignment == 0 && !ended) {
    const std::size_t bytes = ::malloc_usable_size(memory);
    if (bytes >= kLarge && own.keep(memory, bytes)) {
      static_cast<void>(&at_end);  // from now on the thread has something to leave
      return;
    }
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
