// Ways of a layer that `weft bench moe-layer` times, and the parts of which their ideals consist.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/layer_figures.hpp"

namespace weft::cli {

struct LayerOptions {
  std::string rounds = "2,4", sms = "0", peo_methods = "1,2,3";
  int cluster = 0;  // as Launch::cluster
  bool no_peo = false, shared = false;
  RowPath path = RowPath::automatic;  // both
};

// Numbers of rounds, or the experts of each round: "2,1:3:3:1". Throws Errc::invalid_argument for what cannot be.
std::vector<LayerRounds> divisions_of(const std::string& text);
// The divisions into several rounds that PeoLayer has.
std::vector<LayerRounds> peo_divisions(const LayerOptions& options);

// All that is timed for a number of tokens, in this order: parts of some rows come last, as they leave no others for
// the experts. Throws Errc::invalid_argument if a division is not of a rank's `local` experts (0: not known yet).
std::vector<TimedLayer> timed_layers(const LayerOptions& options, std::uint32_t local);

}  // namespace weft::cli
