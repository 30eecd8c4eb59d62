// The parts of a rank's layer, each of which runs alone.
#include <algorithm>

#include "bench/layer_rank.hpp"

namespace weft::cli {

void LayerRank::experts(const LayerWay& way, std::uint32_t layer) {
  layer_.run_experts(call_of(way, layer));
}

void LayerRank::up(std::uint32_t layer) {
  MoeLayerCall call = call_of({}, layer);
  call.down = [](const ExpertGemm&) {};
  layer_.run_experts(call);
}

void LayerRank::down(const LayerWay& way, std::uint32_t layer) {
  ExpertGemm gemm = last_down_;
  gemm.num_sms = step_of(way, processors()).sms.down;
  const detail::Rounds rounds = rounds_of(way);
  for (std::uint32_t round = 0; round < rounds.count; ++round) {
    const detail::ExpertRange experts = rounds.experts(round);
    gemm.round = round;
    gemm.first_expert = experts.begin;
    gemm.experts = std::min(experts.end, shape_.local()) - experts.begin;
    if (gemm.experts != 0) gemms_->enqueue(gemm, layers_[layer % kLayers].experts.down);
  }
}

detail::Rounds LayerRank::rounds_of(const LayerWay& way) const {
  return divided(shape_, way.division());
}

void LayerRank::choose_rows(const LayerWay& way, SomeRows rows) {
  for (Layer& layer : layers_) {
    const std::vector<std::int32_t> ids = ids_of_rows(shape_, layer.tokens, rows, rounds_of(way));
    device_->upload(layer.some_ids, ids.data(), ids.size() * 4);
  }
}

DispatchHandle LayerRank::dispatch(const LayerWay& way, std::uint32_t layer, SomeRows rows) {
  const Layer& of = layers_[layer % kLayers];
  return exchange_.dispatch({.input = input_,
                             .topk_ids = rows == SomeRows::all ? of.ids : of.some_ids,
                             .topk_weights = static_cast<const float*>(of.weights),
                             .tokens = of.tokens.count(),
                             .most_tokens = way.path == RowPath::slots ? virtual_tokens_ : 0,
                             .output = const_cast<void*>(last_up_.input),
                             .output_scales = const_cast<void*>(last_up_.input_scales),
                             .counts = const_cast<std::int32_t*>(last_up_.counts),
                             .stream = device_->stream(),
                             .discard = true,
                             .launch = {.blocks = way.sms, .cluster = cluster_}});
}

void LayerRank::combine(const LayerWay& way, const DispatchHandle& handle) {
  exchange_.combine({.handle = handle,
                     .input = last_down_.output,
                     .output = shape_.emulated != 0 ? combined_ : output_,
                     .stream = device_->stream(),
                     .launch = {.blocks = way.sms, .cluster = cluster_}});
}

void LayerRank::exchange(const LayerWay& way, std::uint32_t layer) {
  combine(way, dispatch(way, layer, SomeRows::all));
}

void LayerRank::shared(std::uint32_t layer) {
  SharedExpert expert = last_shared_;
  expert.tokens = layers_[layer % kLayers].tokens.count();
  expert.num_sms = 0;
  expert.stream = device_->stream();
  shared_->run(expert, layer);
}

std::vector<DispatchHandle> LayerRank::dispatch_rounds(const LayerWay& way, std::uint32_t layer) {
  return peo_->dispatch(peo_of(way, layer));
}

void LayerRank::combine_rounds(const LayerWay& way, const std::vector<DispatchHandle>& handles) {
  peo_->combine(peo_of(way, 0), handles);
}

void LayerRank::settle(const LayerWay& way) {
  for (std::uint32_t i = 0; i < exchange_.args().handles; ++i) {
    if (way.peo != 0) {
      combine_rounds(way, dispatch_rounds(way, 0));
    } else {
      exchange({.path = RowPath::ring}, 0);
    }
  }
}

}  // namespace weft::cli
