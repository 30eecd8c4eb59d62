// Finds the kernel that serves take_rows.
#pragma once

#include "kernel/kernel.hpp"
#include "ops/moves/take_work.hpp"

namespace weft::detail {

struct TakeFamily;  // ops/moves/take_instances.hpp

struct TakeQuery {
  bool aligned16;  // both tensors consist of whole, aligned packs

  using Work = TakeWork;
  constexpr bool operator==(const TakeQuery&) const = default;
  constexpr TakeQuery key() const { return *this; }
};
KernelFor<TakeWork> find_kernel(const TakeQuery& query);

}  // namespace weft::detail
