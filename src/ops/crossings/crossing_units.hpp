// Common parts of crossings in one hop and in two: units of payload on the wire, parts of sums, and the sums.
#pragma once

#include <cstdint>

#include "ops/all_reduce/all_reduce.hpp"
#include "ops/crossings/crossing_work.hpp"
#include "wire/parts.hpp"

namespace weft::detail {

// A unit is a pack of payload; it takes one or two packs of the wire.
template <DataType type, std::uint32_t known_size, bool aligned16>
struct CrossingUnits : AllReduceInstance<Reduction<type, Ops::sum>, known_size, aligned16> {
  using Instance = AllReduceInstance<Reduction<type, Ops::sum>, known_size, aligned16>;
  using Instance::kBatch;
  using typename Instance::R;
  using typename Instance::Wire;
  using Parts = WireParts<Wire>;
  static constexpr std::uint32_t kWirePacks = Parts::kWirePacks;

  // An area of slots in this call's bank; one of layout's, with the packs of each of its slots.
  struct Area {
    std::uint64_t offset, packs;
  };
  // The areas of the two hops: parts of sums on their way to their owner, and results on their way from there.
  static WEFT_FN Area parts(const Session& s) { return {s.layout().scatter, s.layout().two_shot_packs}; }
  static WEFT_FN Area sums(const Session& s) { return {s.layout().gather, s.layout().two_shot_packs}; }
  static WEFT_FN Pack* slot(const Session& s, std::uint32_t owner, const Area& area, std::uint32_t sender) {
    return Instance::slot(*s.call, owner, area.offset, area.packs, sender) +
           s.epoch % kBanks * Instance::bank_packs(*s.call, area.packs);
  }

  template <Team T>
  static WEFT_FN void put_unit(T& team, const Session& s, Pack* to, const Pack& unit) {
    WEFT_UNROLL
    for (std::uint32_t w = 0; w < kWirePacks; ++w)
      team.store(to + w, Wire::template encode<T::kAtomicBytes>(Parts::part(unit, w), s.epoch));
  }

  // Sends packs to the same place in this rank's slots at all takers. `begin`: the pack of a slot that follows from i
  // 0.
  template <Team T>
  struct SendsOn {
    static constexpr bool kKeepsAll = true;  // for norms: they send every row
    static constexpr std::uint32_t kKnown = known_size != 0 ? known_size - 1 : 0;
    T& team;
    const Session& s;
    const Circle& takers;
    Area area;
    std::uint64_t begin;
    Pack* slots[kKnown == 0 ? 1 : kKnown] = {};  // of the ranks of turns 1 …, if their number is known

