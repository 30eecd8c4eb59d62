// A tensor between canaries, at any distance from an aligned address.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace weft::test {

// Fills the surroundings of tensors whose memory is compared byte for byte: a NaN of every type.
inline constexpr std::byte kNanCanary{0xff};
inline constexpr std::size_t kGuard = 256;

class Guarded {
 public:
  static constexpr std::byte kCanary{0xa5};

  // `misalignment`: distance from a multiple of kGuard.
  Guarded(std::size_t size, std::size_t misalignment) : size_(size), begin_(kGuard + misalignment) {
    blocks_.resize((begin_ + size_ + kGuard + sizeof(Block) - 1) / sizeof(Block));
    std::memset(storage().data(), static_cast<int>(kCanary), storage().size());
  }

  std::span<std::byte> content() { return storage().subspan(begin_, size_); }
  std::size_t offset() const { return begin_; }
  // Canaries and content, for copies to and from another memory.
  std::span<std::byte> storage() { return std::as_writable_bytes(std::span(blocks_)); }

  // Empty if nothing outside the content was overwritten.
  std::string damage() {
    const std::span<const std::byte> all = storage();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i == begin_) i += size_;
      if (all[i] == kCanary) continue;
      const auto distance = static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(begin_);
      return fmt::format("byte {} of a tensor of {} bytes was overwritten", distance, size_);
    }
    return {};
  }

 private:
  struct alignas(kGuard) Block {
    std::byte bytes[kGuard];
  };
  std::size_t size_, begin_;
  std::vector<Block> blocks_;
};

}  // namespace weft::test
