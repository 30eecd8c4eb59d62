// Kernels that read their arguments at many places, or with an index. check_arguments.py compiles them.
#include "kernel/collective.cuh"
#include "ops/moe/moe_combine.hpp"
#include "ops/moe/moe_dispatch.hpp"
#include "ops/moves/push_copy.hpp"
#include "ops/moves/push_reduce_scatter.hpp"

namespace weft::detail {

using Gather = PushCopy<CountedPartition, true, 1>;
using Gathers = PushCopy<CountedPartition, true, kMaxTensors>;
using SymmetricGather = PushCopy<EqualPartition, true, 1, true>;
using Scatter = PushReduceScatter<CountedPartition, DataType::bf16, Ops::sum, 2, true>;
using Dispatch = MoeDispatch<ExactRow<RowAndScales>>;
using Combine = MoeCombine<DataType::bf16, 4>;
using LateCombine = MoeCombine<DataType::bf16, 4, true>;

template __global__ void collective<Gather>(const __grid_constant__ Call, const __grid_constant__ Gather::Work);
template __global__ void collective<Gathers>(const __grid_constant__ Call, const __grid_constant__ Gathers::Work);
template __global__ void collective<SymmetricGather>(const __grid_constant__ Call,
                                                     const __grid_constant__ SymmetricGather::Work);
template __global__ void collective<Scatter>(const __grid_constant__ Call, const __grid_constant__ Scatter::Work);
template __global__ void collective<Dispatch>(const __grid_constant__ Call, const __grid_constant__ Dispatch::Work);
template __global__ void collective<Combine>(const __grid_constant__ Call, const __grid_constant__ Combine::Work);
template __global__ void collective<LateCombine>(const __grid_constant__ Call,
                                                 const __grid_constant__ LateCombine::Work);

}  // namespace weft::detail
