// The bytes that an exchange takes, and the tokens that they hold.
#include <algorithm>

#include "comm/arguments.hpp"
#include "ops/moe/exchange_state.hpp"
#include "tuning/row_path.hpp"
#include "weft/moe.hpp"

namespace weft {

MoeExchangeMemory moe_exchange_memory(int ranks, const MoeExchangeArgs& args) {
  detail::require(ranks >= 1 && ranks <= static_cast<int>(detail::kMaxRanks), "ranks: {} is not between 1 and {}",
                  ranks, detail::kMaxRanks);
  const auto size = static_cast<std::uint32_t>(ranks);
  detail::check_exchange_args(size, args);
  const detail::ExpertMap map = detail::map_experts(size, args);
  const detail::ExchangeShape shape = detail::make_shape(size, 0, detail::with_row_path(args), map);
  const detail::ExchangeLayout layout = detail::make_exchange_layout(size, shape);
  const detail::OutputRow row = detail::output_row(args);
  MoeExchangeMemory memory{};
  memory.dispatch = layout.dispatch_bytes / detail::kBanks;
  const std::size_t weights = detail::late_weights_bytes(size, shape);
  memory.combine = (layout.combine_bytes - weights) / detail::kBanks;
  memory.tables =
      args.handles * detail::RoutingTables::bytes(size, shape) + args.maps * detail::map_bytes(map) + weights;
  memory.window = layout.dispatch_bytes + layout.combine_bytes - weights + memory.tables;
  const bool by_rank = detail::has_joint_rows(args.layout);
  const std::size_t entry = sizeof(std::int32_t) + (args.weighted ? sizeof(float) : 0);
  const std::size_t rows = args.layout == RowLayout::expert_masked ? std::size_t{shape.most_local} * shape.capacity
                                                                   : std::size_t{shape.rows};
  memory.output =
      rows * (row.bytes + row.scale_bytes + detail::side_sizes(args).bytes + (by_rank ? args.top_k * entry : 0));
  memory.ring_rows = shape.ring_rows;
  memory.half_tokens = std::min(args.tokens, std::max(shape.ring_rows, shape.slots));
  return memory;
}

}  // namespace weft
