// A tensor between canaries, at any distance from an aligned address.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "support/bytes.hpp"

namespace weft::test {

// Fills the surroundings of tensors whose memory is compared byte for byte: a NaN of every type.
inline constexpr std::byte kNanCanary{0xff};
inline constexpr std::size_t kGuard = 256;

class Guarded {
 public:
  static constexpr std::byte kCanary{0xa5};

  // `misalignment`: distance from a multiple of kGuard.
  Guarded(std::size_t size, std::size_t misalignment)
      : size_(size), begin_(kGuard + misalignment), storage_(begin_ + size + kGuard) {
    fill_bytes(storage(), kCanary);
  }

  std::span<std::byte> content() { return storage().subspan(begin_, size_); }
  std::size_t offset() const { return begin_; }
  // Canaries and content, for copies to and from another memory.
  std::span<std::byte> storage() { return storage_.span(); }

  // Empty if nothing outside the content was overwritten.
  std::string damage() {
    const std::span<const std::byte> all = storage();
    if (all_bytes_are(all.first(begin_), kCanary) && all_bytes_are(all.subspan(begin_ + size_), kCanary)) return {};
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i == begin_) i += size_;
      if (all[i] == kCanary) continue;
      const auto distance = static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(begin_);
      return fmt::format("byte {} of a tensor of {} bytes was overwritten", distance, size_);
    }
    return {};
  }

 private:
  std::size_t size_, begin_;
  AlignedBytes storage_;
};

}  // namespace weft::test
