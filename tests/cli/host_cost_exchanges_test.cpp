// Dispatch and combine of exchanges of every kind take no memory on the host.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/host_cost.hpp"
#include "weft/moe.hpp"

namespace weft::test {
namespace {

constexpr std::uint32_t kExchangeTokens = 4, kExchangeHidden = 128;

struct ExchangeKind {
  std::string name;
  MoeExchangeArgs args;
  bool masked = false;  // by a rank mask
};

std::vector<ExchangeKind> exchange_kinds(std::uint32_t ranks) {
  const MoeExchangeArgs least{.tokens = kExchangeTokens, .hidden = kExchangeHidden, .experts = 2 * ranks, .top_k = 2};
  std::vector<ExchangeKind> kinds;
  const auto add = [&](const char* name, auto change) {
    kinds.push_back({.name = name, .args = least});
    change(kinds.back());
  };
  add("fp8, scales by columns",
      [](ExchangeKind& k) { k.args.cast = RowCast::fp8, k.args.scale_order = ScaleOrder::columns; });
  add("contiguous, ue8m0", [](ExchangeKind& k) {
    k.args.cast = RowCast::fp8_ue8m0;
    k.args.layout = RowLayout::expert_contiguous;
    k.args.alignment = 4;
  });
  add("rank-major", [](ExchangeKind& k) { k.args.layout = RowLayout::rank_major; });
  add("rank-compact, repeatable",
      [](ExchangeKind& k) { k.args.layout = RowLayout::rank_compact, k.args.repeatable = true; });
  add("payloads and scales", [](ExchangeKind& k) {
    k.args.type = RowType::fp8;
    k.args.scale_bytes = 4;
    k.args.payload_bytes = {16, 4};
  });
  add("late weights", [](ExchangeKind& k) { k.args.weights_at_combine = true; });
  add("late weights by a ring", [](ExchangeKind& k) { k.args.weights_at_combine = true, k.args.path = RowPath::ring; });
  add("ring, repeatable", [](ExchangeKind& k) { k.args.path = RowPath::ring, k.args.repeatable = true; });
  add("ring beside slots", [](ExchangeKind& k) { k.args.path = RowPath::ring, k.args.slot_tokens = kExchangeTokens; });
  for (const auto path : {RowPath::slots, RowPath::ring}) {
    add("rank mask", [&](ExchangeKind& k) {
      k.args.experts = k.args.top_k = ranks;
      k.args.path = path;
      k.masked = true;
    });
    add("second map", [&](ExchangeKind& k) {
      k.args.path = path;
      k.args.maps = 2;
      for (int map = 0; map < 2; ++map)
        for (std::uint32_t expert = 0; expert < 2 * ranks; ++expert)
          k.args.experts_of_rank.push_back(static_cast<std::int32_t>(expert));
    });
  }
  return kinds;
}

// The calls of one exchange, with all inputs and outputs that it may have.
class ExchangeCalls {
 public:
  ExchangeCalls(const Communicator& communicator, const ExchangeKind& kind, Zeros& zeros)
      : exchange_(MoeExchange::create(communicator, kind.args)), repeatable_(kind.args.repeatable) {
    const MoeExchangeArgs& args = kind.args;
    const auto ranks = static_cast<std::size_t>(communicator.size());
    const std::size_t rows = exchange_.output_rows(), local = exchange_.local_experts();
    const bool by_rank = args.layout == RowLayout::rank_major, compact = args.layout == RowLayout::rank_compact;
    auto* const weights = zeros.of<float>(kExchangeTokens * args.top_k);
    dispatch_.input = zeros.of(kExchangeTokens * kExchangeHidden * 2);
    if (args.scale_bytes != 0) dispatch_.scales = zeros.of(kExchangeTokens * args.scale_bytes);
    for (std::size_t i = 0; i < args.payload_bytes.size(); ++i) {
      dispatch_.payloads[i] = zeros.of(kExchangeTokens * args.payload_bytes[i]);
      dispatch_.output_payloads[i] = zeros.of(rows * args.payload_bytes[i]);
    }
    if (kind.masked) {
      auto* const mask = zeros.of<std::uint8_t>(kExchangeTokens * ranks);
      mask[0] = mask[kExchangeTokens * ranks - 1] = 1;
      dispatch_.rank_mask = mask;
      dispatch_.mask_ids = zeros.of<std::int32_t>(kExchangeTokens * args.top_k);
    } else {
      auto* const ids = zeros.of<std::int32_t>(kExchangeTokens * args.top_k);
      for (std::uint32_t i = 0; i < kExchangeTokens * args.top_k; ++i)
        ids[i] = static_cast<std::int32_t>(i % args.top_k);
      dispatch_.topk_ids = ids;
    }
    (args.weights_at_combine ? combine_.topk_weights : dispatch_.topk_weights) = weights;
    dispatch_.tokens = kExchangeTokens;
    dispatch_.most_tokens = args.slot_tokens;
    dispatch_.map = args.maps - 1;
    dispatch_.output = zeros.of(rows * kExchangeHidden * 2);
    dispatch_.output_scales = zeros.of(rows * kExchangeHidden);
    dispatch_.counts = zeros.of<std::int32_t>(local);
    if (args.layout == RowLayout::expert_contiguous) dispatch_.offsets = zeros.of<std::int32_t>(local + 1);
    if (!by_rank) dispatch_.output_sources = zeros.of<std::int32_t>(rows);
    if (compact) dispatch_.rank_prefix = zeros.of<std::int32_t>(ranks * ranks);
    dispatch_.source_tokens = zeros.of<std::int32_t>(ranks);
    dispatch_.source_wait_ns = zeros.of<std::uint64_t>(ranks);
    dispatch_.host_counts = zeros.of<std::uint64_t>(local + 2 * ranks);
    if (by_rank || compact) {
      dispatch_.output_ids = zeros.of<std::int32_t>(rows * args.top_k);
      dispatch_.output_weights = zeros.of<float>(rows * args.top_k);
    }
    combine_.input = zeros.of(rows * kExchangeHidden * 2);
    combine_.residual = zeros.of(kExchangeTokens * kExchangeHidden * 2);
    combine_.output = zeros.of(kExchangeTokens * kExchangeHidden * 2);
  }

