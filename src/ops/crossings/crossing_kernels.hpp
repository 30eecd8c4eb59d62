// Finds the kernel that serves a crossing.
#pragma once

#include "kernel/kernel.hpp"
#include "ops/crossings/crossing_work.hpp"
#include "weft/types.hpp"

namespace weft::detail {

struct CrossingFamily;  // ops/crossings/crossing_instances.hpp

struct CrossingQuery {
  DataType type;
  bool aligned16;  // both tensors consist of whole, aligned packs

  using Work = CrossingWork;
  constexpr bool operator==(const CrossingQuery&) const = default;
  // Activations are mostly bf16; other types share the instance for rows of any length.
  constexpr CrossingQuery key() const { return {.type = type, .aligned16 = aligned16 && type == DataType::bf16}; }
};
KernelFor<CrossingWork> find_kernel(const CrossingQuery& query);

}  // namespace weft::detail
