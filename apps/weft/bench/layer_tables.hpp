// Tables and JSON of the times of `weft bench moe-layer`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/layer_figures.hpp"
#include "bench/layer_traffic.hpp"

namespace weft::cli {

// Every way; the parts alone; and the fastest way of each schedule. Their legend says how every figure is made.
std::string layer_tables(const std::vector<LayerRow>& rows, const LayerShape& shape);

nlohmann::json points_of(const std::vector<LayerRow>& rows);
nlohmann::json best_of(const std::vector<LayerRow>& rows, const LayerShape& shape);

}  // namespace weft::cli
