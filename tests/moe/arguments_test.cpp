// Impossible exchanges, dispatches and combines are rejected with the argument's name before anything is sent, and the
// exchange works on as before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "support/moe_batches.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

template <class Call>
void expect_rejected(const std::string& part, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "not rejected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\nhas no: " << part;
  }
}

struct RejectedExchange {
  std::string part;
  std::function<void(MoeExchangeArgs&)> spoil;
};

// On two ranks, changes to an exchange of 6 tokens, 8 experts and top 3.
const std::vector<RejectedExchange> kRejectedExchanges = {
    {"tokens: 0 is not between 1 and 16384", [](auto& a) { a.tokens = 0; }},
    {"tokens: 16385 is not between 1 and 16384", [](auto& a) { a.tokens = 16385; }},
    {"tokens: 1025 is not between 1 and 1024", [](auto& a) { a.tokens = 1025, a.path = RowPath::slots; }},
    {"path: 3 is not automatic, slots or ring", [](auto& a) { a.path = static_cast<RowPath>(3); }},
    {"ring_rows: 64 is not 0, and rows take no ring", [](auto& a) { a.ring_rows = 64; }},
    {"ring_rows: 64 is not 0, and rows take no ring", [](auto& a) { a.ring_rows = 64, a.path = RowPath::slots; }},
    {"ring_rows: 48 is not 0 or a power of two between 32 and 16384",
     [](auto& a) { a.ring_rows = 48, a.path = RowPath::ring; }},
    {"ring_rows: 16 is not 0 or a power of two", [](auto& a) { a.ring_rows = 16, a.path = RowPath::ring; }},
    {"ring_rows: 32768 is not 0 or a power of two", [](auto& a) { a.ring_rows = 32768, a.path = RowPath::ring; }},
    {"slot_tokens: 4 is not 0, and all tokens have slots without a ring", [](auto& a) { a.slot_tokens = 4; }},
    {"slot_tokens: 7 is not between 0 and 6", [](auto& a) { a.slot_tokens = 7, a.path = RowPath::ring; }},
    {"slot_tokens: 1025 is not between 0 and 1024", [](auto& a) { a.slot_tokens = 1025, a.tokens = 2000; }},
    {"blocks: 1 is not 0 or between 2 and 256", [](auto& a) { a.blocks = 1; }},
    {"blocks: 257 is not 0 or between 2 and 256", [](auto& a) { a.blocks = 257; }},
    {"blocks: -2 is not 0 or between 2 and 256", [](auto& a) { a.blocks = -2; }},
    {"repeatable: true is not false, and rows have slots: neither RowPath::slots nor slot_tokens goes with it",
     [](auto& a) { a.repeatable = true, a.path = RowPath::slots; }},
    {"repeatable: true is not false, and rows have slots", [](auto& a) { a.repeatable = true, a.slot_tokens = 2; }},
    {"experts with all replicas: 1025 is not 1024 at most on the ring path",
     [](auto& a) { a.experts = 1025, a.path = RowPath::ring; }},
    {"hidden: 65536 is not 64000 at most on the ring path with a cast and top-3",
     [](auto& a) { a.hidden = 65536, a.cast = RowCast::fp8, a.path = RowPath::ring; }},
    {"experts: 0 is not between 1 and 4096", [](auto& a) { a.experts = 0; }},
    {"experts: 4097 is not between 1 and 4096", [](auto& a) { a.experts = 4097; }},
    {"top_k: 0 is not between 1 and 32", [](auto& a) { a.top_k = 0; }},
    {"top_k: 33 is not between 1 and 32", [](auto& a) { a.top_k = 33; }},
    {"type: 3 is not bf16, f16 or fp8", [](auto& a) { a.type = static_cast<RowType>(3); }},
    {"cast: 4 is not none, fp8, fp8_ue8m0 or fp8_pow2", [](auto& a) { a.cast = static_cast<RowCast>(4); }},
    {"layout: 4 is not masked, contiguous, rank-major or rank-compact",
     [](auto& a) { a.layout = static_cast<RowLayout>(4); }},
    {"overflow: 2 is not error or drop", [](auto& a) { a.overflow = static_cast<Overflow>(2); }},
    {"cast: 1", [](auto& a) { a.type = RowType::fp8, a.cast = RowCast::fp8; }},
    {"combine_type: 2 is not bf16 or f16", [](auto& a) { a.combine_type = DataType::f32; }},
    {"combine_type: 3 is not bf16 or f16", [](auto& a) { a.combine_type = DataType::i32; }},
    {"hidden: 0", [](auto& a) { a.hidden = 0; }},
    {"hidden: 4", [](auto& a) { a.hidden = 4; }},
    {"hidden: 8", [](auto& a) { a.type = RowType::fp8, a.hidden = 8; }},
    {"hidden: 64", [](auto& a) { a.cast = RowCast::fp8, a.hidden = 64; }},
    {"hidden: 64", [](auto& a) { a.cast = RowCast::fp8_pow2, a.hidden = 64; }},
    {"hidden: 1048584", [](auto& a) { a.hidden = (1u << 20) + 8; }},
    {"scale_bytes: 2", [](auto& a) { a.type = RowType::fp8, a.scale_bytes = 2; }},
    {"scale_bytes: 1028", [](auto& a) { a.type = RowType::fp8, a.scale_bytes = 1028; }},
    {"scale_bytes: 4", [](auto& a) { a.scale_bytes = 4; }},
    {"alignment: 0", [](auto& a) { a.layout = RowLayout::expert_contiguous, a.alignment = 0; }},
    {"alignment: 1025", [](auto& a) { a.layout = RowLayout::expert_contiguous, a.alignment = 1025; }},
    {"alignment: 2", [](auto& a) { a.alignment = 2; }},
    {"alignment: 2", [](auto& a) { a.layout = RowLayout::rank_major, a.alignment = 2; }},
    {"capacity: 37", [](auto& a) { a.capacity = 37; }},
    {"capacity: 61", [](auto& a) { a.layout = RowLayout::expert_contiguous, a.alignment = 4, a.capacity = 61; }},
    {"capacity: 6", [](auto& a) { a.layout = RowLayout::rank_major, a.capacity = 6; }},
    {"capacity: 13 is not between 0 and 12", [](auto& a) { a.layout = RowLayout::rank_compact, a.capacity = 13; }},
    {"path: slots is not automatic or ring, and rank-compact rows take no slots",
     [](auto& a) { a.layout = RowLayout::rank_compact, a.path = RowPath::slots; }},
    {"slot_tokens: 2 is not 0, and rank-compact rows take no slots",
     [](auto& a) { a.layout = RowLayout::rank_compact, a.slot_tokens = 2; }},
    {"scale_order: 2 is not rows or columns", [](auto& a) { a.scale_order = static_cast<ScaleOrder>(2); }},
    {"scale_order: columns is not rows", [](auto& a) { a.scale_order = ScaleOrder::columns; }},
    {"scale_order: columns is not rows",
     [](auto& a) {
       a.scale_order = ScaleOrder::columns;
       a.type = RowType::fp8;
       a.scale_bytes = 8;
     }},
    {"capacity: 14 is not a multiple of 4",
     [](auto& a) {
       a.scale_order = ScaleOrder::columns;
       a.cast = RowCast::fp8;
       a.capacity = 14;
     }},
    {"capacity: 40 is not between 0 and 36",
     [](auto& a) {
       a.scale_order = ScaleOrder::columns;
       a.cast = RowCast::fp8;
       a.capacity = 40;
     }},
    {"capacity: 57 is not a multiple of 4",
     [](auto& a) {
       a.layout = RowLayout::expert_contiguous;
       a.alignment = 4;
       a.scale_order = ScaleOrder::columns;
       a.cast = RowCast::fp8_ue8m0;
       a.capacity = 57;
     }},
    {"tokens times ranks: 10 is not a multiple of 4",
     [](auto& a) {
       a.layout = RowLayout::rank_major;
       a.scale_order = ScaleOrder::columns;
       a.cast = RowCast::fp8;
       a.tokens = 5;
     }},
    {"weights_at_combine: true is not false, and the exchange is not weighted",
     [](auto& a) { a.weights_at_combine = true, a.weighted = false; }},
    {"weights_at_combine: true is not false, and combine takes rank-major rows as they are",
     [](auto& a) { a.weights_at_combine = true, a.layout = RowLayout::rank_major; }},
    {"weights_at_combine: true is not false, and combine takes rank-compact rows as they are",
     [](auto& a) { a.weights_at_combine = true, a.layout = RowLayout::rank_compact; }},
    {"handles: 0 is not between 1 and 64", [](auto& a) { a.handles = 0; }},
    {"handles: 65 is not between 1 and 64", [](auto& a) { a.handles = 65; }},
    {"rank_of_expert's length: 7", [](auto& a) { a.rank_of_expert.assign(7, 0); }},
    {"ranks_of_expert's length: 7", [](auto& a) { a.ranks_of_expert.assign(7, {0}); }},
    {"ranks_of_expert's length: 8",
     [](auto& a) {
       a.ranks_of_expert.assign(8, {0});
       a.rank_of_expert.assign(8, 0);
     }},
    {"ranks_of_expert: none",
     [](auto& a) {
       a.ranks_of_expert.assign(8, {0, 1});
       a.ranks_of_expert[5].clear();
     }},
    {"ranks_of_expert: 2",
     [](auto& a) {
       a.ranks_of_expert.assign(8, {0, 2});
     }},
    {"ranks_of_expert: 1",
     [](auto& a) {
       a.ranks_of_expert.assign(8, {0, 1, 1});
     }},
    {"ranks_of_expert: replicas: 4098",
     [](auto& a) {
       a.experts = 2049;
       a.ranks_of_expert.assign(2049, {0, 1});
     }},
    {"rank_of_expert: 2", [](auto& a) { a.rank_of_expert = {0, 1, 0, 1, 0, 1, 0, 2}; }},
};

