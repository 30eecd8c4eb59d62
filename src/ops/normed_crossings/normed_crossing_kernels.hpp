// Finds the kernel that serves a crossing with residual and norm.
#pragma once

#include "kernel/kernel.hpp"
#include "ops/normed_crossings/normed_crossing_work.hpp"
#include "weft/types.hpp"

namespace weft::detail {

struct NormedCrossingFamily;  // ops/normed_crossings/normed_crossing_instances.hpp

struct NormedCrossingQuery {
  DataType type;
  std::uint32_t size;  // ranks
  bool casts;          // rows are also cast
  bool flows;          // shards may be too large for slots
  bool gamma_f32 = false;

  using Work = NormedCrossingWork;
  constexpr bool operator==(const NormedCrossingQuery&) const = default;
  // As for crossings, bf16 has instances for two and four ranks. Others share one, which can cast. γ of f32 has one for
  // everything.
  constexpr NormedCrossingQuery key() const {
    const bool own = type == DataType::bf16 && (size == 2 || size == 4) && !gamma_f32;
    return {.type = type,
            .size = own ? size : 0,
            .casts = casts || !own,
            .flows = flows || gamma_f32,
            .gamma_f32 = gamma_f32};
  }
};
KernelFor<NormedCrossingWork> find_kernel(const NormedCrossingQuery& query);

}  // namespace weft::detail
