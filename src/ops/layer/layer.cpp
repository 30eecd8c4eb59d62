// A layer of experts: its creation, and its calls.
#include "weft/moe_layer.hpp"

#include "comm/call.hpp"
#include "comm/capture.hpp"
#include "ops/layer/layer_checks.hpp"
#include "ops/layer/layer_choice.hpp"
#include "ops/layer/layer_run.hpp"
#include "ops/layer/layer_state.hpp"

namespace weft {
namespace {

// As long as the call, and as a recording of it.
std::shared_ptr<const detail::LayerState> held(const std::shared_ptr<detail::LayerState>& layer) {
  if (detail::Capture* const capture = detail::Capture::current()) capture->hold(layer);
  return layer;
}

}  // namespace

MoeLayer MoeLayer::create(const MoeExchange& exchange, const MoeLayerArgs& args) {
  using detail::require;
  const detail::ExchangeState& state = *exchange.state_;
  state.dispatch_channel().communicator().check_process();
  require(!detail::has_joint_rows(state.shape().layout),
          "exchange: its layout is {}; a layer asks for masked or contiguous", name(state.shape().layout));
  const bool cast = args.down_cast != RowCast::none;
  const std::uint32_t step = cast ? kScaleColumns : 8;
  require(args.intermediate != 0 && args.intermediate % step == 0 && args.intermediate <= 1u << 20,
          "intermediate: {} is not a multiple of {} between {} and {}", args.intermediate, step, step, 1u << 20);
  require(state.args().payload_bytes.empty(), "exchange: it has {} payloads; a layer carries none",
          state.args().payload_bytes.size());
  require(!state.args().weights_at_combine, "exchange: it takes weights at combine; a layer gives them at dispatch");
  return MoeLayer(std::make_shared<detail::LayerState>(exchange, exchange.group_, state, args));
}

std::size_t MoeLayer::workspace_bytes() const {
  return state_->memory.bytes;
}

void MoeLayer::run(const MoeLayerCall& given) const {
  const auto layer = held(state_);
  // Without a table nothing is copied: an automatic schedule is then a plain one.
  const bool by_table = given.schedule == LayerSchedule::automatic && !layer->steps.empty();
  const MoeLayerCall resolved = by_table ? detail::resolved(*layer, given) : MoeLayerCall{};
  const MoeLayerCall& call = by_table ? resolved : given;
  const detail::Rounds rounds = [&] {
    try {
      const detail::Rounds checked = detail::check_experts(*layer, call);
      detail::check_layer_call(*layer, call);
      return checked;
    } catch (const Error& error) {
      // Peers wait in the layer's dispatch, unless it is recorded.
      if (detail::Capture::current() == nullptr) layer->exchange.refuse_dispatch(error.what(), call.stream);
      throw;
    }
  }();
  detail::run_layer(*layer, call, rounds);
}

// Without communication an automatic schedule has nothing to divide.
void MoeLayer::run_experts(const MoeLayerCall& call) const {
  const auto layer = held(state_);
  detail::run_experts(*layer, call, detail::check_experts(*layer, call));
}

}  // namespace weft
