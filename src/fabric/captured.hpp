// Fabrics that captured graphs keep alive.
#pragma once

#include <memory>

#include "weft/types.hpp"

namespace weft::detail {

class Fabric;

// Whether a graph is being captured on `stream`; it then owns a share of `fabric`.
bool keep_for_graphs(Stream stream, const std::shared_ptr<Fabric>& fabric);
// CUDA forbids its own calls in its callback for a graph's end. So fabrics whose last owner was a graph wait for this.
void free_what_graphs_kept();

}  // namespace weft::detail
