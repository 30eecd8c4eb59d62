// Dispatch and combine: rejects impossible calls, names the call, and hands it to the executor.
#include "weft/moe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "ops/moe/exchange_checks.hpp"
#include "ops/moe/exchange_choice.hpp"
#include "ops/moe/exchange_grid.hpp"
#include "ops/moe/exchange_state.hpp"
#include "ops/moe/moe_kernels.hpp"
#include "ops/moe/rounds.hpp"
#include "ops/moves/move_plan.hpp"

namespace weft {
namespace {

using detail::ExchangeShape;
using detail::ExchangeState;
using detail::GroupState;
using detail::InFlight;
using detail::kJoined;
using detail::kSend;
using detail::kWait;
using detail::Phases;
using detail::require;

constexpr const char* name(InFlight::Side side) {
  return side == InFlight::Side::dispatch ? "dispatch" : "combine";
}

struct ExchangeWords {
  static constexpr std::string_view kKind = "exchange";
  InFlight::Side side;
  bool wait, again;
  std::uint32_t tag, most_tokens, map, rounds;
  std::uint32_t round;  // of this launch; detail::kNone: all, or none
  std::string text() const {
    const std::string most = most_tokens != 0 ? fmt::format(", most_tokens {}", most_tokens) : "";
    const std::string of_map = map != 0 ? fmt::format(", map {}", map) : "";
    const std::string call = wait
                                 ? fmt::format("{}, its wait", name(side))
                                 : fmt::format("{}{} tag {}{}{}", name(side), again ? " again" : "", tag, most, of_map);
    if (rounds == 1) return call;
    return round != detail::kNone ? fmt::format("{}, round {} of 0 to {}", call, round, rounds - 1)
                                  : fmt::format("{}, {} rounds", call, rounds);
  }
};

constexpr std::uint32_t map_of(const DispatchArgs& args) {
  return args.map;
}
constexpr std::uint32_t map_of(const CombineArgs&) {
  return 0;
}

// A dispatch or a combine, or a part of one.
template <InFlight::Side side, class Args>
class HalfCall : public detail::GroupCall {
 public:
  HalfCall(const Group& group, ExchangeState& exchange, const Args& args, std::uint32_t most_tokens)
      : GroupCall(group, args.stream, args.launch),
        exchange_(exchange),
        args_(args),
        ring_(exchange.takes_ring(most_tokens)) {}

  GroupState& channel() const {
    return side == InFlight::Side::dispatch ? exchange_.dispatch_channel() : exchange_.combine_channel();
  }
  // The call that a wait continues, once it has been made.
  detail::SentCall sent() const { return sent_; }

 protected:
  void check_call(const char* what) const {
    if (exchange_.freed()) throw Error(Errc::released, fmt::format("{}: the exchange has been freed", what));
    const GroupState& dispatch = exchange_.dispatch_channel();
    dispatch.communicator().check_process();
    const bool many = ring_ && side == InFlight::Side::dispatch;
    detail::check_launch(dispatch, args_.launch, many ? detail::kRingDispatchThreads : detail::kMoveThreads);
    require(!ring_ || detail::suits_ring(args_.launch.threads),
            "launch.threads: {} is not 0, 32, 64 or a multiple of {}, which the ring path asks for",
            args_.launch.threads, detail::kWarpGroupThreads);
    detail::check_exchange_blocks(dispatch, "launch.blocks", args_.launch.blocks, ring_);
    dispatch.communicator().fabric().check_stream(stream());
  }
  // Nobody frees a ring's places between a send and its wait.
  void check_half(std::uint32_t tokens) const {
    const std::uint32_t places = exchange_.shape().ring_rows;
    require(!ring_ || tokens <= places,
            "tokens: {} is more than the {} of MoeExchangeArgs::ring_rows, so only the joined call serves them", tokens,
            places);
  }
  void begin(DispatchHandle handle, bool again = false) {
    std::uint64_t division = detail::division_of(rounds_);
    if (handle.most_tokens != 0) {
      division = detail::fingerprint(detail::NameHash("most_tokens"), division, handle.most_tokens);
    }
    if (map_of(args_) != 0) division = detail::fingerprint(detail::NameHash("map"), division, map_of(args_));
    if (again) division = detail::fingerprint(detail::NameHash("again"), division);
    sent_ = {handle, detail::fingerprint(name(side), args_.tag, division), rounds_, again};
  }
  detail::CallName call_name(Phases phases) const {
    const bool one_round = phases == (side == InFlight::Side::dispatch ? kWait : kSend);
    return {.fingerprint = sent_.fingerprint,
            .words = ExchangeWords{.side = side,
                                   .wait = phases == kWait,
                                   .again = sent_.again,
                                   .tag = args_.tag,
                                   .most_tokens = sent_.handle.most_tokens,
                                   .map = map_of(args_),
                                   .rounds = sent_.rounds.count,
                                   .round = one_round ? sent_.rounds.current : detail::kNone},
            .counted = false,
            .part = sent_.rounds.count != 1};
  }

