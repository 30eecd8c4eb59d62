// A graph that was captured once and finds other counts at each replay.
#pragma once

#include <cstdint>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/graph.hpp"

namespace weft::test {

// `Call` is of the largest batch, of `most` rows; batch(rows) prepares any. No rows, a few, and as many as there is
// room for take ways of their own.
template <class Call, class Batch>
void one_graph_for_every_batch(GpuRank& gpu, const Communicator& communicator, std::int32_t most, Batch batch) {
  gpu.reset();
  const auto largest = batch(most);
  Call call(gpu, largest);
  const Graph graph(gpu, [&] { call.call(communicator); });
  for (const std::int32_t rows : {most, 0, 1, most - 1, 7}) {
    const auto next = batch(rows);
    call.fill(next);
    graph.launch(gpu.stream());
    gpu.synchronize();
    call.check(next);
    communicator.check();
  }
}

}  // namespace weft::test
