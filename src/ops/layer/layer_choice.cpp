#include "ops/layer/layer_choice.hpp"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "comm/capture.hpp"
#include "comm/pairs.hpp"
#include "ops/layer/layer_state.hpp"
#include "ops/moe/exchange_grid.hpp"
#include "ops/moe/rounds.hpp"
#include "tuning/token_steps.hpp"

namespace weft::detail {
namespace {

static_assert(kMostTunedRounds == kMostRounds);

// Choices of a table fall back where a caller's would be rejected: by tokens and the exchange alone, so on all ranks.
bool can_divide(const ExchangeState& exchange, const MoeLayerCall& call, const ExpertRounds& rounds) {
  try {
    plan_dispatch_rounds(exchange, call.most_tokens, rounds);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Those by the way of the call's rows, which lie side by side.
std::span<const LayerStep> steps_for(const LayerState& layer, const MoeLayerCall& call) {
  const RowPath path = layer.state.takes_ring(call.most_tokens) ? RowPath::ring : RowPath::slots;
  const auto of_other = [&](const LayerStep& step) { return step.path != path; };
  const auto begin = std::find_if_not(layer.steps.begin(), layer.steps.end(), of_other);
  return {begin, std::find_if(begin, layer.steps.end(), of_other)};
}

}  // namespace

std::vector<LayerStep> layer_steps_of(const ExchangeState& exchange, const MoeLayerArgs& args) {
  const GroupState& channel = exchange.dispatch_channel();
  std::vector<LayerStep> steps;
  for (const RowPath path : {RowPath::slots, RowPath::ring}) {
    const LayerSize size{.hidden = exchange.args().hidden,
                         .intermediate = args.intermediate,
                         .local_experts = exchange.shape().most_local,
                         .top_k = exchange.args().top_k,
                         .path = path};
    const TuningTable* const table = channel.communicator().layer_tuning_for(channel.size(), size);
    if (table == nullptr) continue;
    for (LayerStep step : table->layer_steps) {
      step.path = path;
      steps.push_back(std::move(step));
    }
  }
  return steps;
}

MoeLayerCall resolved(const LayerState& layer, const MoeLayerCall& call) {
  const ExchangeState& exchange = layer.state;
  MoeLayerCall made = call;
  // The caller's own functions are called, which may have a state. A recording has copies.
  if (Capture::current() == nullptr) {
    if (call.up) made.up = std::cref(call.up);
    if (call.down) made.down = std::cref(call.down);
    if (call.shared) made.shared = std::cref(call.shared);
    if (call.observe) made.observe = std::cref(call.observe);
  }
  if (call.schedule != LayerSchedule::automatic || call.rounds.count != 1 || call.rounds.experts != nullptr)
    return made;
  made.schedule = LayerSchedule::plain;
  const std::span<const LayerStep> steps = steps_for(layer, call);
  if (steps.empty()) return made;
  const LayerStep& step = token_step_for(steps, call.most_tokens != 0 ? call.most_tokens : exchange.shape().tokens);
  const ExpertRounds rounds{.count = step.rounds, .experts = step.experts.empty() ? nullptr : step.experts.data()};
  if (!can_divide(exchange, call, rounds)) return made;
  made.schedule = step.schedule;
  made.rounds = rounds;
  made.alone_by_size = true;  // as `weft tune` has measured it
  const CommunicatorState& communicator = exchange.dispatch_channel().communicator();
  const Launch launch{.cluster = call.cluster};
  const int most = std::min(communicator.max_blocks(launch), most_ring_blocks(communicator.fabric().max_blocks()));
  const auto take_blocks = [&](int& number, int of_step) {
    if (number == 0 && of_step != 0) number = whole_pairs(std::min(of_step, most), launch);
  };
  const auto take = [&](int& number, int of_step) {
    if (number == 0) number = std::min(of_step, layer.processors);
  };
  take_blocks(made.send_num_sms, step.sms.send);
  take_blocks(made.recv_num_sms, step.sms.recv);
  take_blocks(made.combine_send_num_sms, step.sms.combine_send);
  take_blocks(made.combine_recv_num_sms, step.sms.combine_recv);
  take(made.up_num_sms, step.sms.up);
  take(made.down_num_sms, step.sms.down);
  return made;
}

}  // namespace weft::detail
