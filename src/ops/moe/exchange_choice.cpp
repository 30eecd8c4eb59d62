#include "ops/moe/exchange_choice.hpp"

#include <algorithm>
#include <bit>

#include "comm/pairs.hpp"
#include "ops/moe/exchange_state.hpp"
#include "tuning/row_path.hpp"
#include "tuning/token_steps.hpp"

namespace weft::detail {
namespace {

bool may_be_tuned(const MoeExchangeArgs& args) {
  return args.type != RowType::fp8 && args.payload_bytes.empty() && args.blocks == 0 && !args.repeatable;
}

// The tokens that go by slots: all, if the last step does. Beside a ring that the tokens ask for these are the usual
// ones, or more if a step names more.
std::uint32_t tokens_by_slots(const MoeExchangeArgs& args, const std::vector<ExchangeStep>& steps) {
  std::uint32_t named = 0;
  for (const ExchangeStep& step : steps)
    if (step.path == RowPath::slots && step.up_to != UINT32_MAX) named = step.up_to;
  if (steps.back().path == RowPath::slots) named = has_ring(args) ? std::max(named, slots(args)) : args.tokens;
  return std::min({named, args.tokens, kMaxSlotTokens});
}

// A table's choice falls back where a caller's would be rejected: by the arguments alone, so on all ranks.
bool can_be_made(std::uint32_t ranks, const MoeExchangeArgs& args) {
  try {
    check_exchange_args(ranks, args);
    return true;
  } catch (const Error&) {
    return false;
  }
}

Launch tuned_launch(const ExchangeState& exchange, const ExchangeCall& call, const CommunicatorState& communicator) {
  const bool by_size = call.launch.blocks == 0 && call.launch.threads == 0 && is_joined(call.phases) && !call.rounds;
  if (!by_size || exchange.steps().empty()) return call.launch;
  const std::uint32_t most = call.handle.most_tokens;
  const ExchangeStep& step = token_step_for(exchange.steps(), most != 0 ? most : exchange.shape().tokens);
  const bool ring = exchange.takes_ring(most);
  if (ring != (step.path == RowPath::ring)) return call.launch;
  const StepGrid& grid = call.side == InFlight::Side::dispatch ? step.dispatch : step.combine;
  const int fit = communicator.max_blocks(call.launch), most_blocks = ring ? most_ring_blocks(fit) : fit;
  Launch launch = call.launch;
  if (grid.blocks != 0) launch.blocks = whole_pairs(std::min(grid.blocks, most_blocks), launch);
  launch.threads = grid.threads;
  return launch;
}

}  // namespace

ExchangeSize size_of_exchange(std::uint32_t ranks, const MoeExchangeArgs& args) {
  const std::vector<std::uint32_t> experts = map_experts(ranks, args).counts;
  return {.hidden = args.hidden,
          .local_experts = *std::ranges::max_element(experts),
          .top_k = args.top_k,
          .layout = args.layout,
          .cast = args.cast};
}

std::uint32_t ring_rows_of_table(const MoeExchangeArgs& args) {
  return has_ring(args) ? args.ring_rows : std::max(32u, std::bit_ceil(args.tokens));
}

ExchangeTuning tuning_of_exchange(const GroupState& group, const MoeExchangeArgs& args) {
  if (!may_be_tuned(args)) return {};
  TuningChoice choice = group.communicator().exchange_tuning_for(
      group.size(), size_of_exchange(static_cast<std::uint32_t>(group.size()), args));
  if (choice.table == nullptr) return {};
  return {.steps = choice.table->exchange_steps, .reason = std::move(choice.reason)};
}

MoeExchangeArgs with_tuning(std::uint32_t ranks, const MoeExchangeArgs& args, const std::vector<ExchangeStep>& steps) {
  const MoeExchangeArgs usual = with_row_path(args);
  const bool asked = args.path != RowPath::automatic || args.layout == RowLayout::rank_compact || args.slot_tokens != 0;
  if (steps.empty() || asked) return usual;
  const std::uint32_t by_slots = tokens_by_slots(args, steps);
  if (by_slots == args.tokens) return usual;
  MoeExchangeArgs chosen = usual;
  chosen.path = RowPath::ring;
  chosen.slot_tokens = by_slots;
  chosen.ring_rows = ring_rows_of_table(args);
  return can_be_made(ranks, chosen) ? chosen : usual;
}

ExchangeGridArgs grid_args_of(const ExchangeState& exchange, const ExchangeCall& call) {
  const GroupState& channel = exchange.dispatch_channel();
  const CommunicatorState& communicator = channel.communicator();
  return {.shape = exchange.shape(),
          .ranks = static_cast<std::uint32_t>(channel.size()),
          .tokens = call.handle.tokens,
          .most_tokens = call.handle.most_tokens,
          .ring = exchange.takes_ring(call.handle.most_tokens),
          .phases = call.phases,
          .launch = tuned_launch(exchange, call, communicator),
          .most_blocks = communicator.max_blocks(call.launch),
          .one_thread = communicator.fabric().device() == Device::cpu,
          .rounds = call.rounds};
}

}  // namespace weft::detail
