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

constexpr AllReduceQuery all_reduce_of(Algorithm algorithm, DataType type, Ops ops, std::uint32_t size) {
  return {.instance = {.type = type, .ops = ops, .size = size, .aligned16 = size != 0}, .algorithm = algorithm};
}

// `size` 0: for any size, and for packs that are not whole.
template <DataType type, Ops ops, std::uint32_t size>
using AllReducesOfSize = Instances<Instance<OneShotAllReduce<Reduction<type, ops>, size, size != 0>,
                                            all_reduce_of(Algorithm::one_shot, type, ops, size)>,
                                   Instance<TwoShotAllReduce<Reduction<type, ops>, size, size != 0>,
                                            all_reduce_of(Algorithm::two_shot, type, ops, size)>,
                                   Instance<PipelinedAllReduce<Reduction<type, ops, Plain>, size, size != 0>,
                                            all_reduce_of(Algorithm::pipelined, type, ops, size)>>;
template <DataType type, std::uint32_t size>
using SpecializedAllReduces =
    std::conditional_t<has_specialized_instance({.type = type, .ops = Ops::sum, .size = size, .aligned16 = true}),
                       AllReducesOfSize<type, Ops::sum, size>, Instances<>>;
// None for types that no switch adds up.
template <DataType type>
using MultimemAllReduces = Instances<Instance<MultimemOneShot<Reduction<type, Ops::sum, Plain>>,
                                              all_reduce_of(Algorithm::multimem_one_shot, type, Ops::sum, 0)>,
                                     Instance<MultimemTwoShot<Reduction<type, Ops::sum, Plain>>,
                                              all_reduce_of(Algorithm::multimem_two_shot, type, Ops::sum, 0)>>;

template <DataType type>
using AllReducesOfType =
    Join<AllReducesOfSize<type, Ops::sum, 0>, AllReducesOfSize<type, Ops::any, 0>, SpecializedAllReduces<type, 2>,
         SpecializedAllReduces<type, 3>, SpecializedAllReduces<type, 4>, SpecializedAllReduces<type, 5>,
         SpecializedAllReduces<type, 6>, SpecializedAllReduces<type, 7>, SpecializedAllReduces<type, 8>>;
struct AllReduceFamily {
  using List = Join<AllReducesOfType<DataType::bf16>, AllReducesOfType<DataType::f16>, AllReducesOfType<DataType::f32>,
                    AllReducesOfType<DataType::i32>, AllReducesOfSize<DataType::i64, Ops::any, 0>,
                    AllReducesOfSize<DataType::u8, Ops::any, 0>, MultimemAllReduces<DataType::bf16>,
                    MultimemAllReduces<DataType::f16>, MultimemAllReduces<DataType::f32>>;
};

}  // namespace weft::detail