TEST(MoeArguments, ExchangesThatCannotBe) {
  for (RejectedExchange rejected : kRejectedExchanges) {
    rejected.part = "MoeExchangeArgs::" + rejected.part;
    MoeExchangeArgs args = small_exchange();
    rejected.spoil(args);
    expect_rejected(rejected.part, [&] { moe_exchange_memory(2, args); });
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int) {
      expect_rejected(rejected.part, [&] { MoeExchange::create(communicator, args); });
      MoeExchange::create(communicator, small_exchange());
    }));
  }
  expect_rejected("ranks: 0", [] { moe_exchange_memory(0, small_exchange()); });
  expect_rejected("ranks: 73", [] { moe_exchange_memory(73, small_exchange()); });
  // 72 ranks, and all experts on one rank.
  MoeExchangeArgs many{.tokens = 1024, .hidden = 8, .experts = 4096, .top_k = 32, .capacity = 72 * 1024 * 32};
  many.rank_of_expert.assign(4096, 5);
  expect_rejected("capacity times the experts of a rank", [&] { moe_exchange_memory(72, many); });
}

struct RejectedDispatch {
  std::string part;
  std::function<void(DispatchArgs&)> spoil;
};
struct RejectedCombine {
  std::string part;
  std::function<void(CombineArgs&)> spoil;
};

