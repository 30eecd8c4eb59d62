// All kernels of all-reduces.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernel/instances.hpp"
#include "ops/all_reduce/all_reduce_kernels.hpp"
#include "ops/all_reduce/multimem_one_shot.hpp"
#include "ops/all_reduce/multimem_two_shot.hpp"
#include "ops/all_reduce/one_shot_all_reduce.hpp"
#include "ops/all_reduce/pipelined_all_reduce.hpp"
#include "ops/all_reduce/two_shot_all_reduce.hpp"

namespace weft::detail {

constexpr AllReduceQuery all_reduce_of(Algorithm algorithm, DataType type, ReduceOp op, std::uint32_t size) {
  return {.instance = {.type = type, .op = op, .size = size, .aligned16 = size != 0}, .algorithm = algorithm};
}

// `size` 0: for any size, and for packs that are not whole.
template <DataType type, ReduceOp op, std::uint32_t size>
using AllReducesOfSize = Instances<Instance<OneShotAllReduce<Reduction<type, op>, size, size != 0>,
                                            all_reduce_of(Algorithm::one_shot, type, op, size)>,
                                   Instance<TwoShotAllReduce<Reduction<type, op>, size, size != 0>,
                                            all_reduce_of(Algorithm::two_shot, type, op, size)>,
                                   Instance<PipelinedAllReduce<Reduction<type, op, Plain>, size, size != 0>,
                                            all_reduce_of(Algorithm::pipelined, type, op, size)>>;
template <DataType type, std::uint32_t size>
using SpecializedAllReduces =
    std::conditional_t<has_specialized_instance({.type = type, .op = ReduceOp::sum, .size = size, .aligned16 = true}),
                       AllReducesOfSize<type, ReduceOp::sum, size>, Instances<>>;
// None for types that no switch adds up.
template <DataType type>
using MultimemAllReduces = Instances<Instance<MultimemOneShot<Reduction<type, ReduceOp::sum, Plain>>,
                                              all_reduce_of(Algorithm::multimem_one_shot, type, ReduceOp::sum, 0)>,
                                     Instance<MultimemTwoShot<Reduction<type, ReduceOp::sum, Plain>>,
                                              all_reduce_of(Algorithm::multimem_two_shot, type, ReduceOp::sum, 0)>>;

template <DataType type>
using AllReducesOfType =
    Join<AllReducesOfSize<type, ReduceOp::sum, 0>, AllReducesOfSize<type, ReduceOp::max, 0>,
         SpecializedAllReduces<type, 2>, SpecializedAllReduces<type, 3>, SpecializedAllReduces<type, 4>,
         SpecializedAllReduces<type, 5>, SpecializedAllReduces<type, 6>, SpecializedAllReduces<type, 7>,
         SpecializedAllReduces<type, 8>>;
struct AllReduceFamily {
  using List = Join<AllReducesOfType<DataType::bf16>, AllReducesOfType<DataType::f16>, AllReducesOfType<DataType::f32>,
                    AllReducesOfType<DataType::i32>, MultimemAllReduces<DataType::bf16>,
                    MultimemAllReduces<DataType::f16>, MultimemAllReduces<DataType::f32>>;
};

}  // namespace weft::detail
