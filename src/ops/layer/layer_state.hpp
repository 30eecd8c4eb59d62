// A layer over an exchange, and where a call of it keeps its rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/moe/exchange_state.hpp"
#include "tuning/layer_steps.hpp"
#include "weft/moe_layer.hpp"

namespace weft::detail {

class SideStreams;

// Byte offsets in the workspace.
struct LayerMemory {
  std::size_t rows, scales, counts, offsets, gate_up, middle, middle_scales, results, shared, bytes;
};

class LayerState {
 public:
  // `state`: of the exchange, which keeps it.
  LayerState(const MoeExchange& exchange, const Group& group, const ExchangeState& state, const MoeLayerArgs& args);
  ~LayerState();
  LayerState(const LayerState&) = delete;
  LayerState& operator=(const LayerState&) = delete;

  const MoeExchange exchange;
  const Group group;
  const ExchangeState& state;
  const MoeLayerArgs args;
  const ExchangeShape middle;  // of the rows between the GEMMs
  const LayerMemory memory;
  const std::vector<LayerStep> steps;  // for LayerSchedule::automatic
  const std::unique_ptr<SideStreams> streams;
  const int processors;  // that a GEMM may be told to use
};

}  // namespace weft::detail