  detail::ExchangeGridArgs grid_args(Phases phases) const {
    return detail::grid_args_of(exchange_, {.side = side,
                                            .handle = sent_.handle,
                                            .phases = phases,
                                            .rounds = sent_.rounds.count != 1,
                                            .launch = args_.launch});
  }

  ExchangeState& exchange_;
  const Args& args_;
  const bool ring_;  // rows flow through the ring
  detail::Rounds rounds_ = {};
  detail::SentCall sent_{};
};

template <Phases phases>
class Dispatch : public HalfCall<InFlight::Side::dispatch, DispatchArgs> {
 public:
  static constexpr const char* kRange = phases == kWait ? "weft::dispatch_wait" : "weft::dispatch";
  static constexpr bool kPeersWait = phases != kWait;
  Dispatch(const Group& group, ExchangeState& exchange, const DispatchArgs& args)
      : HalfCall(group, exchange, args, args.most_tokens) {}
  Dispatch(const Group& group, ExchangeState& exchange, const DispatchArgs& args, DispatchHandle handle)
      : HalfCall(group, exchange, args, handle.most_tokens) {
    sent_.handle = handle;
  }

  void check() {
    check_call(detail::name_of_operation<Dispatch>());
    if (phases == kWait) sent_ = exchange_.in_flight().sent(InFlight::Side::dispatch, sent_.handle, args_.round);
    const bool again = phases == kWait ? sent_.again : is_again();
    if (phases != kWait) {
      if (again) detail::check_again(exchange_, args_, kept());
      detail::check_inputs(channel(), exchange_, args_);
    }
    if (phases == kSend) check_half(args_.tokens);
    if (phases != kSend) detail::check_outputs(channel(), exchange_, args_, again);
    if constexpr (phases == kJoined) detail::check_rows_apart(exchange_, args_);
    if constexpr (phases == kWait) {
      DispatchArgs outputs = args_;
      outputs.tokens = 0;  // inputs were the send's
      detail::check_rows_apart(exchange_, outputs);
    }
    if constexpr (phases != kWait) {
      rounds_ = detail::plan_dispatch_rounds(exchange_, args_.most_tokens, args_.rounds);
      exchange_.in_flight().check_nothing_sent(InFlight::Side::dispatch);
    }
  }

  detail::CallName plan(bool kept) {
    if constexpr (phases != kWait) {
      const bool again = is_again();
      begin(again ? args_.again : exchange_.in_flight().take_slot(args_.tokens, args_.most_tokens, kept), again);
    }
    return call_name(phases);
  }

  template <class Run>
  void each_step(Run run) const {
    const DispatchHandle handle = sent_.handle;
    const ExchangeShape& shape = exchange_.shape();
    const detail::ExchangeGridArgs of_grid = grid_args(phases);
    const detail::ExchangeGrid grid = detail::dispatch_grid(of_grid);
    const bool by_mask = args_.rank_mask != nullptr && !sent_.again;
    if (phases != kWait && by_mask && handle.tokens != 0) run(mask_step(handle.tokens));
    const detail::DispatchQuery query{.type = exchange_.args().type,
                                      .cast = shape.cast,
                                      .order = shape.scale_order,
                                      .ring = ring_,
                                      .rounds = of_grid.rounds,
                                      .tallies = grid.tallies,
                                      .compact = shape.layout == RowLayout::rank_compact,
                                      .use = use(),
                                      .payloads = !exchange_.args().payload_bytes.empty()};
    const std::uint32_t map = phases != kWait ? args_.map : 0;  // a wait reads none
    run({.call = {},
         .bound = detail::find_kernel(query).with({.exchange = exchange_.view(handle.slot, ring_, map),
                                                   .phases = phases,
                                                   .input = args_.input,
                                                   .scales = args_.scales,
                                                   .ids = by_mask ? args_.mask_ids : args_.topk_ids,
                                                   .weights = args_.topk_weights,
                                                   .tokens = handle.tokens,
                                                   .senders = grid.senders,
                                                   .warp_groups = grid.warp_groups,
                                                   .wide_ids = args_.topk_ids_are_i64 && !by_mask,
                                                   .discard = args_.discard,
                                                   .output = args_.output,
                                                   .output_scales = args_.output_scales,
                                                   .counts = args_.counts,
                                                   .offsets = args_.offsets,
                                                   .sources = args_.output_sources,
                                                   .source_tokens = args_.source_tokens,
                                                   .source_wait_ns = args_.source_wait_ns,
                                                   .host_counts = args_.host_counts,
                                                   .local_ids = args_.output_ids,
                                                   .local_weights = args_.output_weights,
                                                   .rounds = sent_.rounds,
                                                   .rank_prefix = args_.rank_prefix,
                                                   .sides = detail::side_payloads(exchange_.args(), shape, args_)}),
         .blocks = grid.blocks,
         .threads = grid.threads});
  }

