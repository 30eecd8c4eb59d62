#include <array>

#include "core/all_reduce_kernels.hpp"
#include "core/moe_kernels.hpp"
#include "core/move_kernels.hpp"
#include "core/norm_kernels.hpp"
#include "core/rejection_kernels.hpp"
#include "core/take_kernels.hpp"

namespace weft::detail {

std::span<const std::span<const Kernel>> all_kernels() {
  static const std::array families{kernels_of<AllReduceFamily>(), kernels_of<MoveFamily>(),
                                   kernels_of<MoeFamily>(),       kernels_of<NormFamily>(),
                                   kernels_of<TakeFamily>(),      kernels_of<RejectionFamily>()};
  return families;
}

}  // namespace weft::detail
