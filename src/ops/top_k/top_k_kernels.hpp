// Finds the kernel that looks for the largest numbers of rows.
#pragma once

#include "kernel/kernel.hpp"
#include "ops/top_k/top_k_work.hpp"
#include "weft/types.hpp"

namespace weft::detail {

struct TopKFamily;  // ops/top_k/top_k_instances.hpp

struct TopKQuery {
  DataType type;
  bool one;  // k is 1

  using Work = TopKWork;
  constexpr bool operator==(const TopKQuery&) const = default;
  constexpr TopKQuery key() const { return *this; }
};
KernelFor<TopKWork> find_kernel(const TopKQuery& query);

}  // namespace weft::detail
