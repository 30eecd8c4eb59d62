// The kernel that writes a rank's input on the GPU: once before a measurement, or before every operation.
#pragma once

#include "common/pattern.hpp"

namespace weft::cli {

struct ProduceArgs {
  void* buffer = nullptr;
  std::size_t count = 0;  // elements
  DataType type = DataType::bf16;
  Data data = Data::integers;
  int rank = 0, step = 0;
};

// Enqueues the GPU's version of fill().
void enqueue_produce(const ProduceArgs& args, Stream stream);

}  // namespace weft::cli
