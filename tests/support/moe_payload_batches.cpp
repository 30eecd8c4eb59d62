// Calls of exchanges with payloads beside rows (MoeExchangeArgs::payload_bytes).
#include <utility>

#include "support/moe_batches.hpp"

namespace weft::test {

std::vector<Batch> rows_with_payloads(std::uint32_t ranks) {
  struct Kind {
    RowType type;
    std::uint32_t hidden, scale_bytes;
    std::vector<std::uint32_t> payload_bytes;
  };
  std::vector<Batch> batches;
  // The last one has more than 4 bytes per column. In the one before, a payload fills columns of several segments.
  for (const Kind& kind : {Kind{RowType::bf16, 8, 0, {20}},
                           {RowType::f16, 2056, 0, {4, 128}},
                           {RowType::fp8, 16, 4, {20, 16, 4}},
                           {RowType::fp8, 4096, 128, {128, 20, 4, 8196}},
                           {RowType::bf16, 16, 0, {4100, 4, 20, 32}}}) {
    MoeExchangeArgs args = small_exchange();
    args.type = kind.type;
    args.hidden = kind.hidden;
    args.scale_bytes = kind.scale_bytes;
    args.payload_bytes = kind.payload_bytes;
    args.combine_type = kind.type == RowType::f16 ? DataType::f16 : DataType::bf16;
    args.capacity = ranks * args.tokens * args.top_k;
    batches.push_back({{.args = args, .tokens = {6, 2}, .any_bits = true},
                       {.args = args, .tokens = {0, 6, 1, 3}, .choice = Choice::holes, .any_bits = true}});
  }
  return batches;
}

std::vector<Batch> with_payloads(std::vector<Batch> batches) {
  for (Batch& batch : batches) {
    for (MoeCase& c : batch) {
      c.args.cast = RowCast::none;
      c.args.scale_order = ScaleOrder::rows;
      c.args.payload_bytes = {20, 4};
    }
  }
  return batches;
}

std::vector<Batch> payloads_of_entries_in_tallies(std::uint32_t ranks) {
  std::vector<Batch> batches = entries_in_tallies(ranks);
  std::erase_if(batches, [](const Batch& batch) { return batch.front().args.cast != RowCast::none; });
  return with_payloads(std::move(batches));
}

}  // namespace weft::test
