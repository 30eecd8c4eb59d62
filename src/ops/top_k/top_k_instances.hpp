// All kernels that look for the largest numbers of rows.
#pragma once

#include "kernel/instances.hpp"
#include "ops/top_k/push_top_k.hpp"
#include "ops/top_k/top_k_kernels.hpp"
#include "weft/top_k.hpp"

namespace weft::detail {

template <DataType type>
using TopKOf = Instances<Instance<PushTopK<type, 1>, TopKQuery{.type = type, .one = true}>,
                         Instance<PushTopK<type, kMaxCandidates>, TopKQuery{.type = type, .one = false}>>;

struct TopKFamily {
  using List = Join<TopKOf<DataType::bf16>, TopKOf<DataType::f16>, TopKOf<DataType::f32>>;
};

}  // namespace weft::detail
