// Layers in files of tuning tables: read with all checks, and written.
#pragma once

#include <string>
#include <vector>

#include "tuning/file_node.hpp"
#include "tuning/layer_steps.hpp"

namespace weft::detail {

LayerSize read_layer_size(const FileNode& table);
std::vector<LayerStep> read_layer_steps(const FileNode& table, const LayerSize& size);

// The keys of a size, each with a comma behind it; a step as one object.
std::string to_json(const LayerSize& size);
std::string to_json(const LayerStep& step);

}  // namespace weft::detail
