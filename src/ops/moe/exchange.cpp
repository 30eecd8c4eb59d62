// Dispatch and combine: rejects what cannot work, names the call, and hands it to the executor.
#include <fmt/format.h>

#include <cstdint>

#include "base/fingerprint.hpp"
#include "base/nvtx.hpp"
#include "comm/call.hpp"
#include "ops/moe/exchange_grid.hpp"
#include "ops/moe/exchange_state.hpp"
#include "ops/moe/moe_kernels.hpp"
#include "ops/moves/move_plan.hpp"
#include "weft/moe.hpp"

namespace weft {
namespace {

using detail::ExchangeShape;
using detail::ExchangeState;
using detail::ExchangeTurns;
using detail::GroupState;
using detail::Part;
using detail::require;

void check_tensor(const GroupState& group, const char* name, const void* data, std::size_t alignment) {
  require(data != nullptr, "{}: null", name);
  require(reinterpret_cast<std::uintptr_t>(data) % alignment == 0, "{}: {} is not aligned to {} bytes", name, data,
          alignment);
  detail::check_buffer(group, name, data);
}

// Those that the layout asks for; others are taken where they are given and have a meaning.
void check_outputs(const GroupState& group, const ExchangeShape& shape, const DispatchArgs& args) {
  const bool by_rank = shape.layout == RowLayout::rank_major, scaled = shape.scale_bytes != 0 || shape.groups != 0;
  const auto check = [&](const char* name, const void* data, std::size_t alignment, bool needed) {
    if (needed || data != nullptr) check_tensor(group, name, data, alignment);
  };
  const auto forbid = [&](const char* name, const void* data, bool forbidden) {
    require(!forbidden || data == nullptr, "{}: not null, and layout {} has none", name, weft::name(shape.layout));
  };
  check("source_tokens", args.source_tokens, 4, by_rank);
  check("offsets", args.offsets, 4, shape.layout == RowLayout::expert_contiguous);
  forbid("offsets", args.offsets, shape.layout != RowLayout::expert_contiguous);
  forbid("output_sources", args.output_sources, by_rank);
  forbid("output_ids", args.output_ids, !by_rank);
  forbid("output_weights", args.output_weights, !by_rank);
  require(shape.weighted || args.output_weights == nullptr,
          "output_weights: not null, and the exchange is not weighted");
  if (shape.local != 0) {
    check("output", args.output, 16, true);
    check("output_scales", args.output_scales, 4, scaled);
    check("counts", args.counts, 4, true);
  }
  check("output_sources", args.output_sources, 4, false);
  check("source_wait_ns", args.source_wait_ns, 8, false);
  check("output_ids", args.output_ids, 4, by_rank);
  check("output_weights", args.output_weights, 4, by_rank && shape.weighted);
}

// What a call, or a part of one, asks first.
void check_call(const ExchangeState& exchange, const char* what, const Launch& launch, Stream stream) {
  if (exchange.freed()) throw Error(Errc::released, fmt::format("{}: the exchange has been freed", what));
  const GroupState& channel = exchange.dispatch_channel();
  channel.communicator().check_process();
  detail::check_launch(channel, launch, detail::kMoveThreads);
  channel.communicator().fabric().check_stream(stream);
}

void check_ready(const Group& handle, const GroupState& channel, const char* what) {
  detail::check_acquired(channel, what);
  detail::check_not_ended(handle);
}

// Makes the call, or a part of it, of which is_kept() has been asked.
void run(const Group& handle, GroupState& channel, const detail::CallName& name, detail::KernelCall planned) {
  channel.remember(name);
  planned.call = channel.call(name.fingerprint);
  detail::run_held(handle, planned);
}
detail::CallName call_name(const char* what, std::uint32_t tag) {
  return {detail::fingerprint(what, tag), fmt::format("{} tag {}", what, tag)};
}

void check_inputs(const GroupState& group, const ExchangeShape& shape, const DispatchArgs& args) {
  require(args.tokens <= shape.tokens, "tokens: {} is not between 0 and {}", args.tokens, shape.tokens);
  if (args.tokens == 0) return;
  check_tensor(group, "input", args.input, 16);
  if (shape.scale_bytes != 0) check_tensor(group, "scales", args.scales, 4);
  check_tensor(group, "topk_ids", args.topk_ids, args.topk_ids_are_i64 ? 8 : 4);
  if (shape.weighted) check_tensor(group, "topk_weights", args.topk_weights, 4);
}

detail::ExchangeGridArgs grid_args(const ExchangeState& exchange, std::uint32_t tokens, Part part,
                                   const Launch& launch) {
  const GroupState& channel = exchange.dispatch_channel();
  return {.shape = exchange.shape(),
          .ranks = static_cast<std::uint32_t>(channel.size()),
          .tokens = tokens,
          .part = part,
          .launch = launch,
          .most_blocks = channel.communicator().max_blocks()};
}

detail::KernelCall plan_dispatch(const ExchangeState& exchange, const DispatchArgs& args, Part part,
                                 std::uint32_t generation, std::uint32_t tokens) {
  const detail::ExchangeGrid grid = detail::dispatch_grid(grid_args(exchange, tokens, part, args.launch));
  const ExchangeShape& shape = exchange.shape();
  const detail::DispatchQuery query{.type = exchange.args().type, .cast = shape.cast, .order = shape.scale_order};
  return {.call = {},
          .bound = detail::find_kernel(query).with({.exchange = exchange.view(generation),
                                                    .part = part,
                                                    .input = args.input,
                                                    .scales = args.scales,
                                                    .ids = args.topk_ids,
                                                    .weights = args.topk_weights,
                                                    .tokens = tokens,
                                                    .senders = grid.senders,
                                                    .wide_ids = args.topk_ids_are_i64,
                                                    .discard = args.discard,
                                                    .output = args.output,
                                                    .output_scales = args.output_scales,
                                                    .counts = args.counts,
                                                    .offsets = args.offsets,
                                                    .sources = args.output_sources,
                                                    .source_tokens = args.source_tokens,
                                                    .source_wait_ns = args.source_wait_ns,
                                                    .local_ids = args.output_ids,
                                                    .local_weights = args.output_weights}),
          .blocks = grid.blocks,
          .threads = grid.threads,
          .stream = args.stream};
}

detail::SentCall make_dispatch(const Group& group, ExchangeState& exchange, const DispatchArgs& args, Part part) {
  GroupState& channel = exchange.dispatch_channel();
  check_call(exchange, "dispatch", args.launch, args.stream);
  check_inputs(channel, exchange.shape(), args);
  if (part == Part::whole) check_outputs(channel, exchange.shape(), args);
  exchange.turns().check_nothing_sent(ExchangeTurns::Side::dispatch);
  check_ready(group, channel, "dispatch");
  const Ticket ticket = exchange.turns().take_generation(args.tokens, detail::is_kept(group, args.stream));
  const detail::CallName name = call_name("dispatch", args.tag);
  run(group, channel, name, plan_dispatch(exchange, args, part, ticket.generation, args.tokens));
  return {ticket, name.fingerprint};
}

// A dispatch, or its send.
detail::SentCall run_dispatch(const Group& group, ExchangeState& exchange, const DispatchArgs& args, Part part) {
  const detail::NvtxRange range("weft::dispatch");
  return detail::make_or_tell(exchange.dispatch_channel(), args.stream,
                              [&] { return make_dispatch(group, exchange, args, part); });
}

void check_combine_output(const ExchangeState& exchange, const CombineArgs& args) {
  const GroupState& group = exchange.combine_channel();
  if (args.ticket.tokens != 0) {
    check_tensor(group, "output", args.output, 16);
    if (args.residual != nullptr) check_tensor(group, "residual", args.residual, 16);
  }
  if (args.source_wait_ns != nullptr) check_tensor(group, "source_wait_ns", args.source_wait_ns, 8);
}

detail::KernelCall plan_combine(const ExchangeState& exchange, const CombineArgs& args, Part part) {
  const detail::ExchangeGrid grid = detail::combine_grid(grid_args(exchange, args.ticket.tokens, part, args.launch));
  const detail::CombineQuery query{.type = exchange.args().combine_type,
                                   .ranks = static_cast<std::uint32_t>(exchange.dispatch_channel().size())};
  return {.call = {},
          .bound = detail::find_kernel(query).with({.exchange = exchange.view(args.ticket.generation),
                                                    .part = part,
                                                    .senders = grid.senders,
                                                    .pairs = grid.pairs,
                                                    .input = args.input,
                                                    .residual = args.residual,
                                                    .output = args.output,
                                                    .source_wait_ns = args.source_wait_ns,
                                                    .dispatch_admitted = exchange.dispatch_admitted()}),
          .blocks = grid.blocks,
          .threads = grid.threads,
          .stream = args.stream};
}

detail::SentCall make_combine(const Group& group, ExchangeState& exchange, const CombineArgs& args, Part part) {
  GroupState& channel = exchange.combine_channel();
  check_call(exchange, "combine", args.launch, args.stream);
  exchange.turns().check_combine(args.ticket, detail::is_kept(group, args.stream));
  if (exchange.shape().local != 0) check_tensor(channel, "input", args.input, 16);
  if (part == Part::whole) check_combine_output(exchange, args);
  exchange.turns().check_nothing_sent(ExchangeTurns::Side::combine);
  check_ready(group, channel, "combine");
  const detail::CallName name = call_name("combine", args.tag);
  run(group, channel, name, plan_combine(exchange, args, part));
  return {args.ticket, name.fingerprint};
}

// A combine, or its send.
detail::SentCall run_combine(const Group& group, ExchangeState& exchange, const CombineArgs& args, Part part) {
  const detail::NvtxRange range("weft::combine");
  return detail::make_or_tell(exchange.combine_channel(), args.stream,
                              [&] { return make_combine(group, exchange, args, part); });
}

}  // namespace

ExchangeMemory exchange_memory(int ranks, const ExchangeArgs& args) {
  require(ranks >= 1 && ranks <= static_cast<int>(detail::kMaxRanks), "ranks: {} is not between 1 and {}", ranks,
          detail::kMaxRanks);
  const auto size = static_cast<std::uint32_t>(ranks);
  detail::check_exchange_args(size, args);
  const detail::ExpertMap map = detail::map_experts(size, args);
  const ExchangeShape shape = detail::make_shape(size, 0, args, map);
  const detail::ExchangeLayout layout = detail::make_exchange_layout(size, shape);
  const detail::OutputRow row = detail::output_row(args);
  ExchangeMemory memory{};
  memory.dispatch = layout.dispatch_bytes / detail::kBanks;
  memory.combine = layout.combine_bytes / detail::kBanks;
  memory.tables = args.generations * detail::RoutingTables::bytes(size, shape) + detail::map_bytes(map);
  memory.window = layout.dispatch_bytes + layout.combine_bytes + memory.tables;
  const bool by_rank = args.layout == RowLayout::rank_major;
  const std::size_t entry = sizeof(std::int32_t) + (args.weighted ? sizeof(float) : 0);
  const std::size_t rows = args.layout == RowLayout::expert_masked ? std::size_t{shape.most_local} * shape.capacity
                                                                   : std::size_t{shape.rows};
  memory.output = rows * (row.bytes + row.scale_bytes + (by_rank ? args.top_k * entry : 0));
  return memory;
}

Exchange Exchange::create(const Group& caller, const ExchangeArgs& args) {
  const Group group = detail::held(caller);
  return Exchange(group, detail::make_exchange(group.state(), args));
}

void Exchange::free() {
  const Exchange self = *this;  // as detail::held() has a group
  detail::free_exchange(self.group_.state().communicator(), *self.state_);
}

const ExchangeArgs& Exchange::args() const {
  return state_->args();
}
std::uint32_t Exchange::local_experts() const {
  return state_->shape().local;
}
std::span<const std::uint32_t> Exchange::experts() const {
  return state_->experts();
}
std::uint32_t Exchange::capacity() const {
  return state_->shape().capacity;
}
std::size_t Exchange::output_rows() const {
  return state_->shape().rows;
}

Ticket Exchange::dispatch(const DispatchArgs& args) const {
  const Exchange self = *this;
  return run_dispatch(self.group_, *self.state_, args, Part::whole).ticket;
}
Ticket Exchange::dispatch_send(const DispatchArgs& args) const {
  const Exchange self = *this;
  const detail::SentCall sent = run_dispatch(self.group_, *self.state_, args, Part::send);
  self.state_->turns().note_sent(ExchangeTurns::Side::dispatch, sent);
  return sent.ticket;
}
void Exchange::dispatch_wait(Ticket ticket, const DispatchArgs& args) const {
  const detail::NvtxRange range("weft::dispatch_wait");
  const Exchange self = *this;
  const Group& group = self.group_;
  ExchangeState& exchange = *self.state_;
  GroupState& channel = exchange.dispatch_channel();
  check_call(exchange, "dispatch_wait", args.launch, args.stream);
  check_outputs(channel, exchange.shape(), args);
  const detail::SentCall sent = exchange.turns().sent(ExchangeTurns::Side::dispatch, ticket);
  check_ready(group, channel, "dispatch_wait");
  const detail::KernelCall planned = plan_dispatch(exchange, args, Part::wait, ticket.generation, ticket.tokens);
  static_cast<void>(detail::is_kept(group, args.stream));
  run(group, channel, {sent.fingerprint, "dispatch, its wait"}, planned);
  exchange.turns().note_waited(ExchangeTurns::Side::dispatch);
}

void Exchange::combine(const CombineArgs& args) const {
  const Exchange self = *this;
  run_combine(self.group_, *self.state_, args, Part::whole);
}
void Exchange::combine_send(const CombineArgs& args) const {
  const Exchange self = *this;
  self.state_->turns().note_sent(ExchangeTurns::Side::combine,
                                 run_combine(self.group_, *self.state_, args, Part::send));
}
void Exchange::combine_wait(const CombineArgs& args) const {
  const detail::NvtxRange range("weft::combine_wait");
  const Exchange self = *this;
  const Group& group = self.group_;
  ExchangeState& exchange = *self.state_;
  GroupState& channel = exchange.combine_channel();
  check_call(exchange, "combine_wait", args.launch, args.stream);
  const detail::SentCall sent = exchange.turns().sent(ExchangeTurns::Side::combine, args.ticket);
  check_combine_output(exchange, args);
  check_ready(group, channel, "combine_wait");
  static_cast<void>(detail::is_kept(group, args.stream));
  run(group, channel, {sent.fingerprint, "combine, its wait"}, plan_combine(exchange, args, Part::wait));
  exchange.turns().note_waited(ExchangeTurns::Side::combine);
}

}  // namespace weft
