// The parts of a layer that `weft bench moe-layer` times, and figures of their times.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/layer_measure.hpp"
#include "bench/layer_rank.hpp"
#include "bench/layer_trace.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

struct TimedLayer {
  TimedPart part;
  LayerWay way;
  std::vector<std::vector<double>> samples = {};  // [rank][sample]
  Figure figure = {};
  std::string chosen = {};  // by the layer's table, if the schedule is automatic
};

// All that is timed for one number of tokens.
struct LayerRow {
  std::uint32_t tokens = 0, virtual_tokens = 0;
  double rows_per_expert = 0;
  GemmTile tile = GemmTile::automatic;  // on GPUs, that of the GEMMs
  std::vector<TimedLayer> timed = {};
  std::string wrong = {};
  std::vector<LayerTrace> traces = {};  // if they are asked for

  double us(TimedPart part, const LayerWay& way) const;
  double fastest_plain() const;
};

// "rounds", or "peo"; the latter with its overlap method.
std::string_view schedule_of(const LayerWay& way);
std::string method_of(const LayerWay& way);
// "rounds, 2 rounds, 16 SMs, by slots".
std::string in_words(const LayerWay& way);
// "rounds, [1, 6, 1] experts, 16 SMs".
std::string in_words(const detail::LayerStep& step);

// Whether a layer has dispatch, experts and combine in rounds, and sends each row once.
bool divides_all(const LayerWay& way);
// Rounds hide all but the first part of dispatch and the last one of combine behind the experts, or the experts behind
// the rest. Parts are counted as equal. 0 for other schedules, and where the parts were not timed.
double ideal_us(const LayerRow& row, const LayerWay& way);

}  // namespace weft::cli