template <class Pointer>
void shift(Pointer& pointer, std::size_t bytes) {
  pointer = reinterpret_cast<Pointer>(reinterpret_cast<std::uintptr_t>(pointer) + bytes);
}

// For every layout, with rows of fp8 with scales.
std::vector<RejectedDispatch> rejected_dispatches(RowLayout layout) {
  const bool contiguous = layout == RowLayout::expert_contiguous, by_rank = layout == RowLayout::rank_major;
  const bool compact = layout == RowLayout::rank_compact;
  static std::int32_t memory[64];
  std::vector<RejectedDispatch> all = {
      {"tokens: 7", [](auto& a) { a.tokens = 7; }},
      {"tokens: 6 is not between 0 and 5", [](auto& a) { a.tokens = 6, a.most_tokens = 5; }},
      {"most_tokens: 7 is not between 0 and 6", [](auto& a) { a.most_tokens = 7; }},
      {"input: null", [](auto& a) { a.input = nullptr; }},
      {"input: ", [](auto& a) { shift(a.input, 8); }},
      {"scales: null", [](auto& a) { a.scales = nullptr; }},
      {"scales: ", [](auto& a) { shift(a.scales, 2); }},
      {"topk_ids: null", [](auto& a) { a.topk_ids = nullptr; }},
      {"topk_ids: ", [](auto& a) { shift(a.topk_ids, 2); }},
      {"topk_ids: ", [](auto& a) { a.topk_ids_are_i64 = true, shift(a.topk_ids, 4); }},
      {"topk_weights: null", [](auto& a) { a.topk_weights = nullptr; }},
      {"topk_weights: ", [](auto& a) { shift(a.topk_weights, 2); }},
      {"output: null", [](auto& a) { a.output = nullptr; }},
      {"output: ", [](auto& a) { shift(a.output, 4); }},
      {"output_scales: null", [](auto& a) { a.output_scales = nullptr; }},
      {"output_scales: ", [](auto& a) { shift(a.output_scales, 1); }},
      {"counts: null", [](auto& a) { a.counts = nullptr; }},
      {"counts: ", [](auto& a) { shift(a.counts, 1); }},
      {"source_wait_ns: ", [](auto& a) { a.source_wait_ns = reinterpret_cast<std::uint64_t*>(4); }},
      {"host_counts: ", [](auto& a) { a.host_counts = reinterpret_cast<std::uint64_t*>(4); }},
      {"source_tokens: ", [](auto& a) { shift(a.source_tokens, 2); }},
      {"launch.blocks: 1", [](auto& a) { a.launch.blocks = 1; }},
      {"launch.blocks: 3", [](auto& a) { a.launch.blocks = 3; }},
      {"launch.threads: 31", [](auto& a) { a.launch.threads = 31; }},
      {"launch.threads: 544", [](auto& a) { a.launch.threads = 544; }},
      {"stream: ", [](auto& a) { a.stream = reinterpret_cast<Stream>(memory); }},
      // A mistake counts even if there is nothing to do.
      {"counts: null", [](auto& a) { a.tokens = 0, a.counts = nullptr; }},
  };
  const auto add = [&](const char* part, std::function<void(DispatchArgs&)> spoil) {
    all.push_back({part, std::move(spoil)});
  };
  if (contiguous) {
    add("offsets: null", [](auto& a) { a.offsets = nullptr; });
    add("offsets: ", [](auto& a) { shift(a.offsets, 2); });
  } else {
    add("offsets: not null, and layout ", [](auto& a) { a.offsets = memory; });
  }
  if (by_rank) {
    add("source_tokens: null", [](auto& a) { a.source_tokens = nullptr; });
    add("output_sources: not null, and layout ", [](auto& a) { a.output_sources = memory; });
  } else {
    add("output_sources: ", [](auto& a) { shift(a.output_sources, 2); });
  }
  if (compact) {
    add("rank_prefix: null", [](auto& a) { a.rank_prefix = nullptr; });
    add("rank_prefix: ", [](auto& a) { shift(a.rank_prefix, 2); });
    add("rounds.count: 2 is not 1, and rank-compact rows come in one round", [](auto& a) { a.rounds.count = 2; });
  } else {
    add("rank_prefix: not null, and layout ", [](auto& a) { a.rank_prefix = memory; });
  }
  if (by_rank || compact) {
    add("output_ids: null", [](auto& a) { a.output_ids = nullptr; });
    add("output_ids: ", [](auto& a) { shift(a.output_ids, 2); });
    add("output_weights: null", [](auto& a) { a.output_weights = nullptr; });
    add("output_weights: ", [](auto& a) { shift(a.output_weights, 2); });
  } else {
    add("output_ids: not null, and layout ", [](auto& a) { a.output_ids = memory; });
    add("output_weights: not null, and layout ", [](auto& a) { a.output_weights = reinterpret_cast<float*>(memory); });
  }
  return all;
}

