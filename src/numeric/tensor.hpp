// A user's tensor, read and written pack by pack: any alignment that the element type allows, any element count.
// Ordinary loads and stores: no other rank sees this memory.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"

namespace weft::detail {

// `aligned16`: the caller promises that the address is aligned to a pack's payload and that the end cuts no pack
// (is_aligned16()). Then a pack is one load or store, and no other code slows it down.
template <class Storage, std::uint32_t elements, bool aligned16 = false>
class Tensor {
 public:
  static constexpr std::uint32_t kBytes = elements * sizeof(Storage);

  Tensor() = default;
  WEFT_FN Tensor(const void* data, std::uint64_t count)
      : data_(const_cast<Storage*>(static_cast<const Storage*>(data))),
        count_(count),
        aligned_(reinterpret_cast<std::uintptr_t>(data) % kBytes == 0) {}

  WEFT_FN std::uint64_t packs() const { return aligned16 ? count_ / elements : (count_ + elements - 1) / elements; }

  // The rest behind the first `packs` packs, perhaps empty; the first `packs` packs.
  WEFT_FN Tensor from(std::uint64_t packs) const {
    const std::uint64_t begin = packs * elements;
    Tensor rest = *this;
    rest.data_ += begin;
    rest.count_ = begin < count_ ? count_ - begin : 0;
    return rest;
  }
  WEFT_FN Tensor first(std::uint64_t packs) const {
    Tensor head = *this;
    if (packs * elements < count_) head.count_ = packs * elements;
    return head;
  }
  template <class Team>
  WEFT_FN void settle(Team& team) {
    team.settle(data_);
    if constexpr (!aligned16) team.settle(count_);
  }

  // Elements behind the end read as zero.
  WEFT_FN Pack load(std::uint64_t pack) const {
    const std::uint64_t first = pack * elements;
    if constexpr (aligned16) {
      return load_whole(first);
    } else {
      if (aligned_ && first + elements <= count_) return load_whole(first);
      Pack payload{};
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < elements; ++i) {
        if (first + i >= count_) break;
        const Storage bits = data_[first + i];
        if constexpr (sizeof(Storage) == 8) {
          payload.word[2 * i] = static_cast<std::uint32_t>(bits);
          payload.word[2 * i + 1] = static_cast<std::uint32_t>(bits >> 32);
        } else {
          payload.word[i * sizeof(Storage) / 4] |= std::uint32_t{bits} << (i * sizeof(Storage) % 4 * 8);
        }
      }
      return payload;
    }
  }

  WEFT_FN void store(std::uint64_t pack, const Pack& payload) const {
    const std::uint64_t first = pack * elements;
    if constexpr (aligned16) {
      store_whole(first, payload);
    } else {
      if (aligned_ && first + elements <= count_) return store_whole(first, payload);
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < elements; ++i) {
        if (first + i >= count_) break;
        if constexpr (sizeof(Storage) == 8) {
          data_[first + i] = payload.word[2 * i] | static_cast<std::uint64_t>(payload.word[2 * i + 1]) << 32;
        } else {
          data_[first + i] =
              static_cast<Storage>(payload.word[i * sizeof(Storage) / 4] >> (i * sizeof(Storage) % 4 * 8));
        }
      }
    }
  }

 private:
  // A pack's payload in one access; it may lie over memory of any type.
  struct [[gnu::may_alias]] alignas(kBytes) Vector {
    std::uint32_t word[kBytes / 4];
  };

  WEFT_FN Pack load_whole(std::uint64_t first) const {
    const Vector vector = *reinterpret_cast<const Vector*>(data_ + first);
    Pack payload{};
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kBytes / 4; ++i) payload.word[i] = vector.word[i];
    return payload;
  }
  WEFT_FN void store_whole(std::uint64_t first, const Pack& payload) const {
#if defined(__CUDA_ARCH__)
    // nvcc may take an assignment apart into four stores if it cannot see that memory is global.
    if constexpr (kBytes == sizeof(Pack)) {
      const auto [a, b, c, d] = payload.word;
      __stwb(reinterpret_cast<uint4*>(data_ + first), make_uint4(a, b, c, d));
    } else
#endif
    {
      Vector vector;
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < kBytes / 4; ++i) vector.word[i] = payload.word[i];
      *reinterpret_cast<Vector*>(data_ + first) = vector;
    }
  }

  Storage* data_ = nullptr;
  std::uint64_t count_ = 0;
  bool aligned_ = true;
};

inline bool is_aligned16(const void* data, std::uint64_t bytes, std::uint64_t payload_bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % payload_bytes == 0 && bytes % payload_bytes == 0;
}

}  // namespace weft::detail
