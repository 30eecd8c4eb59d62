// The largest numbers of a warp, in order.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "numeric/numeric.hpp"
#include "team/team.hpp"

namespace weft::detail {

// A number and its column as two words whose order is the candidates' order: larger numbers first, then smaller
// columns.
struct Candidate {
  std::uint32_t key = 0;    // 0: there is none
  std::uint32_t place = 0;  // all bits of the column, flipped

  static WEFT_FN Candidate of(std::uint32_t key, std::uint32_t column) { return {key, ~column}; }
  WEFT_FN std::uint32_t column() const { return ~place; }
  WEFT_FN bool exists() const { return key != 0; }
  WEFT_FN bool above(const Candidate& other) const { return key != other.key ? key > other.key : place > other.place; }
};

// Numbers as words in the same order. NaN comes behind all numbers, and both zeros are one.
WEFT_FN std::uint32_t order_of(float value) {
  const auto bits = bits_of<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0xffffffffu;
  if (magnitude == 0) return 0x80000000u;
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
WEFT_FN float number_of(std::uint32_t order) {
  if (order == 0xffffffffu) return bits_of<float>(kNanF32);
  return bits_of<float>((order >> 31) != 0 ? order & 0x7fffffffu : ~order);
}

template <Team T>
WEFT_FN Candidate from_lane(T& team, const Candidate& candidate, std::uint32_t lane) {
  return {team.from_lane(candidate.key, lane), team.from_lane(candidate.place, lane)};
}
// The larger one of two, or the smaller one.
WEFT_FN Candidate one_of(const Candidate& a, const Candidate& b, bool larger) {
  return a.above(b) == larger ? a : b;
}

// Sorts one candidate of each lane in descending order. By all lanes, as all here.
template <Team T>
WEFT_FN Candidate sort_lanes(T& team, std::uint32_t lane, Candidate own) {
  for (std::uint32_t run = 2; run <= T::kLanes; run *= 2) {
    for (std::uint32_t distance = run / 2; distance != 0; distance /= 2) {
      const Candidate other = from_lane(team, own, lane ^ distance);
      own = one_of(own, other, ((lane & distance) == 0) == ((lane & run) == 0));
    }
  }
  return own;
}

// `most` candidates in descending order, a power of two; the last of them may not exist. Element i is in lane i mod
// kLanes. Lists are merged by K. E. Batcher's bitonic networks ("Sorting networks and their applications", AFIPS 1968):
// the larger ones of one list and the other one turned round are the largest of both, and rise and fall at most once.
template <Team T, std::uint32_t most>
struct Largest {
  static constexpr std::uint32_t kOwn = (most + T::kLanes - 1) / T::kLanes;
  Candidate own[kOwn] = {};

  WEFT_FN Candidate get(T& team, std::uint32_t i) const {
    if constexpr (T::kLanes == 1) return own[i];
    Candidate found = own[0];
    WEFT_UNROLL
    for (std::uint32_t j = 1; j < kOwn; ++j) found = i >= j * T::kLanes ? own[j] : found;
    return from_lane(team, found, i % T::kLanes);
  }

  // Takes what belongs here of another list.
  WEFT_FN void merge(T& team, std::uint32_t lane, const Largest& other) {
    Candidate turned[kOwn];
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kOwn; ++j) {
      turned[j] = from_lane(team, other.own[kOwn - 1 - j], T::kLanes - 1 - lane);
    }
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kOwn; ++j) own[j] = one_of(own[j], turned[j], true);
    sort(team, lane);
  }
  // The same of one candidate of each lane, sorted.
  WEFT_FN void merge(T& team, std::uint32_t lane, const Candidate& other) {
    own[kOwn - 1] = one_of(own[kOwn - 1], from_lane(team, other, T::kLanes - 1 - lane), true);
    sort(team, lane);
  }

 private:
  // For candidates that rise and fall at most once.
  WEFT_FN void sort(T& team, std::uint32_t lane) {
    WEFT_UNROLL
    for (std::uint32_t distance = kOwn / 2; distance != 0; distance /= 2) {
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kOwn; ++j) {
        if ((j & distance) != 0) continue;
        const Candidate a = own[j], b = own[j + distance];
        own[j] = one_of(a, b, true);
        own[j + distance] = one_of(a, b, false);
      }
    }
    for (std::uint32_t distance = T::kLanes / 2; distance != 0; distance /= 2) {
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kOwn; ++j) {
        own[j] = one_of(own[j], from_lane(team, own[j], lane ^ distance), (lane & distance) == 0);
      }
    }
  }
};

// The `k` largest of the candidates that a warp's lanes offer. Each lane holds one back, until one of them would have
// to hold two.
template <Team T, std::uint32_t most>
struct Search {
  Largest<T, most> list;
  Candidate least;  // candidates must be above it
  Candidate held = {};

  // `last`: nothing comes behind it, and candidates do not exist. All that is held is taken.
  WEFT_FN void offer(T& team, std::uint32_t lane, std::uint32_t k, const Candidate& candidate, bool last) {
    const bool taken = candidate.above(least);
    if (last || !team.all_lanes(!(taken && held.exists()))) {
      list.merge(team, lane, sort_lanes(team, lane, held));
      held = {};
      const Candidate kth = list.get(team, k - 1);
      if (kth.above(least)) least = kth;
    }
    if (taken) held = candidate;
  }
};

}  // namespace weft::detail
