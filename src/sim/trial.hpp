// A call of an algorithm that the simulator does not know: a new one, or another project's.
#pragma once

#include <cstdint>
#include <functional>

#include "sim/run.hpp"

namespace weft::sim {

struct Trial {
  std::uint64_t inputs, outputs;  // elements that a rank has, and gets
  // Bits of element `i` of a rank's output; `input(r, k)`: bits of element k of rank r's input.
  using Bits = std::function<std::uint64_t(unsigned rank, std::uint64_t i)>;
  std::function<std::uint64_t(unsigned rank, std::uint64_t i, const Bits& input)> expected;
  // For one rank's tensors, which are aligned to packs: kernel_of<Algorithm, unit>(work, one_thread).
  std::function<Kernel(const std::byte* input, std::byte* output)> kernel;
};

}  // namespace weft::sim
