#include "ops/moe/exchange_checks.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>

#include "comm/arguments.hpp"
#include "ops/moe/exchange_grid.hpp"

namespace weft::detail {
namespace {

void check_address(const char* name, const void* data, std::size_t alignment) {
  require(data != nullptr, "{}: null", name);
  check_aligned(name, data, alignment);
}
void check_tensor(const GroupState& group, const char* name, const void* data, std::size_t alignment) {
  check_address(name, data, alignment);
  check_buffer(group, name, data);
}
void check_host_words(const GroupState& group, const char* name, const std::uint64_t* data) {
  check_address(name, data, sizeof(*data));
  group.communicator().fabric().check_host_memory(name, data);
}
Extent dense(const char* name, const void* data, std::size_t rows, std::size_t row_bytes) {
  return extent_of({.name = name, .data = data, .rows = rows, .width = row_bytes, .stride = 0});
}
void check_apart(const Extent& written, std::span<const Extent> others) {
  if (written.data == nullptr) return;
  for (const Extent& other : others)
    if (other.data != nullptr) check_overlap(written, other, kNowhere);
}
void check_apart(const Extent& written, std::initializer_list<Extent> others) {
  check_apart(written, std::span(others.begin(), others.size()));
}

constexpr const char* kPayloads[] = {"payloads[0]", "payloads[1]", "payloads[2]", "payloads[3]"};
constexpr const char* kOutputPayloads[] = {"output_payloads[0]", "output_payloads[1]", "output_payloads[2]",
                                           "output_payloads[3]"};
static_assert(std::size(kPayloads) == kMostPayloads && std::size(kOutputPayloads) == kMostPayloads);

// `has`: payloads of the exchange. `needed`: rows are read or written there.
template <class Data>
void check_payloads(const GroupState& group, const char* const (&names)[kMostPayloads],
                    const std::array<Data*, kMostPayloads>& data, std::size_t has, bool needed) {
  for (std::size_t i = 0; i < kMostPayloads; ++i) {
    require(i < has || data[i] == nullptr, "{}: not null, and the exchange has {} payloads", names[i], has);
    if (i < has && needed) check_tensor(group, names[i], data[i], 4);
  }
}

}  // namespace

void check_exchange_blocks(const GroupState& group, const char* name, int blocks, bool ring) {
  check_blocks(group, name, blocks);
  const int most = most_ring_blocks(group.communicator().fabric().max_blocks());
  require(!ring || blocks <= most, "{}: {} is not 0 or between 2 and {} on the ring path", name, blocks, most);
}

void check_outputs(const GroupState& group, const ExchangeState& exchange, const DispatchArgs& args, bool again) {
  const ExchangeShape& shape = exchange.shape();
  const bool by_rank = shape.layout == RowLayout::rank_major, compact = shape.layout == RowLayout::rank_compact;
  const bool joint = has_joint_rows(shape.layout), scaled = shape.scale_bytes != 0 || shape.groups != 0;
  const auto check = [&](const char* name, const void* data, std::size_t alignment, bool needed) {
    if (needed || data != nullptr) check_tensor(group, name, data, alignment);
  };
  if (shape.local != 0) {
    check("output", args.output, 16, true);
    check("output_scales", args.output_scales, 4, scaled);
  }
  check_payloads(group, kOutputPayloads, args.output_payloads, exchange.args().payload_bytes.size(), shape.local != 0);
  check("source_wait_ns", args.source_wait_ns, 8, false);
  if (again) return;
  const auto forbid = [&](const char* name, const void* data, bool forbidden) {
    require(!forbidden || data == nullptr, "{}: not null, and layout {} has none", name, weft::name(shape.layout));
  };
  check("source_tokens", args.source_tokens, 4, by_rank);
  check("offsets", args.offsets, 4, shape.layout == RowLayout::expert_contiguous);
  forbid("offsets", args.offsets, shape.layout != RowLayout::expert_contiguous);
  forbid("output_sources", args.output_sources, by_rank);
  check("rank_prefix", args.rank_prefix, 4, compact);
  forbid("rank_prefix", args.rank_prefix, !compact);
  forbid("output_ids", args.output_ids, !joint);
  forbid("output_weights", args.output_weights, !joint);
  require(shape.weighted || args.output_weights == nullptr,
          "output_weights: not null, and the exchange is not weighted");
  if (shape.local != 0) check("counts", args.counts, 4, true);
  check("output_sources", args.output_sources, 4, false);
  if (args.host_counts != nullptr) check_host_words(group, "host_counts", args.host_counts);
  check("output_ids", args.output_ids, 4, joint);
  check("output_weights", args.output_weights, 4, joint && shape.weighted);
}

namespace {

// Its ids are written before the kernel that reads the other inputs.
void check_mask_apart(const ExchangeState& exchange, const DispatchArgs& args) {
  const ExchangeShape& shape = exchange.shape();
  const std::size_t entries = sizeof(std::int32_t) * shape.top_k;
  const Extent ids = dense("mask_ids", args.mask_ids, args.tokens, entries);
  check_apart(ids, {dense("rank_mask", args.rank_mask, args.tokens, shape.top_k),
                    dense("input", args.input, args.tokens, std::size_t{shape.input_packs} * sizeof(Pack)),
                    dense("scales", args.scales, args.tokens, shape.scale_bytes),
                    dense("topk_weights", args.topk_weights, args.tokens, entries)});
  const std::vector<std::uint32_t>& bytes = exchange.args().payload_bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    check_apart(ids, {dense(kPayloads[i], args.payloads[i], args.tokens, bytes[i])});
}

// Whether an id of the exchange is a rank, and a token may name all of them.
bool has_ids_of_ranks(std::uint32_t ranks, const MoeExchangeArgs& args) {
  if (args.experts != ranks || args.top_k != ranks) return false;
  if (!args.ranks_of_expert.empty() || !args.experts_of_rank.empty()) return false;
  for (std::uint32_t expert = 0; expert < args.rank_of_expert.size(); ++expert)
    if (args.rank_of_expert[expert] != expert) return false;
  return true;
}

void check_ids(const GroupState& group, const MoeExchangeArgs& of, const DispatchArgs& args) {
  if (args.rank_mask == nullptr) {
    require(args.mask_ids == nullptr, "mask_ids: not null, and rank_mask is null");
    return check_tensor(group, "topk_ids", args.topk_ids, args.topk_ids_are_i64 ? 8 : 4);
  }
  const auto ranks = static_cast<std::uint32_t>(group.size());
  require(args.topk_ids == nullptr, "topk_ids: not null, and rank_mask is given");
  require(has_ids_of_ranks(ranks, of),
          "rank_mask: not null, and the exchange has not {} experts, one on each rank in their order, and top_k {}",
          ranks, ranks);
  check_tensor(group, "rank_mask", args.rank_mask, 1);
  check_tensor(group, "mask_ids", args.mask_ids, 4);
}

}  // namespace

void check_inputs(const GroupState& group, const ExchangeState& exchange, const DispatchArgs& args) {
  const ExchangeShape& shape = exchange.shape();
  require(args.most_tokens <= shape.tokens, "most_tokens: {} is not between 0 and {}", args.most_tokens, shape.tokens);
  require(args.map < exchange.args().maps, "map: {} is not between 0 and {}", args.map, exchange.args().maps - 1);
  const std::uint32_t most = args.most_tokens != 0 ? args.most_tokens : shape.tokens;
  require(args.tokens <= most, "tokens: {} is not between 0 and {}", args.tokens, most);
  check_payloads(group, kPayloads, args.payloads, exchange.args().payload_bytes.size(), args.tokens != 0);
  if (args.tokens == 0) return;
  check_tensor(group, "input", args.input, 16);
  if (shape.scale_bytes != 0) check_tensor(group, "scales", args.scales, 4);
  if (args.again != DispatchHandle{}) return;
  check_ids(group, exchange.args(), args);
  if (shape.carries_weights) check_tensor(group, "topk_weights", args.topk_weights, 4);
  if (args.rank_mask != nullptr) check_mask_apart(exchange, args);
}

void check_again(const ExchangeState& exchange, const DispatchArgs& args, bool kept) {
  require(exchange.args().repeatable,
          "again: not empty, and the exchange is not repeatable: make it with MoeExchangeArgs::repeatable");
  exchange.in_flight().check_handle("again", args.again, kept, kNone);
  require(args.tokens == args.again.tokens, "tokens: {} is not the {} of `again`", args.tokens, args.again.tokens);
  require(args.most_tokens == args.again.most_tokens, "most_tokens: {} is not the {} of `again`", args.most_tokens,
          args.again.most_tokens);
  require(args.map == 0, "map: {} is not 0, and a dispatch made again takes the ranks of its routing", args.map);
  require(args.host_counts == nullptr, "host_counts: not null, and a dispatch made again has no new counts");
}

// Warps read the caller's rows while others store rows of the output.
void check_rows_apart(const ExchangeState& exchange, const DispatchArgs& args) {
  const ExchangeShape& shape = exchange.shape();
  const bool casts = shape.cast != RowCast::none;
  const std::size_t given_row = std::size_t{shape.input_packs} * sizeof(Pack), ids = args.topk_ids_are_i64 ? 8 : 4;
  const std::size_t scale_row =
      casts ? shape.groups * (scales_are_bytes(shape.cast) ? 1 : sizeof(float)) : shape.scale_bytes;
  const std::uint32_t made = shape.local != 0 ? shape.rows : 0;
  const float* const weights = shape.carries_weights ? args.topk_weights : nullptr;
  Extent given[2 + kMostPayloads] = {dense("input", args.input, args.tokens, given_row),
                                     dense("scales", args.scales, args.tokens, shape.scale_bytes)};
  Extent written[2 + kMostPayloads] = {dense("output", args.output, made, casts ? shape.columns : given_row),
                                       dense("output_scales", args.output_scales, made, scale_row)};
  std::size_t count = 2;
  for (std::size_t i = 0; const std::uint32_t bytes : exchange.args().payload_bytes) {
    given[count] = dense(kPayloads[i], args.payloads[i], args.tokens, bytes);
    written[count] = dense(kOutputPayloads[i], args.output_payloads[i], made, bytes);
    ++i, ++count;
  }
  for (std::size_t i = 0; i < count; ++i) {
    check_apart(written[i], std::span(given, count));
    check_apart(written[i], std::span(written + i + 1, count - i - 1));
    if (args.again != DispatchHandle{}) continue;  // which reads rows alone
    check_apart(written[i], {dense("topk_ids", args.topk_ids, args.tokens, shape.top_k * ids),
                             dense("rank_mask", args.rank_mask, args.tokens, shape.top_k),
                             dense("mask_ids", args.mask_ids, args.tokens, shape.top_k * sizeof(std::int32_t)),
                             dense("topk_weights", weights, args.tokens, shape.top_k * sizeof(float))});
  }
}

void check_combine_weights(const ExchangeState& exchange, const CombineArgs& args) {
  require(exchange.args().weights_at_combine || args.topk_weights == nullptr,
          "topk_weights: not null, and MoeExchangeArgs::weights_at_combine is false");
  if (exchange.args().weights_at_combine && args.handle.tokens != 0)
    check_tensor(exchange.combine_channel(), "topk_weights", args.topk_weights, 4);
}
void check_combine_input(const ExchangeState& exchange, const CombineArgs& args) {
  if (exchange.shape().local != 0) check_tensor(exchange.combine_channel(), "input", args.input, 16);
}
void check_rows_apart(const ExchangeState& exchange, const CombineArgs& args) {
  const ExchangeShape& shape = exchange.shape();
  const std::size_t row = std::size_t{shape.combine_packs} * sizeof(Pack), tokens = args.handle.tokens;
  const Extent output = dense("output", args.output, tokens, row);
  check_apart(output, {dense("input", args.input, shape.local != 0 ? shape.rows : 0, row),
                       dense("topk_weights", args.topk_weights, tokens, shape.top_k * sizeof(float))});
  if (args.residual != args.output) check_apart(output, {dense("residual", args.residual, tokens, row)});
}
void check_combine_output(const ExchangeState& exchange, const CombineArgs& args) {
  const GroupState& group = exchange.combine_channel();
  if (args.handle.tokens != 0) {
    check_tensor(group, "output", args.output, 16);
    if (args.residual != nullptr) check_tensor(group, "residual", args.residual, 16);
  }
  if (args.source_wait_ns != nullptr) check_tensor(group, "source_wait_ns", args.source_wait_ns, 8);
}

}  // namespace weft::detail
