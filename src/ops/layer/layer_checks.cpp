#include "ops/layer/layer_checks.hpp"

#include <cstdint>

#include "base/enum_text.hpp"
#include "comm/call.hpp"
#include "ops/moe/exchange_checks.hpp"
#include "ops/moe/rounds.hpp"

namespace weft::detail {
namespace {

void check_processors(const LayerState& layer, const MoeLayerCall& call) {
  const auto of_gemm = [&](const char* name, int given) {
    require(given >= 0 && given <= layer.processors, "{}: {} is not between 0 and {}", name, given, layer.processors);
  };
  of_gemm("up_num_sms", call.up_num_sms);
  of_gemm("down_num_sms", call.down_num_sms);
  of_gemm("shared_num_sms", call.shared_num_sms);
  const bool ring = layer.state.takes_ring(call.most_tokens);
  const auto of_exchange = [&](const char* name, int given) {
    check_cluster(layer.state.dispatch_channel(), "cluster", name, {.blocks = given, .cluster = call.cluster});
    check_exchange_blocks(layer.state.dispatch_channel(), name, given, ring);
  };
  of_exchange("send_num_sms", call.send_num_sms);
  of_exchange("recv_num_sms", call.recv_num_sms);
  of_exchange("combine_send_num_sms", call.combine_send_num_sms);
  of_exchange("combine_recv_num_sms", call.combine_recv_num_sms);
}

}  // namespace

Rounds check_experts(const LayerState& layer, const MoeLayerCall& call) {
  layer.state.dispatch_channel().communicator().check_process();
  check_choice("schedule", call.schedule, LayerSchedule::automatic);
  require(call.up != nullptr && call.down != nullptr, "up, down: both GEMMs must be given");
  require(call.workspace != nullptr && reinterpret_cast<std::uintptr_t>(call.workspace) % 256 == 0,
          "workspace: {} is null or not aligned to 256 bytes", call.workspace);
  const bool whole = call.schedule == LayerSchedule::plain || call.schedule == LayerSchedule::automatic;
  require(!whole || call.rounds.count == 1, "rounds.count: {} is not 1, and the schedule is {}", call.rounds.count,
          name(call.schedule));
  check_processors(layer, call);
  const ExchangeShape& shape = layer.state.shape();
  const bool ring = layer.state.takes_ring(call.most_tokens);
  const Rounds rounds = plan_dispatch_rounds(layer.state, call.most_tokens, call.rounds);
  const std::uint32_t most = call.most_tokens != 0 ? call.most_tokens : shape.tokens;
  require(whole || !ring || most <= shape.ring_rows,
          "schedule: {} serves most_tokens up to the {} of MoeExchangeArgs::ring_rows, and not {}", name(call.schedule),
          shape.ring_rows, most);
  return rounds;
}

void check_layer_call(const LayerState& layer, const MoeLayerCall& call) {
  const CombineArgs back{.handle = {.tokens = call.tokens}, .residual = call.residual, .output = call.output};
  check_combine_output(layer.state, back);
  check_rows_apart(layer.state, back);
}

}  // namespace weft::detail
