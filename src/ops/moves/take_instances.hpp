// All kernels of take_rows.
#pragma once

#include "kernel/instances.hpp"
#include "ops/moves/take_kernels.hpp"
#include "ops/moves/take_rows.hpp"

namespace weft::detail {

struct TakeFamily {
  using List = Instances<Instance<TakeRows<false>, TakeQuery{false}>, Instance<TakeRows<true>, TakeQuery{true}>>;
};

}  // namespace weft::detail
