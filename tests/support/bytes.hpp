// Whole ranges of bytes in one step. std's algorithms compare and fill std::byte one by one, and a sanitizer looks at
// each access: they took a quarter of the time of all tests under ThreadSanitizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>

namespace weft::test {

// Memory for tensors. Nothing has been written to it.
class AlignedBytes {
 public:
  static constexpr std::align_val_t kAlignment{256};

  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t bytes)
      : memory_(static_cast<std::byte*>(::operator new(bytes, kAlignment))), bytes_(bytes) {}
  std::span<std::byte> span() const { return {memory_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

inline void fill_bytes(std::span<std::byte> bytes, std::byte value) {
  if (!bytes.empty()) std::memset(bytes.data(), static_cast<int>(value), bytes.size());
}

inline void copy_bytes(std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.size() > to.size()) throw std::logic_error("the copy is larger than its place");
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// Each byte equals its neighbour.
inline bool all_bytes_are(std::span<const std::byte> bytes, std::byte value) {
  return bytes.empty() || (bytes[0] == value && same_bytes(bytes.first(bytes.size() - 1), bytes.subspan(1)));
}

// The place of the first byte that differs; the shorter size if none does.
inline std::size_t first_difference(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::size_t both = std::min(a.size(), b.size());
  if (same_bytes(a.first(both), b.first(both))) return both;
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace weft::test
