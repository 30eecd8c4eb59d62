// Common parts of the all-reduce algorithms, above all their division of work.
#pragma once

#include <bit>
#include <cstdint>

#include "numeric/tensor.hpp"
#include "ops/all_reduce/all_reduce_work.hpp"
#include "protocol/handshake.hpp"
#include "protocol/reduction.hpp"
#include "protocol/session.hpp"

namespace weft::detail {

// The packs of one data thread: strided over the data blocks 1 … blocks − 1 (block 0 is the control block). Every phase
// divides its packs alike. So a thread reads its own packs again, and in-place works.
struct Share {
  std::uint64_t first, step;
};
template <Team T>
WEFT_FN Share share_of(T& team) {
  return {static_cast<std::uint64_t>(team.block_rank() - 1) * team.size() + team.thread_rank(),
          static_cast<std::uint64_t>(team.blocks() - 1) * team.size()};
}

// One instance of an algorithm. `known_size`: the group's size if it has an instance of its own; else 0, and any size
// will do. `aligned16`: input and output consist of whole, aligned packs.
template <class R_, std::uint32_t known_size, bool aligned16>
struct AllReduceInstance {
  using R = R_;
  using Wire = typename R::Wire;
  using Elements = Tensor<typename R::Storage, R::kElements, aligned16>;
  static constexpr std::uint32_t kSize = known_size;
  static constexpr bool kSpecialized = known_size != 0;
  static constexpr bool kIsPowerOfTwo = std::has_single_bit(known_size);
  static constexpr std::uint32_t kBatch = known_size != 0 ? known_size : 8;  // ranks handled at once, in registers

  static WEFT_FN std::uint32_t size(const Call& call) { return kSize != 0 ? kSize : call.size; }
  static WEFT_FN std::uint32_t rank_in_turn(const Call& call, std::uint32_t turn) {
    if constexpr (kIsPowerOfTwo) return (call.rank + turn) % kSize;
    return rank_after(call.rank, turn, size(call));
  }
  // False behind the last rank; always true if the size is known.
  static WEFT_FN bool exists(const Session& s, std::uint32_t rank) { return kSize != 0 || rank < s.size(); }

  // The begin of the packs of `sender` in an area of `owner`'s region, in bank 0. The other bank is bank_packs() away.
  static WEFT_FN Pack* slot(const Call& call, std::uint32_t owner, std::uint64_t area, std::uint64_t packs,
                            std::uint32_t sender) {
    std::byte* const region = kSize != 0 ? call.region[owner] : region_of(call, owner);
    return reinterpret_cast<Pack*>(region + area) + sender * packs;
  }
  using Slots = Pack* [kBatch];
  // Finds the places of this rank's pack `first`, in bank 0, at the ranks of turns turn … turn + kBatch − 1, as far as
  // they exist.
  static WEFT_FN void find_slots(const Call& call, std::uint32_t turn, std::uint64_t area, std::uint64_t packs,
                                 std::uint64_t first, Slots& to) {
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kBatch; ++k) {
      if (turn + k >= size(call)) break;
      to[k] = slot(call, rank_in_turn(call, turn + k), area, packs, call.rank) + first;
    }
  }
  static WEFT_FN std::uint64_t bank_packs(const Call& call, std::uint64_t packs) { return size(call) * packs; }

