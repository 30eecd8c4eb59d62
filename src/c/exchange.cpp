// Dispatch and combine, whole and in halves.
#include "ops/moe/exchange.hpp"
#include "c/collectives.hpp"
#include "c/mirror.hpp"

namespace weft::c {

namespace {

// The struct of C has no `size`, so it never changes. Two numbers share a word of it.
constexpr std::uint32_t kSlotBits = 16;
static_assert(detail::kMaxHandles < 1u << kSlotBits && detail::kMaxExchangeTokens < 1u << (32 - kSlotBits));
void copy_handle(const weft_dispatch_handle& c, DispatchHandle& cpp) {
  cpp = {.slot = c.slot & ((1u << kSlotBits) - 1),
         .exchange = c.exchange,
         .number = c.number,
         .tokens = c.tokens,
         .most_tokens = c.slot >> kSlotBits};
}
void copy_handle(weft_dispatch_handle& c, const DispatchHandle& cpp) {
  c = {.slot = cpp.most_tokens << kSlotBits | cpp.slot,
       .tokens = cpp.tokens,
       .exchange = cpp.exchange,
       .number = cpp.number};
}

}  // namespace

static_assert(WEFT_MOST_PAYLOADS == kMostPayloads);

template <>
struct Mirror<weft_dispatch_args> {
  using Cpp = DispatchArgs;
  static constexpr const char* name = "weft_dispatch_args";
  static constexpr std::size_t least = offsetof(weft_dispatch_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.input, cpp.input);
    copy(c.scales, cpp.scales);
    copy(c.topk_ids, cpp.topk_ids);
    copy(c.topk_weights, cpp.topk_weights);
    copy(c.output, cpp.output);
    copy(c.output_scales, cpp.output_scales);
    copy(c.counts, cpp.counts);
    copy(c.offsets, cpp.offsets);
    copy(c.output_sources, cpp.output_sources);
    copy(c.source_tokens, cpp.source_tokens);
    copy(c.source_wait_ns, cpp.source_wait_ns);
    copy(c.host_counts, cpp.host_counts);
    copy(c.output_ids, cpp.output_ids);
    copy(c.output_weights, cpp.output_weights);
    copy(c.tokens, cpp.tokens);
    copy(c.most_tokens, cpp.most_tokens);
    copy(c.map, cpp.map);
    copy(c.topk_ids_are_i64, cpp.topk_ids_are_i64);
    copy(c.discard, cpp.discard);
    launch_fields(c, cpp, copy);
    copy(c.rounds, cpp.rounds.count);
    copy(c.rounds_experts, cpp.rounds.experts);
    copy(c.round, cpp.round);
    copy(c.rank_mask, cpp.rank_mask);
    copy(c.mask_ids, cpp.mask_ids);
    copy(c.rank_prefix, cpp.rank_prefix);
    copy_handle(c.again, cpp.again);
    for (std::uint32_t i = 0; i < kMostPayloads; ++i) {
      copy(c.payloads[i], cpp.payloads[i]);
      copy(c.output_payloads[i], cpp.output_payloads[i]);
    }
  }
};

template <>
struct Mirror<weft_combine_args> {
  using Cpp = CombineArgs;
  static constexpr const char* name = "weft_combine_args";
  static constexpr std::size_t least = offsetof(weft_combine_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy_handle(c.handle, cpp.handle);
    copy(c.input, cpp.input);
    copy(c.topk_weights, cpp.topk_weights);
    copy(c.residual, cpp.residual);
    copy(c.output, cpp.output);
    copy(c.source_wait_ns, cpp.source_wait_ns);
    launch_fields(c, cpp, copy);
    copy(c.rounds, cpp.rounds.count);
    copy(c.rounds_experts, cpp.rounds.experts);
    copy(c.round, cpp.round);
  }
};

namespace {

using Dispatch = DispatchHandle (MoeExchange::*)(const DispatchArgs&) const;
using Combine = void (MoeExchange::*)(const CombineArgs&) const;

weft_code dispatch(Dispatch function, const weft_exchange* exchange, const weft_dispatch_args* args,
                   weft_dispatch_handle* handle) noexcept {
  return guarded([&] {
    weft_dispatch_handle& place = at("handle", handle);
    copy_handle(place, (at("exchange", exchange).exchange.*function)(cpp_of(whole(args))));
  });
}

weft_code combine(Combine function, const weft_exchange* exchange, const weft_combine_args* args) noexcept {
  return guarded([&] { (at("exchange", exchange).exchange.*function)(cpp_of(whole(args))); });
}

}  // namespace
}  // namespace weft::c

using namespace weft::c;

extern "C" {

weft_code weft_dispatch_args_init(weft_dispatch_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_combine_args_init(weft_combine_args* args, size_t size) {
  return init(args, size);
}

weft_code weft_dispatch(const weft_exchange* exchange, const weft_dispatch_args* args, weft_dispatch_handle* handle) {
  return dispatch(&weft::MoeExchange::dispatch, exchange, args, handle);
}

weft_code weft_combine(const weft_exchange* exchange, const weft_combine_args* args) {
  return combine(&weft::MoeExchange::combine, exchange, args);
}

weft_code weft_dispatch_send(const weft_exchange* exchange, const weft_dispatch_args* args,
                             weft_dispatch_handle* handle) {
  return dispatch(&weft::MoeExchange::dispatch_send, exchange, args, handle);
}

weft_code weft_dispatch_wait(const weft_exchange* exchange, const weft_dispatch_handle* handle,
                             const weft_dispatch_args* args) {
  return guarded([&] {
    weft::DispatchHandle sent;
    copy_handle(at("handle", handle), sent);
    at("exchange", exchange).exchange.dispatch_wait(sent, cpp_of(whole(args)));
  });
}

weft_code weft_combine_send(const weft_exchange* exchange, const weft_combine_args* args) {
  return combine(&weft::MoeExchange::combine_send, exchange, args);
}

weft_code weft_combine_wait(const weft_exchange* exchange, const weft_combine_args* args) {
  return combine(&weft::MoeExchange::combine_wait, exchange, args);
}

void weft_exchange_refuse_dispatch(const weft_exchange* exchange, const char* reason, weft_stream stream) {
  if (exchange != nullptr && reason != nullptr) exchange->exchange.refuse_dispatch(reason, stream);
}

void weft_exchange_refuse_combine(const weft_exchange* exchange, const char* reason, weft_stream stream) {
  if (exchange != nullptr && reason != nullptr) exchange->exchange.refuse_combine(reason, stream);
}

weft_host_count weft_read_host_count(uint64_t* word) {
  const weft::HostCount read = weft::read_host_count(word);
  return {.count = read.count, .stamp = read.stamp};
}

}  // extern "C"
