#include <array>

#include "comm/rejection_kernels.hpp"
#include "ops/all_reduce/all_reduce_kernels.hpp"
#include "ops/columns/column_kernels.hpp"
#include "ops/crossings/crossing_kernels.hpp"
#include "ops/layer/silu_mul_work.hpp"
#include "ops/messages/message_kernels.hpp"
#include "ops/moe/moe_kernels.hpp"
#include "ops/moves/move_kernels.hpp"
#include "ops/moves/take_kernels.hpp"
#include "ops/norm/norm_kernels.hpp"
#include "ops/normed_crossings/normed_crossing_kernels.hpp"
#include "ops/top_k/top_k_kernels.hpp"

namespace weft::detail {

std::span<const std::span<const Kernel>> all_kernels() {
  static const std::array families{
      kernels_of<AllReduceFamily>(), kernels_of<MoveFamily>(),   kernels_of<MoeFamily>(),
      kernels_of<NormFamily>(),      kernels_of<TakeFamily>(),   kernels_of<MessageFamily>(),
      kernels_of<RejectionFamily>(), kernels_of<ColumnFamily>(), kernels_of<CrossingFamily>(),
      kernels_of<LayerFamily>(),     kernels_of<TopKFamily>(),   kernels_of<NormedCrossingFamily>(),
      kernels_of<MaskFamily>()};
  return families;
}

}  // namespace weft::detail