const std::vector<RejectedCombine> kRejectedCombines = {
    {"handle: no dispatch has given it", [](auto& a) { a.handle.slot = 2; }},
    {"handle: no dispatch has given it", [](auto& a) { a.handle.slot = ~0u; }},
    {"input: null", [](auto& a) { a.input = nullptr; }},
    {"input: ", [](auto& a) { shift(a.input, 8); }},
    {"residual: ", [](auto& a) { a.residual = reinterpret_cast<const void*>(8); }},
    {"output: null", [](auto& a) { a.output = nullptr; }},
    {"output: ", [](auto& a) { shift(a.output, 2); }},
    {"source_wait_ns: ", [](auto& a) { a.source_wait_ns = reinterpret_cast<std::uint64_t*>(4); }},
    {"launch.blocks: 3", [](auto& a) { a.launch.blocks = 3; }},
    {"launch.threads: 33", [](auto& a) { a.launch.threads = 33; }},
    {"stream: ", [](auto& a) { a.stream = reinterpret_cast<Stream>(8); }},
};

// By the message: which half of a call checks an argument. Both check the launch.
bool is_of(const std::string& part, const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [&](const std::string& name) { return part.starts_with(name + ":"); });
}
bool is_of_launch(const std::string& part) {
  return is_of(part, {"launch.blocks", "launch.threads", "stream"});
}
bool goes_in(const std::string& part) {
  return is_of(part,
               {"tokens", "most_tokens", "input", "scales", "topk_ids", "topk_weights", "handle", "rounds.count"});
}

