// A user's tensor, read and written pack by pack: any alignment that the element type allows, any element count.
// Ordinary loads and stores: no other rank sees this memory.
#pragma once

#include <cstdint>

#include "team/function.hpp"
#include "wire/pack.hpp"

namespace weft::detail {

template <class Storage, std::uint32_t elements>
class Tensor {
 public:
  static constexpr std::uint32_t kBytes = elements * sizeof(Storage);

  WEFT_FN Tensor(const void* data, std::uint64_t count)
      : data_(const_cast<Storage*>(static_cast<const Storage*>(data))),
        count_(count),
        aligned_(reinterpret_cast<std::uintptr_t>(data) % kBytes == 0) {}

  WEFT_FN std::uint64_t packs() const { return (count_ + elements - 1) / elements; }

  // Elements behind the end read as zero.
  WEFT_FN Pack load(std::uint64_t pack) const {
    const std::uint64_t first = pack * elements;
    Pack payload{};
    if (aligned_ && first + elements <= count_) {
      const Vector vector = *reinterpret_cast<const Vector*>(data_ + first);
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < kBytes / 4; ++i) payload.word[i] = vector.word[i];
      return payload;
    }
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < elements; ++i) {
      if (first + i >= count_) break;
      const std::uint32_t bits = data_[first + i];
      payload.word[i * sizeof(Storage) / 4] |= bits << (i * sizeof(Storage) % 4 * 8);
    }
    return payload;
  }

  WEFT_FN void store(std::uint64_t pack, const Pack& payload) const {
    const std::uint64_t first = pack * elements;
    if (aligned_ && first + elements <= count_) {
      Vector vector;
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < kBytes / 4; ++i) vector.word[i] = payload.word[i];
      *reinterpret_cast<Vector*>(data_ + first) = vector;
      return;
    }
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < elements; ++i) {
      if (first + i >= count_) break;
      data_[first + i] = static_cast<Storage>(payload.word[i * sizeof(Storage) / 4] >> (i * sizeof(Storage) % 4 * 8));
    }
  }

 private:
  // A pack's payload in one access; it may lie over memory of any type.
  struct [[gnu::may_alias]] alignas(kBytes) Vector {
    std::uint32_t word[kBytes / 4];
  };

  Storage* data_;
  std::uint64_t count_;
  bool aligned_;
};

}  // namespace weft::detail
