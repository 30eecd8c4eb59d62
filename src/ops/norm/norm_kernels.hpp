// Finds the kernel that serves an all-reduce with a norm, or the norm alone.
#pragma once

#include <cstdint>

#include "kernel/kernel.hpp"
#include "ops/norm/norm_plan.hpp"
#include "ops/norm/norm_work.hpp"

namespace weft::detail {

struct NormFamily;  // ops/norm/norm_instances.hpp

struct FusedNormQuery {
  DataType type;
  std::uint32_t size;  // ranks of the group
  Algorithm algorithm;
  bool casts;              // rows become e4m3
  bool keeps_own = false;  // one-shot between two ranks: its own input is not sent to itself
  bool gamma_f32 = false;  // such kernels are for any size

  using Work = NormWork;
  constexpr bool operator==(const FusedNormQuery&) const = default;
  constexpr FusedNormQuery key() const {
    FusedNormQuery key = *this;
    if (type != DataType::f16) key.type = DataType::bf16;
    if (!has_specialized_norm(type, size, gamma_f32)) key.size = 0;
    if (algorithm != Algorithm::one_shot) key.algorithm = Algorithm::two_shot;
    key.keeps_own = keeps_own && key.size == 2 && algorithm == Algorithm::one_shot;
    return key;
  }
};
KernelFor<NormWork> find_kernel(const FusedNormQuery& query);

// Two-shot whose blocks have roles: bf16, two ranks.
struct NormInRolesQuery {
  bool casts;  // rows become e4m3

  using Work = NormInRolesWork;
  constexpr bool operator==(const NormInRolesQuery&) const = default;
  constexpr NormInRolesQuery key() const { return *this; }
};
KernelFor<NormInRolesWork> find_kernel(const NormInRolesQuery& query);

struct NormRowsQuery {
  DataType type;
  bool gamma_f32 = false;

  using Work = NormWork;
  constexpr bool operator==(const NormRowsQuery&) const = default;
  constexpr NormRowsQuery key() const { return {type == DataType::f16 ? DataType::f16 : DataType::bf16, gamma_f32}; }
};
KernelFor<NormWork> find_kernel(const NormRowsQuery& query);

}  // namespace weft::detail