TEST(MoeArguments, CallsThatCannotBeLeaveNoTrace) {
  MoeExchangeArgs base = small_exchange();
  base.type = RowType::fp8;
  base.scale_bytes = 8;
  for (const Batch& batch : in_every_layout({{{.args = base, .tokens = {6, 3}}}}, 2)) {
    const MoeExchangeArgs& args = batch[0].args;
    const PreparedMoe p = prepare(batch[0], 2, 5);
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchange = MoeExchange::create(communicator, args);
      CpuMoe moe(exchange, p, rank);
      for (const RejectedDispatch& rejected : rejected_dispatches(args.layout)) {
        DispatchArgs call = moe.dispatch();
        rejected.spoil(call);
        expect_rejected(rejected.part, [&] { exchange.dispatch(call); });
        if (!goes_in(rejected.part) && !is_of_launch(rejected.part)) continue;
        expect_rejected(rejected.part, [&] { exchange.dispatch_send(call); });
      }
      const DispatchHandle handle = exchange.dispatch_send(moe.dispatch());
      for (const RejectedDispatch& rejected : rejected_dispatches(args.layout)) {
        DispatchArgs call = moe.dispatch();
        rejected.spoil(call);
        if (!goes_in(rejected.part)) expect_rejected(rejected.part, [&] { exchange.dispatch_wait(handle, call); });
      }
      exchange.dispatch_wait(handle, moe.dispatch());
      moe.check_dispatch();
      for (const RejectedCombine& rejected : kRejectedCombines) {
        CombineArgs call = moe.combine(handle);
        rejected.spoil(call);
        expect_rejected(rejected.part, [&] { exchange.combine(call); });
        if (!goes_in(rejected.part) && !is_of_launch(rejected.part)) continue;
        expect_rejected(rejected.part, [&] { exchange.combine_send(call); });
      }
      exchange.combine_send(moe.combine(handle));
      for (const RejectedCombine& rejected : kRejectedCombines) {
        CombineArgs call = moe.combine(handle);
        rejected.spoil(call);
        if (!goes_in(rejected.part)) expect_rejected(rejected.part, [&] { exchange.combine_wait(call); });
      }
      exchange.combine_wait(moe.combine(handle));
      moe.check_combine();
      exchange_and_check(exchange, p, rank);
      EXPECT_FALSE(communicator.status().has_value());
    }));
  }
}

// A joined call reads and writes at once. Its output may be the residual alone, which it adds in place.
TEST(MoeArguments, TensorsMustBeApart) {
  MoeExchangeArgs args = small_exchange();
  args.type = RowType::fp8;
  args.scale_bytes = 8;
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}, .residual = true}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
    const auto expect_dispatch_rejected = [&](const char* says, auto spoil) {
      DispatchArgs call = moe.dispatch();
      spoil(call);
      expect_rejected(says, [&] { exchange.dispatch(call); });
    };
    expect_dispatch_rejected("output: overlaps input", [](auto& a) { a.output = const_cast<void*>(a.input); });
    expect_dispatch_rejected("output: overlaps output_scales", [](auto& a) { a.output_scales = a.output; });
    // Received scales take more bytes than sent ones and ids do: both lie in a room that holds nothing else.
    alignas(16) static thread_local std::byte room[4096];
    expect_dispatch_rejected("output_scales: overlaps scales", [](auto& a) { a.scales = a.output_scales = room; });
    expect_dispatch_rejected("output_scales: overlaps topk_ids", [](auto& a) { a.topk_ids = a.output_scales = room; });
    const DispatchHandle handle = exchange.dispatch(moe.dispatch());
    CombineArgs back = moe.combine(handle);
    back.output = const_cast<void*>(back.input);
    expect_rejected("output: overlaps input", [&] { exchange.combine(back); });
    back = moe.combine(handle);
    const auto bytes = std::size_t{handle.tokens} * args.hidden * 2;
    std::memcpy(back.output, back.residual, bytes);
    back.residual = static_cast<const std::byte*>(back.output) + 16;
    expect_rejected("output: overlaps residual", [&] { exchange.combine(back); });
    back.residual = back.output;
    exchange.combine(back);
    moe.check_combine();
  }));
}

}  // namespace
}  // namespace weft::test
