#include "ops/layer/layer_state.hpp"

#include "base/limits.hpp"
#include "fabric/fabric.hpp"
#include "fabric/side_streams.hpp"
#include "ops/layer/layer_choice.hpp"

namespace weft::detail {
namespace {

ExchangeShape middle_of(ExchangeShape shape, const MoeLayerArgs& args) {
  shape.columns = args.intermediate;
  shape.cast = args.down_cast;
  shape.groups = args.down_cast == RowCast::none ? 0 : args.intermediate / kScaleColumns;
  if (shape.scale_order == ScaleOrder::columns) shape.scale_columns = plan_columns(shape);
  return shape;
}
LayerMemory lay_out(const ExchangeState& state, const MoeLayerArgs& args) {
  LayerMemory all{};
  const auto take = [&](std::size_t bytes) {
    const std::size_t at = all.bytes;
    all.bytes += aligned_to_line(bytes);
    return at;
  };
  const std::size_t rows = state.shape().rows, local = state.shape().local;
  const OutputRow given = output_row(state.args());
  MoeExchangeArgs of_middle = state.args();
  of_middle.hidden = args.intermediate;
  of_middle.cast = args.down_cast;
  of_middle.type = RowType::bf16;
  of_middle.scale_bytes = 0;
  const OutputRow made = output_row(of_middle);
  all.rows = take(rows * given.bytes);
  all.scales = take(rows * given.scale_bytes);
  all.counts = take(local * sizeof(std::int32_t));
  all.offsets = take((local + 1) * sizeof(std::int32_t));
  all.gate_up = take(rows * args.intermediate * 2 * 2);
  all.middle = take(rows * made.bytes);
  all.middle_scales = take(rows * made.scale_bytes);
  all.results = take(rows * state.args().hidden * 2);
  all.shared = take(std::size_t{state.args().tokens} * state.args().hidden * 2);
  return all;
}

const Fabric& fabric_of(const ExchangeState& state) {
  return state.dispatch_channel().communicator().fabric();
}
// CPU ranks have as many as any GPU could have.
int processors_of(const Fabric& fabric) {
  const int gpus = fabric.processor().multiprocessors;
  return gpus != 0 ? gpus : kMaxBlocks;
}

}  // namespace

LayerState::LayerState(const MoeExchange& of, const Group& caller, const ExchangeState& its_state,
                       const MoeLayerArgs& wanted)
    : exchange(of),
      group(caller),
      state(its_state),
      args(wanted),
      middle(middle_of(state.shape(), args)),
      memory(lay_out(state, args)),
      steps(layer_steps_of(state, args)),
      streams(make_side_streams(fabric_of(state).cuda_device())),
      processors(processors_of(fabric_of(state))) {}

LayerState::~LayerState() = default;

}  // namespace weft::detail