    WEFT_FN Pack* slot_of(std::uint32_t turn) const {
      return slot(s, takers.rank_in_turn(s.rank(), turn), area, s.rank());
    }
    WEFT_FN void find_slots() {
      if constexpr (kKnown != 0) {
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kKnown; ++k) slots[k] = 1 + k < takers.size ? slot_of(1 + k) : nullptr;
      }
    }
    WEFT_FN void operator()(std::uint32_t i, const Pack& payload) const {
      if constexpr (kKnown == 0) {
        for (std::uint32_t turn = 1; turn < takers.size; ++turn) put_unit(team, s, slot_of(turn) + begin + i, payload);
      } else {
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kKnown; ++k) {
          if (1 + k < takers.size) put_unit(team, s, slots[k] + begin + i, payload);
        }
      }
    }
  };

  // Sends every owner this rank's part of its shard.
  template <Team T, class Table>
  static WEFT_FN void send_parts(T& team, const Session& s, const CrossingWork& work, const Table& table) {
    const auto [first, step] = share_of(team);
    const Circle owners = work.partition.summing(s.rank());
    const std::uint64_t most = work.units(table.most_rows());
    for (std::uint32_t turn = 1; turn < owners.size; turn += kBatch) {
      Rows<aligned16> from[kBatch];
      Pack* to[kBatch] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (turn + k >= owners.size) break;
        const std::uint32_t owner = owners.rank_in_turn(s.rank(), turn + k);
        from[k] = work.template part_of<aligned16>(table, owner);
        to[k] = slot(s, owner, parts(s), s.rank());
      }
      for (std::uint64_t i = first; i < most; i += step) {
        Pack unit[kBatch];
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) unit[k] = from[k].load(i);
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (i < from[k].packs()) put_unit(team, s, to[k] + i * kWirePacks, unit[k]);
        }
      }
    }
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
          const Pack payload = expected(k) ? Wire::decode(received[k]) : Parts::part(own, w);
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
      Parts::put_part(unit, w, R::finish(sum));
    }
    return true;
  }

  // Packs of the wire that one thread takes from one slot: at distances of `step`, the first of `left` packs.
  struct Taken {
    std::uint32_t step, left;

    WEFT_FN bool exists(std::uint32_t k) const { return k * step < left; }

    template <std::uint32_t some, Team T>
    WEFT_FN void load(T& team, const Pack* slot, Pack (&received)[some]) const {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k) {
        if (exists(k)) received[k] = team.load(slot + k * step);
      }
    }
    template <Team T, std::uint32_t some>
    WEFT_FN bool all_there(const Session& s, const Pack (&received)[some]) const {
      bool all = true;
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k)
        all &= !exists(k) || Wire::template arrived<T::kAtomicBytes>(received[k], s.epoch);
      return all;
    }
    // Calls `serve(k, payload)` for each, and puts it back to rest.
    template <std::uint32_t some, Team T, class Serve>
    WEFT_FN void take(T& team, Pack* slot, const Pack (&received)[some], Serve serve) const {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k) {
        if (!exists(k)) continue;
        serve(k, Wire::decode(received[k]));
        team.store(slot + k * step, kRestPack);
      }
    }
  };
  // take_sum() for several packs of each slot: all of them travel at once. There are two senders at least.
  template <std::uint32_t some, Team T>
  static WEFT_FN bool take_sums(T& team, const Session& s, const Circle& senders, Pack* slots, std::uint64_t packs,
                                Taken taken, const Pack (&own)[some], Pack (&sums)[some]) {
    if constexpr (known_size == 2) {
      return take_sums_of_pair<some>(team, s, slots + (1 - s.rank()) * packs, taken, own, sums);
    } else {
      return take_sums_of_all<some>(team, s, senders, slots, packs, taken, own, sums);
    }
  }
  template <std::uint32_t some, Team T>
  static WEFT_FN bool take_sums_of_all(T& team, const Session& s, const Circle& senders, Pack* slots,
                                       std::uint64_t packs, Taken taken, const Pack (&own)[some], Pack (&sums)[some]) {
    typename R::Accumulator sum[some];
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < some; ++j) sum[j] = R::start(ReduceOp::sum, senders.size);
    for (std::uint32_t first = senders.first; first < senders.end(); first += kBatch) {
      const auto exists = [&](std::uint32_t k) { return first + k < senders.end(); };
      const auto expected = [&](std::uint32_t k, std::uint32_t j) {
        return exists(k) && first + k != s.rank() && taken.exists(j);
      };
      Pack received[kBatch][some] = {};
      const auto missing = [&](std::uint32_t k, std::uint32_t j) {
        return expected(k, j) && !Wire::template arrived<T::kAtomicBytes>(received[k][j], s.epoch);
      };
      const auto each = [&](auto visit) {
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          WEFT_UNROLL
          for (std::uint32_t j = 0; j < some; ++j) visit(k, j, slots + (first + k) * packs + j * taken.step);
        }
      };
      const auto arrived = [&] {
        each([&](std::uint32_t k, std::uint32_t j, const Pack* at) {
          if (expected(k, j)) received[k][j] = team.load(at);
        });
        bool all = true;
        each([&](std::uint32_t k, std::uint32_t j, const Pack*) { all &= !missing(k, j); });
        return all;
      };
      const auto late = [&] {
        std::uint32_t rank = kNoPeer;
        each([&](std::uint32_t k, std::uint32_t j, const Pack*) { rank = missing(k, j) ? first + k : rank; });
        return rank;
      };
      if (!wait(team, s, {.phase = 1}, arrived, late)) return false;
      each([&](std::uint32_t k, std::uint32_t j, Pack* at) {
        if (!exists(k)) return;
        const Pack payload = expected(k, j) ? Wire::decode(received[k][j]) : own[j];
        if (first + k == senders.first) {
          R::begin(sum[j], payload);
        } else {
          R::add(sum[j], payload);
        }
        if (expected(k, j)) team.store(at, kRestPack);
      });
    }
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < some; ++j) sums[j] = R::finish(sum[j]);
    return true;
  }

  // Two ranks need less: there is one peer, which always sends. A sum of two numbers has the same bits in either order,
  // as NaN has only one pattern.
  template <std::uint32_t some, Team T>
  static WEFT_FN bool take_sums_of_pair(T& team, const Session& s, Pack* slot, Taken taken, const Pack (&own)[some],
                                        Pack (&sums)[some]) {
    static_assert(R::kOps == Ops::sum);
    Pack received[some] = {};
    const auto arrived = [&] {
      taken.template load<some>(team, slot, received);
      return taken.template all_there<T>(s, received);
    };
    if (!wait(team, s, {.phase = 1}, arrived, [&] { return 1 - s.rank(); })) return false;
    taken.template take<some>(team, slot, received, [&](std::uint32_t k, const Pack& payload) {
      typename R::Accumulator sum{};
      R::begin(sum, own[k]);
      R::add(sum, payload);
      sums[k] = R::finish(sum);
    });
    return true;
  }

  // Takes the units that the other owners send on, at most `most` of each. `place_of(owner)` has their number, packs();
  // `put(place, i, unit)` puts one of them there.
  template <Team T, class PlaceOf, class Put>
  static WEFT_FN bool receive_shared(T& team, const Session& s, const Circle& owners, std::uint64_t most,
                                     PlaceOf place_of, Put put) {
    const auto [start, step] = share_of(team);
    const std::uint64_t packs = sums(s).packs;
    for (std::uint32_t first = owners.first; first < owners.end(); first += kBatch) {
      decltype(place_of(first)) to[kBatch];
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (first + k < owners.end()) to[k] = place_of(first + k);
      }
      Pack* const slots = slot(s, s.rank(), sums(s), first);
      for (std::uint64_t i = start; i < most; i += step) {
        const auto expected = [&](std::uint32_t k) {
          return first + k < owners.end() && first + k != s.rank() && i < to[k].packs();
        };
        Pack unit[kBatch] = {};
        WEFT_UNROLL
        for (std::uint32_t w = 0; w < kWirePacks; ++w) {
          Pack received[kBatch];
          Pack* const batch = slots + i * kWirePacks + w;
          if (!Instance::receive(team, s, 2, batch, packs, first, expected, received)) return false;
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kBatch; ++k) {
            if (!expected(k)) continue;
            Parts::put_part(unit[k], w, Wire::decode(received[k]));
            team.store(batch + k * packs, kRestPack);
          }
        }
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (expected(k)) put(to[k], i, unit[k]);
        }
      }
    }
    return true;
  }
};

}  // namespace weft::detail
