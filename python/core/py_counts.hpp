// Counts as calls of several files take them.
#pragma once

#include "binding.hpp"

namespace weft::python {

// Counts with the tensors that hold them.
struct PyCounts {
  nb::object rows, slots;
  Sharding sharding;
  Padding padding;
  std::size_t slot_rows;
};

// The counts of a call over all ranks.
Counts counts_of(const PyCounts& of, Tensors& tensors);

}  // namespace weft::python
