// When the parts of a layer began and ended on each rank, as a file for Perfetto or chrome://tracing.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/moe_layer.hpp"

namespace weft::cli {

// Makes a part of a call, and tells its observer, if there is one.
template <class Make>
void make_part(const LayerObserver& observe, LayerPart part, Make make) {
  const auto tell = [&](bool begins) {
    part.begins = begins;
    if (observe) observe(part);
  };
  tell(true);
  make();
  tell(false);
}

// Rows of the picture. `taking`: waits of dispatch that run beside its sends.
enum class Lane : std::uint8_t { layer, callers, there, taking, back, shared };

struct TracedPart {
  LayerPart::Which which = LayerPart::Which::dispatch;
  int round = -1;  // −1: of all rounds
  Lane lane = Lane::callers;
  double begin = 0, end = 0;  // µs, by the rank's clock
};
// `peo`: the overlap method of PeoLayer, whose parts are of one round each; 0: a part of a MoeLayer.
TracedPart traced(const LayerPart& part, std::uint32_t peo);

// The parts as numbers, to be gathered: as many for each layer that has so many rounds.
std::vector<double> as_numbers(const std::vector<TracedPart>& parts, std::uint32_t rounds);
std::vector<TracedPart> from_numbers(const std::vector<double>& numbers);

struct LayerTrace {
  std::string title;
  std::vector<std::vector<TracedPart>> ranks;
};
nlohmann::json to_json(const std::vector<LayerTrace>& layers);  // for bench/plot.py
// The layers one behind the other, in the trace event format: a process for each rank, and a thread for each stream.
nlohmann::json trace_events(const std::vector<LayerTrace>& layers);

}  // namespace weft::cli
