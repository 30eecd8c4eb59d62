// Calls in every layout of rows.
#include <utility>

#include "support/moe_batches.hpp"
#include "team/team.hpp"

namespace weft::test {

std::vector<Batch> in_every_layout(const std::vector<Batch>& batches, std::uint32_t ranks) {
  std::vector<Batch> all = batches;
  for (const RowLayout layout : {RowLayout::expert_contiguous, RowLayout::rank_major, RowLayout::rank_compact}) {
    for (Batch batch : batches) {
      const bool by_ring_alone = layout == RowLayout::rank_compact;
      if (by_ring_alone && batch.front().args.experts > detail::kMostTallyWords) continue;
      for (MoeCase& c : batch) {
        const bool contiguous = layout == RowLayout::expert_contiguous;
        c.args.layout = layout;
        c.args.alignment = contiguous ? 4 : 1;
        c.args.capacity = contiguous ? ranks * c.args.tokens * c.args.top_k + c.args.experts * 3 : 0;
        if (by_ring_alone) c.args.slot_tokens = 0;
      }
      all.push_back(std::move(batch));
    }
  }
  return all;
}

std::vector<Batch> in_rounds(std::vector<Batch> batches) {
  std::erase_if(batches, [](const Batch& batch) { return batch.front().args.layout == RowLayout::rank_compact; });
  return batches;
}

}  // namespace weft::test
