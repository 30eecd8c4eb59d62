// The kernel that writes a rank's input on the GPU: once before a measurement, or before every operation.
#pragma once

#include "measure.hpp"

namespace weft::cli {

// Enqueues what fill() does on the CPU, for the elements of `point`.
void enqueue_produce(void* buffer, const Point& point, Data data, int rank, int step, Stream stream);

}  // namespace weft::cli
