// The kernel of rejections.
#pragma once

#include "algorithms/rejection.hpp"
#include "core/instances.hpp"
#include "core/rejection_kernels.hpp"

namespace weft::detail {

struct RejectionFamily {
  using List = Instances<Instance<Rejection, RejectionQuery{}>>;
};

}  // namespace weft::detail
