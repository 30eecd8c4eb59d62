// Calls of exchanges with a ring.
#include <algorithm>
#include <utility>

#include "ops/moe/exchange.hpp"
#include "support/moe_batches.hpp"

namespace weft::test {

std::vector<Batch> on_ring(std::vector<Batch> batches) {
  for (Batch& batch : batches) {
    for (MoeCase& c : batch) {
      c.args.path = RowPath::ring;
      c.args.ring_rows = kRingPlaces;
    }
  }
  return batches;
}

std::vector<Batch> repeatable(std::vector<Batch> batches) {
  batches = on_ring(std::move(batches));
  for (Batch& batch : batches) {
    for (MoeCase& c : batch) c.args.repeatable = true;
  }
  return batches;
}

PreparedMoe with_other_rows(PreparedMoe p) {
  for (Tokens& tokens : p.tokens) {
    if (tokens.count == 0) continue;
    std::rotate(tokens.rows.begin(), tokens.rows.begin() + 2, tokens.rows.end());
    for (Bytes& payload : tokens.payloads) std::rotate(payload.begin(), payload.begin() + 1, payload.end());
    if (!tokens.scales.empty()) std::rotate(tokens.scales.begin(), tokens.scales.begin() + 1, tokens.scales.end());
  }
  return p;
}

std::vector<Batch> on_whole_ring(std::vector<Batch> batches) {
  for (Batch& batch : batches) {
    for (MoeCase& c : batch) c.args.path = RowPath::ring;
  }
  return batches;
}

std::vector<Batch> with_slots(std::vector<Batch> batches) {
  for (Batch& batch : batches) {
    std::uint32_t slots = 0;
    for (std::size_t i = 0; i < batch.size(); i += 2) {
      batch[i].most_tokens = std::max(1u, std::ranges::max(batch[i].tokens));
      slots = std::max(slots, batch[i].most_tokens);
    }
    for (MoeCase& c : batch) c.args.slot_tokens = c.args.layout == RowLayout::rank_compact ? 0 : slots;
  }
  return batches;
}

Batch few_and_many_tokens(std::uint32_t ranks) {
  const MoeCase many = more_tokens_than_places(ranks).front();
  Batch batch;
  for (const std::vector<std::uint32_t>& tokens :
       {std::vector<std::uint32_t>{8, 3, 0, 5}, {100, 64, 0, 33}, {1, 1, 1, 1}, {0, 2, 5, 7}, {0, 8, 8, 8}, {33, 9}}) {
    MoeCase c = many;
    c.tokens = tokens;
    c.choice = tokens.front() == 1 ? Choice::one_expert : Choice::uniform;
    batch.push_back(std::move(c));
  }
  return on_ring(with_slots({std::move(batch)})).front();
}

std::vector<Batch> weighed_late(const std::vector<Batch>& batches) {
  std::vector<Batch> all;
  for (Batch batch : batches) {
    if (!batch.front().args.weighted || detail::has_joint_rows(batch.front().args.layout)) continue;
    for (MoeCase& c : batch) c.args.weights_at_combine = true;
    all.push_back(std::move(batch));
  }
  return all;
}

Batch more_tokens_than_places(std::uint32_t ranks) {
  MoeExchangeArgs args{.tokens = 100, .hidden = 128, .experts = 7, .top_k = 3, .cast = RowCast::fp8};
  args.capacity = ranks * args.tokens * args.top_k;
  Batch batch;
  for (const Choice choice : {Choice::uniform, Choice::one_expert, Choice::holes, Choice::duplicates}) {
    batch.push_back({.args = args, .tokens = {100, 64, 0, 33}, .choice = choice, .residual = choice == Choice::holes});
    batch.push_back({.args = args, .tokens = {1, 100, 32}, .choice = choice});
  }
  return batch;
}

}  // namespace weft::test
