// Rows of a user's tensor as one stream of bytes, read and written in packs of sixteen: rows of any length, at any
// distance, at any address. Ordinary loads and stores: no other rank sees this memory, unless outputs lie in symmetric
// memory (ops/moves/symmetric_copy.hpp).
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"

namespace weft::detail {

// `aligned16`: the caller promises that addresses, rows and strides are multiples of sixteen bytes
// (rows_are_aligned16). The stream's contents depend on neither strides nor addresses.
template <bool aligned16>
class Rows {
 public:
  Rows() = default;
  WEFT_FN Rows(const void* data, std::uint64_t rows, std::uint64_t row_bytes, std::uint64_t stride)
      : data_(const_cast<std::uint8_t*>(static_cast<const std::uint8_t*>(data))),
        bytes_(rows * row_bytes),
        row_bytes_(row_bytes),
        stride_(stride) {}

  WEFT_FN std::uint64_t packs() const { return (bytes_ + sizeof(Pack) - 1) / sizeof(Pack); }

  // The address of a pack, for an early load; null behind the end. Whole rows only.
  WEFT_FN const void* find(std::uint64_t pack) const { return pack < packs() ? vector_at(pack) : nullptr; }
  static WEFT_FN Pack load_found(const void* at) {
    if (at == nullptr) return {};
    const Vector vector = *static_cast<const Vector*>(at);
    return {{vector.word[0], vector.word[1], vector.word[2], vector.word[3]}};
  }

  // Packs behind the end read as zero, and are not written.
  WEFT_FN Pack load(std::uint64_t pack) const { return pack < packs() ? get(pack) : Pack{}; }
  WEFT_FN void store(std::uint64_t pack, const Pack& payload) const {
    if (pack < packs()) put(pack, payload);
  }

  // For a pack that exists. In loops over whole rows only a base tells one message from another.
  WEFT_FN Pack get(std::uint64_t pack) const {
    if (aligned16 || plain(pack)) {
      const Vector vector = *vector_at(pack);
      return {{vector.word[0], vector.word[1], vector.word[2], vector.word[3]}};
    }
    Pack payload{};
    each_byte(pack, [&](std::uint32_t i, std::uint8_t* byte) {
      payload.word[i / 4] |= static_cast<std::uint32_t>(*byte) << (i % 4 * 8);
    });
    return payload;
  }

  WEFT_FN void put(std::uint64_t pack, const Pack& payload) const {
    if (aligned16 || plain(pack)) {
      *vector_at(pack) = {{payload.word[0], payload.word[1], payload.word[2], payload.word[3]}};
      return;
    }
    each_byte(pack, [&](std::uint32_t i, std::uint8_t* byte) {
      *byte = static_cast<std::uint8_t>(payload.word[i / 4] >> (i % 4 * 8));
    });
  }

 private:
  struct [[gnu::may_alias]] alignas(16) Vector {
    std::uint32_t word[4];
  };

  // A whole pack in one aligned access, even without the promise.
  WEFT_FN bool plain(std::uint64_t pack) const {
    return stride_ == row_bytes_ && reinterpret_cast<std::uintptr_t>(data_) % sizeof(Pack) == 0 &&
           (pack + 1) * sizeof(Pack) <= bytes_;
  }
  WEFT_FN Vector* vector_at(std::uint64_t pack) const {
    const std::uint64_t offset = pack * sizeof(Pack);
    const std::uint64_t gaps = stride_ == row_bytes_ ? 0 : offset / row_bytes_ * (stride_ - row_bytes_);
    return reinterpret_cast<Vector*>(data_ + offset + gaps);
  }
  template <class Visit>
  WEFT_FN void each_byte(std::uint64_t pack, Visit visit) const {
    const std::uint64_t offset = pack * sizeof(Pack);
    std::uint64_t row = offset / row_bytes_, column = offset % row_bytes_;
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < sizeof(Pack); ++i) {
      if (offset + i >= bytes_) break;
      visit(i, data_ + row * stride_ + column);
      if (++column != row_bytes_) continue;
      column = 0;
      ++row;
    }
  }

  std::uint8_t* data_ = nullptr;
  std::uint64_t bytes_ = 0, row_bytes_ = 0, stride_ = 0;
};

inline bool rows_are_aligned16(const void* data, std::uint64_t row_bytes, std::uint64_t stride) {
  return (reinterpret_cast<std::uintptr_t>(data) | row_bytes | stride) % sizeof(Pack) == 0;
}

}  // namespace weft::detail
