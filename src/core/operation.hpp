// What one call does, in the values that choose its instance and in those that its kernel gets.
#pragma once

#include <variant>

#include "algorithms/all_reduce.hpp"
#include "algorithms/barrier.hpp"
#include "algorithms/push_copy.hpp"
#include "algorithms/push_counts.hpp"
#include "algorithms/push_reduce_scatter.hpp"
#include "algorithms/rejection.hpp"
#include "algorithms/take_rows.hpp"
#include "core/exchange.hpp"
#include "core/norm_work.hpp"
#include "core/plan.hpp"
#include "weft/types.hpp"

namespace weft::detail {

struct AllReduceOperation {
  AllReduceWork work;
  InstanceQuery instance;
  Algorithm algorithm;
};

template <class Shares, std::uint32_t most_tensors, bool symmetric = false>
struct CopyOperation {
  CopyWork<Shares, most_tensors, symmetric> work;
  bool whole;
};

// The same for at most `most` tensors, or for outputs in symmetric memory: `outputs` are then the caller's to set.
template <std::uint32_t most, bool symmetric, class Shares, std::uint32_t room>
CopyOperation<Shares, most, symmetric> copy_as(const CopyOperation<Shares, room>& operation) {
  CopyOperation<Shares, most, symmetric> same{};
  same.whole = operation.whole;
  same.work.shares = operation.work.shares;
  same.work.line_packs = operation.work.line_packs;
  same.work.tensors = operation.work.tensors;
  for (std::uint32_t t = 0; t < operation.work.tensors; ++t) same.work.tensor[t] = operation.work.tensor[t];
  return same;
}

template <class Shares>
struct ReduceScatterOperation {
  ReduceScatterWork<Shares> work;
  InstanceQuery instance;
};

struct BarrierOperation {};

struct CountsOperation {
  CountsWork work;
};

using EqualCopy = CopyOperation<EqualShares, 1>;
using CountedCopy = CopyOperation<CountedShares, 1>;
using CountedCopies = CopyOperation<CountedShares, kMaxTensors>;
using EqualSymmetricCopy = CopyOperation<EqualShares, 1, true>;
using CountedSymmetricCopy = CopyOperation<CountedShares, 1, true>;
using CountedSymmetricCopies = CopyOperation<CountedShares, kMaxTensors, true>;
using EqualReduceScatter = ReduceScatterOperation<EqualShares>;
using CountedReduceScatter = ReduceScatterOperation<CountedShares>;

using MoveOperation =
    std::variant<EqualCopy, CountedCopy, CountedCopies, EqualSymmetricCopy, CountedSymmetricCopy,
                 CountedSymmetricCopies, EqualReduceScatter, CountedReduceScatter, BarrierOperation, CountsOperation>;

struct DispatchOperation {
  DispatchWork work;
  RowType type;
};

struct CombineOperation {
  CombineWork work;
  DataType type;
  std::uint32_t ranks;  // of the group
};

using MoeOperation = std::variant<DispatchOperation, CombineOperation>;

struct NormOperation {
  NormWork work;
  DataType type;
  std::uint32_t size;  // ranks of the group
  Algorithm algorithm;
  bool keeps_own = false;  // one-shot between two ranks: its own input is not sent to itself
};

// These three are no calls of the protocol: nothing is waited for.
struct NormRowsOperation {
  NormWork work;
  DataType type;
};
struct TakeOperation {
  TakeWork work;
  bool whole;
};
struct RejectionOperation {};

// Recordings and fabrics pass it on unread. Executors have a translation unit for each alternative, which finds the
// instance that serves it (core/dispatch.hpp, core/dispatch_moves.hpp, core/dispatch_moe.hpp, core/dispatch_norm.hpp).
using Operation = std::variant<AllReduceOperation, MoveOperation, MoeOperation, NormOperation, NormRowsOperation,
                               TakeOperation, RejectionOperation>;

}  // namespace weft::detail
