// All kernels that ragged calls need on this rank alone.
#pragma once

#include "kernel/instances.hpp"
#include "ops/moves/take_kernels.hpp"
#include "ops/moves/take_rows.hpp"
#include "ops/moves/write_numbers.hpp"

namespace weft::detail {

struct TakeFamily {
  using List = Instances<Instance<TakeRows<false>, TakeQuery{false}>, Instance<TakeRows<true>, TakeQuery{true}>,
                         Instance<WriteNumbers, NumbersQuery{}>>;
};

}  // namespace weft::detail
