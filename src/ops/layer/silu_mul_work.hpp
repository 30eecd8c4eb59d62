// Arguments of the activation between an expert's two GEMMs, and its kernel.
#pragma once

#include <cstdint>

#include "kernel/kernel.hpp"
#include "ops/moe/exchange.hpp"

namespace weft::detail {

struct SiluMulWork {
  // It describes the output's rows: columns, groups, cast, layout, capacity, places of scales.
  ExchangeShape shape;
  const void* input;  // [rows, 2 · columns]: gate, then up
  void* output;       // [rows, columns]
  void* scales;
  const std::int32_t* counts;   // [local experts]
  const std::int32_t* offsets;  // [local experts + 1], if experts are contiguous
  ExpertRange experts;          // whose rows are made
};

struct LayerFamily;  // ops/layer/layer_instances.hpp

struct SiluMulQuery {
  DataType type;  // of the input, and of an output without a cast
  bool cast;
  ScaleOrder order;

  using Work = SiluMulWork;
  constexpr bool operator==(const SiluMulQuery&) const = default;
  constexpr SiluMulQuery key() const {
    return {type == DataType::bf16 ? DataType::bf16 : DataType::f16, cast, cast ? order : ScaleOrder::rows};
  }
};
KernelFor<SiluMulWork> find_kernel(const SiluMulQuery& query);

}  // namespace weft::detail
