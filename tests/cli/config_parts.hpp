// Parts of a config.json, for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/models.hpp"

namespace weft::cli {

inline ModelShape shape_of(const nlohmann::json& config) {
  return shape_from_json(config, "test", "config.json");
}

inline nlohmann::json with(nlohmann::json config, const nlohmann::json& more) {
  config.update(more);
  return config;
}

inline std::vector<int> flags(int zeros, int ones) {
  std::vector<int> all(static_cast<std::size_t>(zeros), 0);
  all.insert(all.end(), static_cast<std::size_t>(ones), 1);
  return all;
}

// The value of mlp_layer_types.
inline std::vector<std::string> kinds(int dense, int sparse) {
  std::vector<std::string> all(static_cast<std::size_t>(dense), "dense");
  all.insert(all.end(), static_cast<std::size_t>(sparse), "sparse");
  return all;
}

}  // namespace weft::cli