 private:
  bool is_again() const { return args_.again != DispatchHandle{}; }
  detail::RoutingUse use() const {
    if (sent_.again) return detail::RoutingUse::known;
    return exchange_.args().repeatable ? detail::RoutingUse::noted : detail::RoutingUse::once;
  }
  detail::KernelCall mask_step(std::uint32_t tokens) const {
    constexpr int kThreads = 256;
    const auto ranks = static_cast<std::uint32_t>(channel().size());
    const int most = args_.launch.blocks != 0 ? args_.launch.blocks : channel().communicator().max_blocks(args_.launch);
    const int blocks = static_cast<int>((tokens * ranks + kThreads - 1) / kThreads);
    return {.call = {},
            .bound = detail::find_kernel(detail::MaskIdsQuery{})
                         .with({.mask = args_.rank_mask, .ids = args_.mask_ids, .tokens = tokens, .ranks = ranks}),
            .blocks = detail::whole_pairs(std::min(blocks, most), args_.launch),
            .threads = kThreads};
  }
};

template <Phases phases>
class Combine : public HalfCall<InFlight::Side::combine, CombineArgs> {
 public:
  static constexpr const char* kRange = phases == kWait ? "weft::combine_wait" : "weft::combine";
  Combine(const Group& group, ExchangeState& exchange, const CombineArgs& args)
      : HalfCall(group, exchange, args, args.handle.most_tokens) {}

  // A wait that sends rows.
  bool serves() const {
    // A peer that makes the joined call may have more tokens than the ring has places. In rounds no rank has.
    const ExchangeShape& shape = exchange_.shape();
    const bool may_have_more = ring_ && sent_.rounds.count == 1 && shape.tokens > shape.ring_rows;
    return exchange_.args().weights_at_combine || may_have_more;
  }
  bool is_later_round() const { return phases == kSend && args_.round != 0; }
  bool peers_wait() const { return (phases != kWait && !is_later_round()) || serves(); }

  void check() {
    check_call(detail::name_of_operation<Combine>());
    if (phases != kJoined) check_half(args_.handle.tokens);
    if constexpr (phases == kWait) {
      sent_ = exchange_.in_flight().all_sent(args_.handle);
      detail::check_combine_output(exchange_, args_);
      if (serves()) detail::check_combine_input(exchange_, args_);
    } else {
      check_rounds();
      require(args_.handle.tokens <= exchange_.shape().tokens, "handle: {} tokens are more than the {} of the exchange",
              args_.handle.tokens, exchange_.shape().tokens);
      detail::check_combine_weights(exchange_, args_);
      if (phases == kJoined || !exchange_.args().weights_at_combine) detail::check_combine_input(exchange_, args_);
      if (phases == kJoined) detail::check_combine_output(exchange_, args_);
      if (phases == kJoined) detail::check_rows_apart(exchange_, args_);
      if (!is_later_round()) exchange_.in_flight().check_nothing_sent(InFlight::Side::combine);
    }
  }

  detail::CallName plan(bool) {
    if (phases != kWait && !is_later_round()) begin(args_.handle);
    return call_name(phases);
  }

