// All kernels of take_rows.
#pragma once

#include "algorithms/take_rows.hpp"
#include "core/instances.hpp"
#include "core/take_kernels.hpp"

namespace weft::detail {

struct TakeFamily {
  using List = Instances<Instance<TakeRows<false>, TakeQuery{false}>, Instance<TakeRows<true>, TakeQuery{true}>>;
};

}  // namespace weft::detail