  // Loads the packs in the slots of ranks first … first + kBatch − 1 until all have arrived. Slot k begins at `slots +
  // k * packs`; `expected(k)` says whether rank first + k sends anything here.
  template <Team T, class Expected>
  static WEFT_FN bool receive(T& team, const Session& s, std::uint32_t phase, const Pack* slots, std::uint64_t packs,
                              std::uint32_t first, Expected expected, Pack (&received)[kBatch]) {
    const auto missing = [&](std::uint32_t k) {
      return expected(k) && !Wire::template arrived<T::kAtomicBytes>(received[k], s.epoch);
    };
    const auto poll = [&] {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (expected(k)) received[k] = team.load(slots + k * packs);
      }
      bool all = true;
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) all &= !missing(k);
      return all;
    };
    // Another block may have to send this rank's own packs, and knows why it has not: so this rank is not named.
    const auto late = [&] {
      std::uint32_t rank = kNoPeer;
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (missing(k) && first + k != s.rank()) rank = first + k;
      }
      return rank;
    };
    return wait(team, s, {.phase = phase}, poll, late);
  }

  // Sums packs i, i + step, … in rank order: the other ranks' packs from slots `packs` apart, without a wire format,
  // and `own`.
  template <std::uint32_t some, Team T, class Index>
  static WEFT_FN void reduce_slots(T& team, const Session& s, ReduceOp op, const Pack* slots, std::uint64_t packs,
                                   Index i, Index step, const Pack (&own)[some], Pack (&result)[some]) {
    typename R::Accumulator sum[some];
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < some; ++j) sum[j] = R::start(op, size(*s.call));
    for (std::uint32_t first = 0; first < size(*s.call); first += kBatch) {
      Pack received[some][kBatch] = {};
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < some; ++j) {
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (!exists(s, first + k)) break;
          received[j][k] = own[j];
          if (first + k == s.rank()) continue;
          received[j][k] = team.get(slots + (first + k) * packs + i + j * step);
        }
      }
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < some; ++j) {
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kBatch; ++k) {
          if (!exists(s, first + k)) break;
          if (first + k == 0) {
            R::begin(sum[j], received[j][k]);
          } else {
            R::add(sum[j], received[j][k]);
          }
        }
      }
    }
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < some; ++j) result[j] = R::finish(sum[j]);
  }

  // Receives one pack from every other rank and reduces them, with this rank's own, in rank order. Packs that were read
  // are put back to rest: this arms the slot for the call after the next. `own_arrives`: the rank has also sent to
  // itself, and `own` is ignored.
  template <bool own_arrives, Team T>
  static WEFT_FN bool receive_and_reduce(T& team, const Session& s, std::uint32_t phase, Pack* slots,
                                         std::uint64_t packs, const Pack& own, typename R::Accumulator& sum) {
    if constexpr (kSize == 2 && !own_arrives) {
      return receive_and_reduce_pair(team, s, phase, slots, packs, own, sum);
    } else {
      return receive_and_reduce_all<own_arrives>(team, s, phase, slots, packs, own, sum);
    }
  }

 private:
  template <bool own_arrives, Team T>
  static WEFT_FN bool receive_and_reduce_all(T& team, const Session& s, std::uint32_t phase, Pack* slots,
                                             std::uint64_t packs, const Pack& own, typename R::Accumulator& sum) {
    for (std::uint32_t first = 0; first < size(*s.call); first += kBatch) {
      const auto expected = [&](std::uint32_t k) {
        return exists(s, first + k) && (own_arrives || first + k != s.rank());
      };
      Pack received[kBatch];
      Pack* const batch = slots + first * packs;
      if (!receive(team, s, phase, batch, packs, first, expected, received)) return false;
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kBatch; ++k) {
        if (!exists(s, first + k)) break;
        const Pack payload = expected(k) ? Wire::decode(received[k]) : own;
        if (first + k == 0) {
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
    return true;
  }
  // Two ranks need less: there is one peer, which always sends. A sum of two numbers has the same bits in either order,
  // as NaN has only one pattern.
  template <Team T>
  static WEFT_FN bool receive_and_reduce_pair(T& team, const Session& s, std::uint32_t phase, Pack* slots,
                                              std::uint64_t packs, const Pack& own, typename R::Accumulator& sum) {
    static_assert(R::kOps == Ops::sum);
    const std::uint32_t peer = 1 - s.rank();
    Pack* const from = slots + peer * packs;
    Pack received{};
    const auto poll = [&] {
      received = team.load(from);
      return Wire::template arrived<T::kAtomicBytes>(received, s.epoch);
    };
    if (!wait(team, s, {.phase = phase}, poll, [&] { return peer; })) return false;
    R::begin(sum, own);
    R::add(sum, Wire::decode(received));
    team.store(from, kRestPack);
    return true;
  }
};

}  // namespace weft::detail
