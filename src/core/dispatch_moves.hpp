// From run-time values to the one template instance that serves them: gathers, scatters and their like.
#pragma once

#include <cstdint>
#include <variant>

#include "algorithms/barrier.hpp"
#include "algorithms/push_copy.hpp"
#include "algorithms/push_counts.hpp"
#include "algorithms/push_reduce_scatter.hpp"
#include "core/operation.hpp"
#include "weft/types.hpp"

namespace weft::detail {

// Calls `run.template operator()<Algorithm class>()` for the instance that serves the call.
template <class Shares, std::uint32_t most_tensors, bool symmetric, class Run>
void with_copy(bool whole, Run&& run) {
  if (whole) return run.template operator()<PushCopy<Shares, true, most_tensors, symmetric>>();
  run.template operator()<PushCopy<Shares, false, most_tensors, symmetric>>();
}

// Sums of whole packs have lean instances for groups of two, four and eight in bf16.
template <class Shares, class Run>
void with_reduce_scatter(const InstanceQuery& query, Run&& run) {
  const auto general = [&]<DataType type>() {
    run.template operator()<PushReduceScatter<Shares, type, ReduceOp::sum, 0, false>>();
  };
  const auto lean = [&]<std::uint32_t size>() {
    run.template operator()<PushReduceScatter<Shares, DataType::bf16, ReduceOp::sum, size, true>>();
  };
  if (query.whole && query.type == DataType::bf16) {
    if (query.size == 2) return lean.template operator()<2>();
    if (query.size == 4) return lean.template operator()<4>();
    if (query.size == 8) return lean.template operator()<8>();
  }
  switch (query.type) {
    case DataType::bf16:
      return general.template operator()<DataType::bf16>();
    case DataType::f16:
      return general.template operator()<DataType::f16>();
    case DataType::f32:
      return general.template operator()<DataType::f32>();
    case DataType::i32:
      return general.template operator()<DataType::i32>();
  }
}

// Calls `run.template operator()<Algorithm class>(work)` for the instance that serves the operation.
template <class Run>
struct ServeMove {
  Run run;

  template <class Shares, std::uint32_t most_tensors, bool symmetric>
  void operator()(const CopyOperation<Shares, most_tensors, symmetric>& op) const {
    with_copy<Shares, most_tensors, symmetric>(op.whole, [&]<class A>() { run.template operator()<A>(op.work); });
  }
  template <class Shares>
  void operator()(const ReduceScatterOperation<Shares>& op) const {
    with_reduce_scatter<Shares>(op.instance, [&]<class A>() { run.template operator()<A>(op.work); });
  }
  void operator()(const BarrierOperation&) const { run.template operator()<Barrier>(BarrierWork{}); }
  void operator()(const CountsOperation& op) const { run.template operator()<PushCounts>(op.work); }
};

}  // namespace weft::detail
