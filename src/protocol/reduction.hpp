// The reductions of one element type, for the all-reduce algorithms: how many elements a pack carries, their wire
// format, and the sum of packs in rank order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/function.hpp"
#include "base/pack.hpp"
#include "numeric/numeric.hpp"
#include "numeric/ops.hpp"
#include "weft/types.hpp"
#include "wire/line.hpp"
#include "wire/sentinel.hpp"
#include "wire/signal.hpp"

namespace weft::detail {

// An integer has no value to spare for a sentinel.
template <DataType type>
using ArrivalInData = std::conditional_t<is_floating(type), Sentinel<type>, Line>;

template <DataType type, Ops ops, class Wire_ = ArrivalInData<type>>
struct Reduction {
  using Wire = Wire_;
  static constexpr DataType kType = type;
  static constexpr Ops kOps = ops;
  using Storage = typename Element<type>::Storage;
  using Value = typename Element<type>::Accumulator;
  static constexpr std::uint32_t kElements = Wire::kPayloadBytes / sizeof(Storage);

  struct OnlySums {};
  struct Operation {
    ReduceOp op;
    std::uint32_t ranks;
  };
  struct Accumulator : std::conditional_t<ops == Ops::any, Operation, OnlySums> {
    Value value[kElements];
  };

  // An accumulator for the call's operation on the data of so many ranks.
  static WEFT_FN Accumulator start(ReduceOp op, std::uint32_t ranks) {
    Accumulator sum{};
    if constexpr (ops == Ops::any) {
      sum.op = op;
      sum.ranks = ranks;
    }
    return sum;
  }

  static WEFT_FN Storage element(const Pack& payload, std::uint32_t i) {
    if constexpr (sizeof(Storage) == 8) {
      return payload.word[2 * i] | static_cast<std::uint64_t>(payload.word[2 * i + 1]) << 32;
    } else {
      constexpr std::uint32_t each = 4 / sizeof(Storage);  // in a word
      return static_cast<Storage>(payload.word[i / each] >> (i % each * 8 * sizeof(Storage)));
    }
  }

  // The first rank's values are taken, not added to zero: 0 + −0 would lose a sign.
  static WEFT_FN void begin(Accumulator& sum, const Pack& payload) {
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kElements; ++i) sum.value[i] = taken(sum, Element<type>::widen(element(payload, i)));
  }
  static WEFT_FN void add(Accumulator& sum, const Pack& payload) {
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kElements; ++i) {
      const Value value = taken(sum, Element<type>::widen(element(payload, i)));
      sum.value[i] = adds(sum) ? sum.value[i] + value : larger(sum.value[i], value);
    }
  }
  static WEFT_FN Pack finish(const Accumulator& sum) {
    Pack payload{};
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < kElements; ++i) {
      if constexpr (sizeof(Storage) == 8) {
        const Storage bits = Element<type>::narrow(result(sum, sum.value[i]));
        payload.word[2 * i] = static_cast<std::uint32_t>(bits);
        payload.word[2 * i + 1] = static_cast<std::uint32_t>(bits >> 32);
      } else if constexpr (sizeof(Storage) == 4) {
        payload.word[i] = Element<type>::narrow(result(sum, sum.value[i]));
      } else if constexpr (sizeof(Storage) == 2) {
        if (i % 2 != 0) continue;
        payload.word[i / 2] = Element<type>::narrow(result(sum, sum.value[i]), result(sum, sum.value[i + 1]));
      } else {
        payload.word[i / 4] |= std::uint32_t{Element<type>::narrow(result(sum, sum.value[i]))} << i % 4 * 8;
      }
    }
    return payload;
  }

 private:
  static WEFT_FN bool adds(const Accumulator& sum) {
    if constexpr (ops == Ops::any) return sum.op == ReduceOp::sum || sum.op == ReduceOp::avg;
    return true;
  }
  // One rank's value as it goes into the accumulator, and the accumulator's value as the result.
  static WEFT_FN Value taken(const Accumulator& sum, Value value) {
    if constexpr (ops == Ops::any) return sum.op == ReduceOp::min ? flipped(value) : value;
    return value;
  }
  static WEFT_FN Value result(const Accumulator& sum, Value value) {
    if constexpr (ops == Ops::any) {
      if (sum.op == ReduceOp::avg) return divided(value, sum.ranks);
    }
    return taken(sum, value);
  }
};

}  // namespace weft::detail
