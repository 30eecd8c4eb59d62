// Every way of rows on CPU ranks gives the same bits: one input, all outputs of dispatch and combine.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "ops/moe/exchange_grid.hpp"
#include "ops/moe/exchange_shape.hpp"
#include "support/host_counts.hpp"
#include "support/moe_batches.hpp"
#include "support/moe_ways.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

// 192 tokens of top-8 on one of two ranks are as many entries as a joined call by slots counts in tallies. The other
// rank has fewer, and halves and rounds of so few do not.
constexpr std::uint32_t kMost = 192;
constexpr std::uint32_t kTokens[] = {kMost, 130};

MoeExchangeArgs one_exchange(RowLayout layout) {
  MoeExchangeArgs args{.tokens = kMost, .hidden = 128, .experts = 9, .top_k = 8, .cast = RowCast::fp8};
  args.layout = layout;
  args.alignment = layout == RowLayout::expert_contiguous ? 4 : 1;
  return args;
}

using Rows = std::vector<std::byte>;

// The tensors of one call, and all that it writes in one piece. Rows that no way writes hold the same canaries.
class OneCall {
 public:
  OneCall(const MoeExchange& exchange, std::uint32_t rank) : args_(exchange.args()), tokens_(kTokens[rank]) {
    std::mt19937 random(rank + 1);
    std::uniform_real_distribution<float> number(0.1f, 1.0f);
    input_.resize(std::size_t{tokens_} * args_.hidden);
    for (std::uint16_t& element : input_) element = static_cast<std::uint16_t>(0x3f00u + random() % 0x200u);
    for (std::uint32_t i = 0; i < tokens_ * args_.top_k; ++i) {
      // A token's experts are all different, and some entries name none.
      const std::uint32_t token = i / args_.top_k, k = i % args_.top_k;
      ids_.push_back(random() % 5 == 0 ? -1 : static_cast<std::int32_t>((token * 7 + k) % args_.experts));
      weights_.push_back(number(random));
    }
    const std::size_t rows = exchange.output_rows();
    made_.resize(rows * args_.hidden);
    forget();
    counts_.assign(exchange.local_experts(), -3);
    offsets_.assign(exchange.local_experts() + 1, -3);
    sources_.assign(rows, -3);
    source_tokens_.assign(2, -3);
    local_ids_.assign(rows * args_.top_k, -3);
    local_weights_.assign(rows * args_.top_k, -3);
    host_counts_.assign(exchange.local_experts() + 4, 0);  // as many as rank_compact has
    rank_prefix_.assign(4, -3);
  }
  void forget() {
    const std::size_t rows = made_.size() / args_.hidden;
    output_.assign(rows * args_.hidden, std::byte{0x11});
    scales_.assign(rows * args_.hidden / kScaleColumns, 7.0f);
    result_.assign(std::size_t{tokens_} * args_.hidden, 0x1234);
  }

  DispatchArgs dispatch() {
    const bool joint = detail::has_joint_rows(args_.layout);
    DispatchArgs to{.input = input_.data(), .topk_ids = ids_.data(), .topk_weights = weights_.data()};
    to.tokens = tokens_;
    to.most_tokens = args_.slot_tokens;
    to.output = output_.data();
    to.output_scales = scales_.data();
    to.counts = counts_.data();
    if (args_.layout == RowLayout::expert_contiguous) to.offsets = offsets_.data();
    if (args_.layout != RowLayout::rank_major) to.output_sources = sources_.data();
    to.source_tokens = source_tokens_.data();
    to.host_counts = host_counts_.data();
    if (joint) to.output_ids = local_ids_.data();
    if (joint) to.output_weights = local_weights_.data();
    if (args_.layout == RowLayout::rank_compact) to.rank_prefix = rank_prefix_.data();
    return to;
  }
  // Experts whose results follow from the rows that they got.
  CombineArgs combine(DispatchHandle handle) {
    for (std::size_t i = 0; i < made_.size(); ++i) {
      made_[i] = static_cast<std::uint16_t>(0x3f00u + static_cast<unsigned>(output_[i]));
    }
    CombineArgs back{.handle = handle, .input = made_.data(), .output = result_.data()};
    if (args_.weights_at_combine) back.topk_weights = weights_.data();
    return back;
  }
  Rows all() {
    Rows all;
    const auto add = [&](const auto& tensor) {
      const auto bytes = std::as_bytes(std::span(tensor));
      all.insert(all.end(), bytes.begin(), bytes.end());
    };
    add(output_), add(scales_), add(counts_), add(offsets_), add(sources_), add(source_tokens_), add(local_ids_),
        add(rank_prefix_), add(local_weights_), add(result_);
    for (std::uint64_t& word : host_counts_) add(std::vector{read_host_count(&word).count});
    return all;
  }

 private:
  MoeExchangeArgs args_;
  std::uint32_t tokens_;
  std::vector<std::uint16_t> input_, made_, result_;
  std::vector<std::int32_t> ids_, counts_, offsets_, sources_, source_tokens_, rank_prefix_, local_ids_;
  std::vector<float> weights_, scales_, local_weights_;
  Rows output_;
  std::vector<std::uint64_t> host_counts_;
};

// Only the rank of most tokens counts in tallies, and only in a joined call.
TEST(MoePaths, TalliesAreAmongThem) {
  const MoeExchangeArgs args = one_exchange(RowLayout::expert_masked);
  const auto tallies = [&](std::uint32_t rank, detail::Phases phases) {
    return detail::dispatch_grid({.shape = detail::make_shape(2, rank, args, detail::map_experts(2, args)),
                                  .ranks = 2,
                                  .tokens = kTokens[rank],
                                  .most_tokens = 0,
                                  .ring = false,
                                  .phases = phases,
                                  .launch = {},
                                  .most_blocks = 2,
                                  .one_thread = true})
        .tallies;
  };
  EXPECT_TRUE(tallies(0, detail::kJoined));
  EXPECT_FALSE(tallies(1, detail::kJoined));
  EXPECT_FALSE(tallies(0, detail::kSend));
}

TEST(MoePaths, GiveTheSameBits) {
  for (const RowLayout layout :
       {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major, RowLayout::rank_compact}) {
    const std::vector<MoeWay<OneCall>> ways = moe_ways<OneCall>(layout, kRingPlaces, 256, kMost);
    std::vector<std::vector<Rows>> got(2);  // by rank and way
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      for (const MoeWay<OneCall>& way : ways) {
        MoeExchange exchange = MoeExchange::create(communicator, way.exchange(one_exchange(layout)));
        OneCall call(exchange, rank);
        way.make(exchange, call);
        got[rank].push_back(call.all());
        exchange.free();
      }
    }));
    for (std::size_t rank = 0; rank < got.size(); ++rank) {
      for (std::size_t way = 1; way < got[rank].size(); ++way) {
        EXPECT_TRUE(got[rank][way] == got[rank][0])
            << "rank " << rank << ", " << name(layout) << ": " << ways[way].name;
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
