// One reduction of one element type, for the all-reduce algorithms: how many elements a pack carries, their wire
// format, and the sum of packs in rank order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/function.hpp"
#include "base/pack.hpp"
#include "numeric/numeric.hpp"
#include "wire/line.hpp"
#include "wire/sentinel.hpp"
#include "wire/signal.hpp"

namespace weft::detail {

// An integer has no value to spare for a sentinel.
template <DataType type>
using ArrivalInData = std::conditional_t<type == DataType::i32, Line, Sentinel<type>>;

template <DataType type, ReduceOp op, class Wire_ = ArrivalInData<type>>
struct Reduction {
  using Wire = Wire_;
  static constexpr DataType kType = type;
  static constexpr ReduceOp kOp = op;
  using Storage = typename Element<type>::Storage;
  using Value = typename Element<type>::Accumulator;
  static constexpr std::uint32_t kElements = Wire::kPayloadBytes / sizeof(Storage);

  struct Accumulator {
    Value value[kElements];
  };

  static WEFT_FN Storage element(const Pack& payload, std::uint32_t i) {
    if constexpr (sizeof(Storage) == 4) return payload.word[i];
    return static_cast<Storage>(payload.word[i / 2] >> (i % 2 * 16));
  }

  // The first rank's values are taken, not added to zero: 0 + −0 would lose a sign.
  static WEFT_FN void begin(Accumulator& sum, const Pack& payload) {
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kElements; ++i) sum.value[i] = Element<type>::widen(element(payload, i));
  }
  static WEFT_FN void add(Accumulator& sum, const Pack& payload) {
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kElements; ++i) {
      sum.value[i] = combine<op>(sum.value[i], Element<type>::widen(element(payload, i)));
    }
  }
  static WEFT_FN Pack finish(const Accumulator& sum) {
    Pack payload{};
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kElements * sizeof(Storage) / 4; ++i) {
      if constexpr (sizeof(Storage) == 4) {
        payload.word[i] = Element<type>::narrow(sum.value[i]);
      } else {
        payload.word[i] = Element<type>::narrow(sum.value[2 * i], sum.value[2 * i + 1]);
      }
    }
    return payload;
  }
};

}  // namespace weft::detail
