// Wire format "line": payload that must stay bit-exact. Every 8 bytes carry 4 of payload and 4 that say that they have
// arrived (NCCL's LL protocol), so that the format holds wherever 8-byte stores are atomic.
//
// The flag is the epoch without its top bit, which never equals the resting word. Readers put the resting word back
// (wire/pack.hpp): a slot that no call has touched for 2^31 calls can then not be taken for new data, which an epoch
// alone could not promise.
#pragma once

#include <cstdint>

#include "team/function.hpp"
#include "wire/pack.hpp"

namespace weft::detail {

struct Line {
  static constexpr int kPayloadBytes = 8;

  static WEFT_FN std::uint32_t flag(std::uint32_t epoch) { return epoch & 0x7fffffffu; }

  // `payload` holds its 8 bytes in words 0 and 1.
  template <int /*atomic_bytes*/>
  static WEFT_FN Pack encode(Pack payload, std::uint32_t epoch) {
    return {{payload.word[0], flag(epoch), payload.word[1], flag(epoch)}};
  }

  template <int /*atomic_bytes*/>
  static WEFT_FN bool arrived(const Pack& pack, std::uint32_t epoch) {
    return pack.word[1] == flag(epoch) && pack.word[3] == flag(epoch);
  }

  static WEFT_FN Pack decode(const Pack& pack) { return {{pack.word[0], pack.word[2], 0, 0}}; }
};

}  // namespace weft::detail