  template <class Run>
  void each_step(Run run) const {
    const detail::ExchangeGrid grid = detail::combine_grid(grid_args(phases));
    const detail::CombineQuery query{.type = exchange_.args().combine_type,
                                     .ranks = static_cast<std::uint32_t>(exchange_.dispatch_channel().size()),
                                     .ring = ring_,
                                     .late = exchange_.args().weights_at_combine,
                                     .rounds = sent_.rounds.count != 1};
    run({.call = {},
         .bound = detail::find_kernel(query).with({.exchange = exchange_.view(args_.handle.slot, ring_),
                                                   .phases = phases,
                                                   .senders = grid.senders,
                                                   .warp_groups = grid.warp_groups,
                                                   .pairs = grid.pairs,
                                                   .input = args_.input,
                                                   .residual = args_.residual,
                                                   .output = args_.output,
                                                   .source_wait_ns = args_.source_wait_ns,
                                                   .dispatch_admitted = exchange_.dispatch_admitted(),
                                                   .late = exchange_.late_weights(args_.topk_weights, args_.handle),
                                                   .rounds = sent_.rounds}),
         .blocks = grid.blocks,
         .threads = grid.threads});
  }

 private:
  // The first send of a call gives its rounds; a later one continues it.
  void check_rounds() {
    rounds_ = detail::plan_rounds(exchange_.shape(), ring_, args_.handle.most_tokens, args_.rounds);
    const std::uint32_t round = phases == kSend ? args_.round : 0;
    const std::uint32_t end = phases == kSend && round < rounds_.count ? rounds_.experts(round).end : detail::kNone;
    exchange_.in_flight().check_handle("handle", args_.handle, kept(), end);
    if (is_later_round()) sent_ = exchange_.in_flight().sent(InFlight::Side::combine, args_.handle, round);
  }
};

}  // namespace

MoeExchange MoeExchange::create(const Group& caller, const MoeExchangeArgs& args) {
  const Group group = detail::held(caller);
  return MoeExchange(group, detail::make_exchange(group.state(), args));
}

void MoeExchange::free() {
  const MoeExchange self = *this;  // keeps the state, as detail::held() keeps a group
  detail::free_exchange(self.group_.state().communicator(), *self.state_);
}

const MoeExchangeArgs& MoeExchange::args() const {
  return state_->args();
}
std::uint32_t MoeExchange::local_experts() const {
  return state_->shape().local;
}
std::uint32_t MoeExchange::capacity() const {
  return state_->shape().capacity;
}
std::size_t MoeExchange::output_rows() const {
  return state_->shape().rows;
}

// Each call keeps the exchange alive, as a call keeps its group.
DispatchHandle MoeExchange::dispatch(const DispatchArgs& args) const {
  const auto state = state_;
  Dispatch<kJoined> call(group_, *state, args);
  detail::make_call(call);
  return call.sent().handle;
}
DispatchHandle MoeExchange::dispatch_send(const DispatchArgs& args) const {
  const auto state = state_;
  Dispatch<kSend> call(group_, *state, args);
  detail::make_call(call);
  state->in_flight().note_sent(InFlight::Side::dispatch, call.sent());
  return call.sent().handle;
}
void MoeExchange::dispatch_wait(DispatchHandle handle, const DispatchArgs& args) const {
  const auto state = state_;
  Dispatch<kWait> call(group_, *state, args, handle);
  detail::make_call(call);
  state->in_flight().note_round(InFlight::Side::dispatch);
}

void MoeExchange::combine(const CombineArgs& args) const {
  const auto state = state_;
  Combine<kJoined> call(group_, *state, args);
  detail::make_call(call);
}
void MoeExchange::combine_send(const CombineArgs& args) const {
  const auto state = state_;
  Combine<kSend> call(group_, *state, args);
  detail::make_call(call);
  if (!call.is_later_round()) state->in_flight().note_sent(InFlight::Side::combine, call.sent());
  state->in_flight().note_round(InFlight::Side::combine);
}
void MoeExchange::combine_wait(const CombineArgs& args) const {
  const auto state = state_;
  Combine<kWait> call(group_, *state, args);
  detail::make_call(call);
  state->in_flight().note_combined();
}

void MoeExchange::refuse_dispatch(std::string_view reason, Stream stream) const noexcept {
  detail::tell_rejection(state_->dispatch_channel(), stream, Error(Errc::invalid_argument, std::string(reason)));
}
void MoeExchange::refuse_combine(std::string_view reason, Stream stream) const noexcept {
  detail::tell_rejection(state_->combine_channel(), stream, Error(Errc::invalid_argument, std::string(reason)));
}

}  // namespace weft
