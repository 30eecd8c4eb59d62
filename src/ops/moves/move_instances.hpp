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

template <class Partition, std::uint32_t most_tensors, bool symmetric>
using CopiesOf = Instances<Instance<PushCopy<Partition, false, most_tensors, symmetric>,
                                    CopyQuery<Partition, most_tensors, symmetric>{.aligned16 = false}>,
                           Instance<PushCopy<Partition, true, most_tensors, symmetric>,
                                    CopyQuery<Partition, most_tensors, symmetric>{.aligned16 = true}>>;
using CopyInstances =
    Join<CopiesOf<EqualPartition, 1, false>, CopiesOf<EqualPartition, 1, true>, CopiesOf<CountedPartition, 1, false>,
         CopiesOf<CountedPartition, 1, true>, CopiesOf<CountedPartition, kMaxTensors, false>,
         CopiesOf<CountedPartition, kMaxTensors, true>, CopiesOf<ReplicaPartition, kMaxTensors, false>,
         CopiesOf<ReplicaPartition, kMaxTensors, true>>;

// `size` 0: for any size, and for packs that are not whole.
template <class Partition, DataType type, std::uint32_t size, Ops ops = Ops::sum>
using Scatter =
    Instance<PushReduceScatter<Partition, type, ops, size, size != 0>,
             ScatterQuery<Partition>{{.type = type, .ops = ops, .size = size, .aligned16 = size != 0}}.key()>;
template <class Partition, DataType type>
using ScatterOfAny = Scatter<Partition, type, 0, Ops::any>;
template <class Partition>
using ScattersOf = Instances<Scatter<Partition, DataType::bf16, 0>, Scatter<Partition, DataType::bf16, 2>,
                             Scatter<Partition, DataType::bf16, 4>, Scatter<Partition, DataType::bf16, 8>,
                             Scatter<Partition, DataType::f16, 0>, Scatter<Partition, DataType::f32, 0>,
                             Scatter<Partition, DataType::i32, 0>, ScatterOfAny<Partition, DataType::bf16>,
                             ScatterOfAny<Partition, DataType::f16>, ScatterOfAny<Partition, DataType::f32>,
                             ScatterOfAny<Partition, DataType::i32>, ScatterOfAny<Partition, DataType::i64>,
                             ScatterOfAny<Partition, DataType::u8>>;

struct MoveFamily {
  using List = Join<CopyInstances, ScattersOf<EqualPartition>, ScattersOf<CountedPartition>,
                    Instances<Instance<Barrier, BarrierQuery{}>, Instance<PushCounts, CountsQuery{}>>>;
};

}  // namespace weft::detail
