// The sum of a row's squares, in one order, whatever the block and the executor.
//
// First each pack's eight squares are added one after the other. Then packs are added in segments of 32: neighbours
// first, then neighbouring pairs, and so on. Segment s goes to column s mod 32, in ascending order. Last, the columns
// are added like the packs of a segment.
#pragma once

#include <cstdint>

#include "base/pack.hpp"
#include "ops/norm/norm_plan.hpp"
#include "team/team.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kSegmentPacks = 32;
inline constexpr std::uint32_t kScalePacks = 16;  // that share a scale: 128 columns

template <class R>
struct NormSquares {
  // Neighbours that add up their packs' squares without scratch memory: enough lanes for a scale, or one.
  template <class T>
  static constexpr std::uint32_t kUnit = T::kLanes >= kScalePacks ? T::kLanes : 1;

  static WEFT_FN float of_pack(const Pack& pack) {
    typename R::Accumulator x{};
    R::begin(x, pack);
    float sum = x.value[0] * x.value[0];
    WEFT_UNROLL
    for (std::uint32_t i = 1; i < R::kElements; ++i) sum += x.value[i] * x.value[i];
    return sum;
  }

  template <bool single, Team T>
  static WEFT_FN float total(T& team, const float* squares, std::uint32_t packs) {
    static_assert(kMostNormThreads <= kSegmentPacks * kSegmentPacks);  // `single`: as many segments as columns at most
    constexpr std::uint32_t own = kSegmentPacks / T::kLanes, of_segment = kSegmentPacks / kUnit<T>;
    const std::uint32_t entries = (packs + kUnit<T> - 1) / kUnit<T>;
    const std::uint32_t segments = (packs + kSegmentPacks - 1) / kSegmentPacks;
    const auto segment_sum = [&](std::uint32_t segment) {
      return pairwise<of_segment>([&](std::uint32_t i) {
        const std::uint32_t entry = segment * of_segment + i;
        return entry < entries ? squares[entry] : 0.0f;
      });
    };
    const std::uint32_t first = team.thread_rank() % T::kLanes * own;
    const float part = pairwise<own>([&](std::uint32_t i) {
      float sum = 0;
      for (std::uint32_t segment = first + i; segment < segments; segment += kSegmentPacks) {
        sum += segment_sum(segment);
        if (single && own == 1) break;  // a lane has one at most
      }
      return sum;
    });
    return team.sum_of(part, T::kLanes);
  }

 private:
  // Sums of 32 leaves; every lane has 32 / kLanes neighbouring leaves.
  template <std::uint32_t leaves, class Leaf>
  static WEFT_FN float pairwise(Leaf leaf) {
    float value[leaves];
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < leaves; ++i) value[i] = leaf(i);
    WEFT_UNROLL
    for (std::uint32_t step = 1; step < leaves; step *= 2) {
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < leaves; i += 2 * step) value[i] += value[i + step];
    }
    return value[0];
  }
};

}  // namespace weft::detail
