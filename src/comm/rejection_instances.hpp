// The kernel of rejections.
#pragma once

#include "comm/rejection.hpp"
#include "comm/rejection_kernels.hpp"
#include "kernel/instances.hpp"

namespace weft::detail {

struct RejectionFamily {
  using List = Instances<Instance<Rejection, RejectionQuery{}>>;
};

}  // namespace weft::detail
