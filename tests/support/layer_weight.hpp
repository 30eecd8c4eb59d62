// The weights of the layers that tests make, on the CPU and on the GPU.
#pragma once

#include <cstdint>

#include "base/function.hpp"

namespace weft::test {

// From input column `from` of an expert's GEMM to output column `to`: a number of few bits.
WEFT_FN float layer_weight(bool up, std::uint32_t expert, std::uint32_t from, std::uint32_t to) {
  const std::uint32_t mixed = expert * 31 + from * 7 + to * 13 + (up ? 0 : 5);
  return (static_cast<float>(mixed % 17) - 8.0f) / 64.0f;
}

}  // namespace weft::test
