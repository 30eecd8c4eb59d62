// Finds the kernel that serves a gather, a scatter, or a related call.
#pragma once

#include <cstdint>

#include "kernel/kernel.hpp"
#include "ops/all_reduce/all_reduce_plan.hpp"
#include "ops/moves/copy_work.hpp"
#include "ops/moves/counts_work.hpp"
#include "ops/moves/move_plan.hpp"
#include "ops/moves/replica_partition.hpp"
#include "ops/moves/row_partition.hpp"
#include "ops/moves/scatter_work.hpp"

namespace weft::detail {

struct MoveFamily;  // ops/moves/move_instances.hpp

template <class Partition, std::uint32_t most_tensors, bool symmetric = false>
struct CopyQuery {
  bool aligned16;  // every tensor consists of whole, aligned packs

  using Work = CopyWork<Partition, most_tensors, symmetric>;
  constexpr bool operator==(const CopyQuery&) const = default;
  constexpr CopyQuery key() const { return *this; }
};
// Defined for the combinations that move_instances.hpp lists.
template <class Partition, std::uint32_t most_tensors, bool symmetric>
KernelFor<CopyWork<Partition, most_tensors, symmetric>> find_kernel(
    const CopyQuery<Partition, most_tensors, symmetric>& query);

// Sums of whole packs have specialized instances for groups of two, four and eight in bf16.
constexpr bool has_specialized_scatter(const InstanceQuery& query) {
  return query.aligned16 && query.ops == Ops::sum && query.type == DataType::bf16 &&
         (query.size == 2 || query.size == 4 || query.size == 8);
}
template <class Partition>
struct ScatterQuery {
  InstanceQuery instance;

  using Work = ReduceScatterWork<Partition>;
  constexpr bool operator==(const ScatterQuery&) const = default;
  constexpr ScatterQuery key() const {
    const bool specialized = has_specialized_scatter(instance);
    return {{.type = instance.type,
             .ops = instance.ops,
             .size = specialized ? instance.size : 0,
             .aligned16 = specialized}};
  }
};
template <class Partition>
KernelFor<ReduceScatterWork<Partition>> find_kernel(const ScatterQuery<Partition>& query);

struct BarrierQuery {
  using Work = NoWork;
  constexpr bool operator==(const BarrierQuery&) const = default;
  constexpr BarrierQuery key() const { return *this; }
};
KernelFor<NoWork> find_kernel(const BarrierQuery& query);

struct CountsQuery {
  using Work = CountsWork;
  constexpr bool operator==(const CountsQuery&) const = default;
  constexpr CountsQuery key() const { return *this; }
};
KernelFor<CountsWork> find_kernel(const CountsQuery& query);

// The same work for at most `most` tensors, or for outputs in symmetric memory; the caller must then set `outputs`.
template <std::uint32_t most, bool symmetric, class Partition, std::uint32_t room>
CopyWork<Partition, most, symmetric> copy_as(const CopyWork<Partition, room>& work) {
  CopyWork<Partition, most, symmetric> same{};
  same.partition = work.partition;
  same.line_packs = work.line_packs;
  same.tensors = work.tensors;
  for (std::uint32_t t = 0; t < work.tensors; ++t) same.tensor[t] = work.tensor[t];
  return same;
}

}  // namespace weft::detail
