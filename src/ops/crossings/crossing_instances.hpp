// All kernels of crossings.
#pragma once

#include "kernel/instances.hpp"
#include "ops/crossings/crossing.hpp"
#include "ops/crossings/crossing_kernels.hpp"

namespace weft::detail {

template <DataType type, bool aligned16 = false>
using CrossingOf = Instance<Crossing<type, aligned16>, CrossingQuery{.type = type, .aligned16 = aligned16}>;

struct CrossingFamily {
  using List = Instances<CrossingOf<DataType::bf16, true>, CrossingOf<DataType::bf16>, CrossingOf<DataType::f16>,
                         CrossingOf<DataType::f32>, CrossingOf<DataType::i32>>;
};

}  // namespace weft::detail
