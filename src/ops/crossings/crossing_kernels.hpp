// Finds the kernel that serves a crossing.
#pragma once

#include "kernel/kernel.hpp"
#include "ops/crossings/crossing_work.hpp"
#include "weft/types.hpp"

namespace weft::detail {

struct CrossingFamily;  // ops/crossings/crossing_instances.hpp

struct CrossingQuery {
  DataType type;
  std::uint32_t size;  // ranks
  bool aligned16;      // both tensors consist of whole, aligned packs

  using Work = CrossingWork;
  constexpr bool operator==(const CrossingQuery&) const = default;
  // Activations are mostly bf16: whole packs have an instance, and instances for two and four ranks. Others share one.
  constexpr CrossingQuery key() const {
    const bool whole = aligned16 && type == DataType::bf16;
    return {.type = type, .size = whole && (size == 2 || size == 4) ? size : 0, .aligned16 = whole};
  }
};
KernelFor<CrossingWork> find_kernel(const CrossingQuery& query);

}  // namespace weft::detail
