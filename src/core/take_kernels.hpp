// Which kernel serves take_rows.
#pragma once

#include "algorithms/take_work.hpp"
#include "core/kernel.hpp"

namespace weft::detail {

struct TakeFamily;  // core/take_instances.hpp

struct TakeQuery {
  bool whole;  // both tensors consist of whole, aligned packs

  using Work = TakeWork;
  constexpr bool operator==(const TakeQuery&) const = default;
  constexpr TakeQuery key() const { return *this; }
};
KernelFor<TakeWork> find_kernel(const TakeQuery& query);

}  // namespace weft::detail
