// Common parts of crossings in one hop and in two: units of payload on the wire, and their sums.
#pragma once

#include <cstdint>

#include "ops/all_reduce/all_reduce.hpp"
#include "ops/crossings/crossing_work.hpp"

namespace weft::detail {

// A unit is a pack of payload; it takes one or two packs of the wire.
template <DataType type, std::uint32_t known_size, bool aligned16>
struct CrossingUnits : AllReduceInstance<Reduction<type, Ops::sum>, known_size, aligned16> {
  using Instance = AllReduceInstance<Reduction<type, Ops::sum>, known_size, aligned16>;
  using Instance::kBatch;
  using typename Instance::R;
  using typename Instance::Wire;
  static constexpr std::uint32_t kWirePacks = sizeof(Pack) / Wire::kPayloadBytes;

  // part(): pack `k` of the wire for a unit of payload, before it is encoded. put_part() is the inverse.
  static WEFT_FN Pack part(const Pack& unit, std::uint32_t k) {
    if constexpr (kWirePacks == 1) return unit;
    return {{unit.word[2 * k], unit.word[2 * k + 1], 0, 0}};
  }
  static WEFT_FN void put_part(Pack& unit, std::uint32_t k, const Pack& part) {
    if constexpr (kWirePacks == 1) {
      unit = part;
    } else {
      unit.word[2 * k] = part.word[0];
      unit.word[2 * k + 1] = part.word[1];
    }
  }

  // An area of slots in this call's bank; one of layout's, with the packs of each of its slots.
  struct Area {
    std::uint64_t offset, packs;
  };
  static WEFT_FN Pack* slot(const Session& s, std::uint32_t owner, const Area& area, std::uint32_t sender) {
    return Instance::slot(*s.call, owner, area.offset, area.packs, sender) +
           s.epoch % kBanks * Instance::bank_packs(*s.call, area.packs);
  }

  template <Team T>
  static WEFT_FN void put_unit(T& team, const Session& s, Pack* to, const Pack& unit) {
    WEFT_UNROLL
    for (std::uint32_t w = 0; w < kWirePacks; ++w)
      team.store(to + w, Wire::template encode<T::kAtomicBytes>(part(unit, w), s.epoch));
  }

  // Sums a unit of all senders, in rank order: those in slots `packs` apart, of which `slots` is rank 0's, and this
  // rank's own. Packs that were read are put back to rest.
  template <Team T>
  static WEFT_FN bool take_sum(T& team, const Session& s, const Circle& senders, Pack* slots, std::uint64_t packs,
                               const Pack& own, Pack& unit) {
    WEFT_UNROLL
    for (std::uint32_t w = 0; w < kWirePacks; ++w) {
      auto sum = R::start(ReduceOp::sum, senders.size);
      for (std::uint32_t first = senders.first; first < senders.end(); first += kBatch) {
        const auto exists = [&](std::uint32_t k) { return first + k < senders.end(); };
        const auto expected = [&](std::uint32_t k) { return exists(k) && first + k != s.rank(); };
        Pack received[kBatch];
        Pack* const batch = slots + first * packs + w;
        if (!Instance::receive(team, s, 1, batch, packs, first, expected, received)) return false;
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (!exists(k)) break;
          const Pack payload = expected(k) ? Wire::decode(received[k]) : part(own, w);
          if (first + k == senders.first) {
            R::begin(sum, payload);
          } else {
            R::add(sum, payload);
          }
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (expected(k)) team.store(batch + k * packs, kRestPack);
        }
      }
      put_part(unit, w, R::finish(sum));
    }
    return true;
  }
};

}  // namespace weft::detail
