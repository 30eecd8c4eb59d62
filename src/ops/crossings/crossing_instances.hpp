// All kernels of crossings.
#pragma once

#include "kernel/instances.hpp"
#include "ops/crossings/crossing.hpp"
#include "ops/crossings/crossing_kernels.hpp"

namespace weft::detail {

template <DataType type, std::uint32_t size = 0, bool aligned16 = false>
using CrossingOf =
    Instance<Crossing<type, size, aligned16>, CrossingQuery{.type = type, .size = size, .aligned16 = aligned16}>;

struct CrossingFamily {
  using List = Instances<CrossingOf<DataType::bf16, 0, true>, CrossingOf<DataType::bf16, 2, true>,
                         CrossingOf<DataType::bf16, 4, true>, CrossingOf<DataType::bf16>, CrossingOf<DataType::f16>,
                         CrossingOf<DataType::f32>, CrossingOf<DataType::i32>>;
};

}  // namespace weft::detail
