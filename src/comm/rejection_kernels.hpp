// The kernel by which a rank tells others that it has rejected a call.
#pragma once

#include "kernel/kernel.hpp"

namespace weft::detail {

struct RejectionFamily;  // comm/rejection_instances.hpp

struct RejectionQuery {
  using Work = NoWork;
  constexpr bool operator==(const RejectionQuery&) const = default;
  constexpr RejectionQuery key() const { return *this; }
};
KernelFor<NoWork> find_kernel(const RejectionQuery& query);

}  // namespace weft::detail