  void joined(std::uint32_t tag) {
    dispatch_.tag = combine_.tag = tag;
    combine_.handle = exchange_.dispatch(dispatch_);
    exchange_.combine(combine_);
    if (!repeatable_) return;
    combine_.handle = exchange_.dispatch(again());
    exchange_.combine(combine_);
  }
  void in_halves(std::uint32_t tag) {
    dispatch_.tag = combine_.tag = tag;
    in_halves(dispatch_);
    if (repeatable_) in_halves(again());
  }

 private:
  void in_halves(const DispatchArgs& args) {
    combine_.handle = exchange_.dispatch_send(args);
    exchange_.dispatch_wait(combine_.handle, args);
    exchange_.combine_send(combine_);
    exchange_.combine_wait(combine_);
  }
  DispatchArgs again() const {
    DispatchArgs args = dispatch_;
    args.host_counts = nullptr;
    args.again = combine_.handle;
    return args;
  }

  MoeExchange exchange_;
  bool repeatable_;
  DispatchArgs dispatch_;
  CombineArgs combine_;
};

TEST(HostCost, ExchangesOfAnyKindTakeNoMemory) {
  expect_no_memory_of_ranks(cpu_config(), [](Communicator& communicator, Zeros& zeros) {
    std::vector<cli::SmallCall> calls;
    for (const ExchangeKind& kind : exchange_kinds(static_cast<std::uint32_t>(communicator.size()))) {
      const auto of = std::make_shared<ExchangeCalls>(communicator, kind, zeros);
      calls.push_back({kind.name, [of](std::uint32_t tag) { of->joined(tag); }});
      calls.push_back({kind.name + ", in halves", [of](std::uint32_t tag) { of->in_halves(tag); }});
    }
    return calls;
  });
}

}  // namespace
}  // namespace weft::test
