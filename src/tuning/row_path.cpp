#include "tuning/row_path.hpp"

namespace weft::detail {

MoeExchangeArgs with_row_path(const MoeExchangeArgs& args) {
  MoeExchangeArgs chosen = args;
  const bool may_choose = args.path == RowPath::automatic && args.layout != RowLayout::rank_compact;
  if (!may_choose || !(args.repeatable || ring_is_faster(args.tokens, args.blocks))) return chosen;
  chosen.path = RowPath::ring;
  if (chosen.slot_tokens == 0 && !args.repeatable) chosen.slot_tokens = tokens_by_slots(args.blocks);
  return chosen;
}

}  // namespace weft::detail
