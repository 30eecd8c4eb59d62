// All kernels of gathers and scatters, of the barrier and of counts.
#pragma once

#include <cstdint>

#include "kernel/instances.hpp"
#include "ops/moves/barrier.hpp"
#include "ops/moves/move_kernels.hpp"
#include "ops/moves/push_copy.hpp"
#include "ops/moves/push_counts.hpp"
#include "ops/moves/push_reduce_scatter.hpp"

namespace weft::detail {

template <class Shares, std::uint32_t most_tensors, bool symmetric>
using CopiesOf = Instances<Instance<PushCopy<Shares, false, most_tensors, symmetric>,
                                    CopyQuery<Shares, most_tensors, symmetric>{.whole = false}>,
                           Instance<PushCopy<Shares, true, most_tensors, symmetric>,
                                    CopyQuery<Shares, most_tensors, symmetric>{.whole = true}>>;
using CopyInstances = Join<CopiesOf<EqualShares, 1, false>, CopiesOf<EqualShares, 1, true>,
                           CopiesOf<CountedShares, 1, false>, CopiesOf<CountedShares, 1, true>,
                           CopiesOf<CountedShares, kMaxTensors, false>, CopiesOf<CountedShares, kMaxTensors, true>>;

// `size` 0: for any size, and for packs that are not whole.
template <class Shares, DataType type, std::uint32_t size>
using Scatter =
    Instance<PushReduceScatter<Shares, type, ReduceOp::sum, size, size != 0>,
             ScatterQuery<Shares>{{.type = type, .op = ReduceOp::sum, .size = size, .whole = size != 0}}.key()>;
template <class Shares>
using ScattersOf =
    Instances<Scatter<Shares, DataType::bf16, 0>, Scatter<Shares, DataType::bf16, 2>,
              Scatter<Shares, DataType::bf16, 4>, Scatter<Shares, DataType::bf16, 8>, Scatter<Shares, DataType::f16, 0>,
              Scatter<Shares, DataType::f32, 0>, Scatter<Shares, DataType::i32, 0>>;

struct MoveFamily {
  using List = Join<CopyInstances, ScattersOf<EqualShares>, ScattersOf<CountedShares>,
                    Instances<Instance<Barrier, BarrierQuery{}>, Instance<PushCounts, CountsQuery{}>>>;
};

}  // namespace weft::detail
