// Every call finds the right kernel among those that are loaded when a communicator is made.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "comm/rejection_kernels.hpp"
#include "ops/all_reduce/all_reduce_kernels.hpp"
#include "ops/columns/column_kernels.hpp"
#include "ops/crossings/crossing_kernels.hpp"
#include "ops/layer/silu_mul_work.hpp"
#include "ops/messages/message_kernels.hpp"
#include "ops/moe/moe_kernels.hpp"
#include "ops/moves/move_kernels.hpp"
#include "ops/moves/numbers_work.hpp"
#include "ops/moves/take_kernels.hpp"
#include "ops/norm/norm_kernels.hpp"
#include "ops/normed_crossings/normed_crossing_kernels.hpp"
#include "ops/top_k/top_k_kernels.hpp"
#include "support/cases.hpp"

namespace weft::test {
namespace {

using detail::CountedPartition;
using detail::EqualPartition;
using detail::InstanceQuery;
using detail::Kernel;

bool is_loaded(const Kernel* kernel) {
  return std::ranges::any_of(detail::all_kernels(), [&](std::span<const Kernel> family) {
    return kernel >= family.data() && kernel < family.data() + family.size();
  });
}
// Collects the family's kernels that serve a query.
class Found {
 public:
  template <class Query>
  const Kernel* add(const Query& query) {
    const auto found = find_kernel(query);
    EXPECT_TRUE(is_loaded(found.kernel));
    EXPECT_TRUE(*found.kernel->work_type == typeid(typename Query::Work));
    EXPECT_NE(found.kernel->on_cpu, nullptr);
    EXPECT_EQ(found.kernel->on_gpu != nullptr, WEFT_WITH_CUDA != 0);
    kernels_.insert(found.kernel);
    return found.kernel;
  }
  std::size_t count() const { return kernels_.size(); }

 private:
  std::set<const Kernel*> kernels_;
};

TEST(Kernels, AllReduces) {
  Found found;
  const auto find = [&](Algorithm algorithm, const InstanceQuery& instance) {
    return found.add(detail::AllReduceQuery{.instance = instance, .algorithm = algorithm});
  };
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      const detail::Ops ops = detail::ops_for(type, op);
      for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined}) {
        const Kernel* const generic = find(algorithm, {.type = type, .ops = ops, .size = 2, .aligned16 = false});
        EXPECT_EQ(generic->most_threads, detail::max_threads(0));
        for (std::uint32_t size = 1; size <= detail::kMaxRanks; ++size) {
          const InstanceQuery instance{.type = type, .ops = ops, .size = size, .aligned16 = true};
          const bool specialized = has_specialized_instance(instance);
          const Kernel* const kernel = find(algorithm, instance);
          EXPECT_EQ(kernel != generic, specialized) << size;
          EXPECT_EQ(kernel->most_threads, detail::max_threads(specialized ? size : 0)) << size;
        }
      }
      if (!detail::multimem_adds(type, op)) continue;
      for (const Algorithm algorithm : {Algorithm::multimem_one_shot, Algorithm::multimem_two_shot})
        find(algorithm, {.type = type, .ops = ops, .size = 8, .aligned16 = true});
    }
  }
  EXPECT_EQ(found.count(), detail::kernels_of<detail::AllReduceFamily>().size());
}

TEST(Kernels, GathersAndScatters) {
  Found found;
  for (const bool aligned16 : {false, true}) {
    found.add(detail::CopyQuery<EqualPartition, 1>{aligned16});
    found.add(detail::CopyQuery<EqualPartition, 1, true>{aligned16});
    found.add(detail::CopyQuery<CountedPartition, 1>{aligned16});
    found.add(detail::CopyQuery<CountedPartition, 1, true>{aligned16});
    found.add(detail::CopyQuery<CountedPartition, detail::kMaxTensors>{aligned16});
    found.add(detail::CopyQuery<CountedPartition, detail::kMaxTensors, true>{aligned16});
    found.add(detail::CopyQuery<detail::ReplicaPartition, detail::kMaxTensors>{aligned16});
    found.add(detail::CopyQuery<detail::ReplicaPartition, detail::kMaxTensors, true>{aligned16});
    for (const DataType type : kTypes) {
      for (const ReduceOp op : kOps) {
        for (std::uint32_t size = 1; size <= detail::kMaxRanks; ++size) {
          const InstanceQuery instance{
              .type = type, .ops = detail::ops_for(type, op), .size = size, .aligned16 = aligned16};
          const Kernel* const kernel = found.add(detail::ScatterQuery<EqualPartition>{instance});
          found.add(detail::ScatterQuery<CountedPartition>{instance});
          InstanceQuery generic = instance;
          generic.aligned16 = false;
          EXPECT_EQ(kernel != found.add(detail::ScatterQuery<EqualPartition>{generic}),
                    has_specialized_scatter(instance));
        }
      }
    }
  }
  found.add(detail::BarrierQuery{});
  found.add(detail::CountsQuery{});
  EXPECT_EQ(found.count(), detail::kernels_of<detail::MoveFamily>().size());
}

TEST(Kernels, DispatchAndCombine) {
  Found found;
  for (const RowType type : {RowType::bf16, RowType::f16, RowType::fp8}) {
    for (const RowCast cast : {RowCast::none, RowCast::fp8, RowCast::fp8_ue8m0, RowCast::fp8_pow2}) {
      if (type == RowType::fp8 && cast != RowCast::none) continue;
      for (const ScaleOrder order : {ScaleOrder::rows, ScaleOrder::columns}) {
        for (const bool ring : {false, true}) {
          for (const bool rounds : {false, true}) {
            for (const bool tallies : {false, true})
              found.add(detail::DispatchQuery{type, cast, order, ring, rounds, tallies});
            if (!ring || rounds) continue;
            for (const bool compact : {false, true}) {
              for (const auto use : {detail::RoutingUse::once, detail::RoutingUse::noted, detail::RoutingUse::known}) {
                for (const bool payloads : {false, cast == RowCast::none})
                  found.add(detail::DispatchQuery{type, cast, order, ring, rounds, false, compact, use, payloads});
              }
            }
          }
        }
      }
    }
  }
  constexpr auto kOnce = detail::RoutingUse::once;
  for (const bool ring : {false, true}) {
    for (const bool rounds : {false, true}) {
      for (const bool tallies : {false, true})
        found.add(detail::DispatchQuery{RowType::bf16, RowCast::none, ScaleOrder::rows, ring, rounds, tallies, false,
                                        kOnce, true});
    }
  }
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    for (std::uint32_t ranks = 1; ranks <= detail::kMaxRanks; ++ranks) {
      for (const bool ring : {false, true}) {
        for (const bool late : {false, true}) found.add(detail::CombineQuery{type, ranks, ring, late});
        found.add(detail::CombineQuery{type, ranks, ring, false, true});
      }
    }
  }
  EXPECT_EQ(found.count(), detail::kernels_of<detail::MoeFamily>().size());
  found.add(detail::MaskIdsQuery{});
  EXPECT_EQ(found.count(), detail::kernels_of<detail::MoeFamily>().size() + 1);
}

TEST(Kernels, Norms) {
  Found found;
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    for (const bool gamma_f32 : {false, true}) found.add(detail::NormRowsQuery{type, gamma_f32});
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
      for (const bool casts : {false, true}) {
        for (std::uint32_t size = 1; size <= detail::kMaxRanks; ++size) {
          const Kernel* const kernel = found.add(detail::FusedNormQuery{type, size, algorithm, casts});
          const Kernel* const own = found.add(detail::FusedNormQuery{type, size, algorithm, casts, true});
          const bool specialized = detail::has_specialized_norm(type, size);
          EXPECT_EQ(kernel != own, specialized && size == 2 && algorithm == Algorithm::one_shot);
          EXPECT_EQ(kernel->most_threads, detail::max_norm_threads(algorithm, specialized ? size : 0)) << size;
          const Kernel* const f32 = found.add(detail::FusedNormQuery{type, size, algorithm, casts, true, true});
          EXPECT_EQ(f32->most_threads, detail::max_norm_threads(algorithm, 0)) << size;
        }
      }
    }
  }
  for (const bool casts : {false, true}) {
    EXPECT_EQ(found.add(detail::NormInRolesQuery{casts})->most_threads, detail::kMostNormThreadsInRoles);
  }
  EXPECT_EQ(found.count(), detail::kernels_of<detail::NormFamily>().size());
}

TEST(Kernels, Messages) {
  Found found;
  found.add(detail::MessagesQuery{});
  EXPECT_EQ(found.count(), detail::kernels_of<detail::MessageFamily>().size());
}

TEST(Kernels, Crossings) {
  Found found;
  for (const bool aligned16 : {false, true}) {
    for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32, DataType::i32})
      for (std::uint32_t size = 2; size <= detail::kMaxRanks; ++size)
        found.add(detail::CrossingQuery{.type = type, .size = size, .aligned16 = aligned16});
  }
  EXPECT_EQ(found.count(), detail::kernels_of<detail::CrossingFamily>().size());
}

TEST(Kernels, NormedCrossings) {
  Found found;
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    for (std::uint32_t size = 1; size <= detail::kMaxRanks; ++size) {
      for (const bool casts : {false, true}) {
        for (const bool flows : {false, true}) {
          for (const bool gamma_f32 : {false, true})
            found.add(detail::NormedCrossingQuery{type, size, casts, flows, gamma_f32});
        }
      }
    }
  }
  EXPECT_EQ(found.count(), detail::kernels_of<detail::NormedCrossingFamily>().size());
}

TEST(Kernels, OfColumns) {
  Found found;
  for (const bool aligned16 : {false, true}) {
    found.add(detail::ColumnQuery<false, false>{aligned16});
    found.add(detail::ColumnQuery<false, true>{aligned16});
    found.add(detail::ColumnQuery<true, false>{aligned16});
    found.add(detail::ColumnQuery<true, true>{aligned16});
    found.add(detail::GroupColumnQuery<false>{aligned16});
    found.add(detail::GroupColumnQuery<true>{aligned16});
  }
  EXPECT_EQ(found.count(), detail::kernels_of<detail::ColumnFamily>().size());
}

TEST(Kernels, OfTheLargest) {
  Found found;
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32}) {
    for (const bool one : {false, true}) found.add(detail::TopKQuery{type, one});
  }
  EXPECT_EQ(found.count(), detail::kernels_of<detail::TopKFamily>().size());
}

TEST(Kernels, OfOneRank) {
  Found found;
  found.add(detail::TakeQuery{false});
  found.add(detail::TakeQuery{true});
  found.add(detail::NumbersQuery{});
  EXPECT_EQ(found.count(), detail::kernels_of<detail::TakeFamily>().size());
  found.add(detail::RejectionQuery{});
  EXPECT_EQ(found.count(), 4u);
}

TEST(Kernels, OfMasks) {
  Found found;
  found.add(detail::MaskIdsQuery{});
  EXPECT_EQ(found.count(), detail::kernels_of<detail::MaskFamily>().size());
}

TEST(Kernels, OfLayers) {
  Found found;
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    for (const bool cast : {false, true}) {
      for (const ScaleOrder order : {ScaleOrder::rows, ScaleOrder::columns})
        found.add(detail::SiluMulQuery{type, cast, order});
    }
  }
  EXPECT_EQ(found.count(), detail::kernels_of<detail::LayerFamily>().size());
}

// all_kernels() must name every family once, or its kernels are not loaded.
TEST(Kernels, AreEachInOneFamily) {
  std::set<const void*> functions;
  std::size_t kernels = 0;
  for (const std::span<const Kernel> family : detail::all_kernels()) {
    kernels += family.size();
    for (const Kernel& kernel : family) functions.insert(reinterpret_cast<const void*>(kernel.on_cpu));
  }
  EXPECT_EQ(functions.size(), kernels);
}

// tools/kernel_table.py writes these numbers into docs/architecture.md, and its check compares them.
TEST(Kernels, AreCounted) {
  const std::pair<const char*, std::size_t> counted[] = {
      {"comm", detail::kernels_of<detail::RejectionFamily>().size()},
      {"ops/all_reduce", detail::kernels_of<detail::AllReduceFamily>().size()},
      {"ops/columns", detail::kernels_of<detail::ColumnFamily>().size()},
      {"ops/crossings", detail::kernels_of<detail::CrossingFamily>().size()},
      {"ops/layer", detail::kernels_of<detail::LayerFamily>().size()},
      {"ops/messages", detail::kernels_of<detail::MessageFamily>().size()},
      {"ops/moe", detail::kernels_of<detail::MoeFamily>().size() + detail::kernels_of<detail::MaskFamily>().size()},
      {"ops/moves", detail::kernels_of<detail::MoveFamily>().size() + detail::kernels_of<detail::TakeFamily>().size()},
      {"ops/norm", detail::kernels_of<detail::NormFamily>().size()},
      {"ops/normed_crossings", detail::kernels_of<detail::NormedCrossingFamily>().size()},
      {"ops/top_k", detail::kernels_of<detail::TopKFamily>().size()}};
  std::size_t loaded = 0, sum = 0;
  for (const std::span<const Kernel> family : detail::all_kernels()) loaded += family.size();
  for (const auto& [folder, kernels] : counted) {
    RecordProperty(folder, static_cast<int>(kernels));
    sum += kernels;
  }
  EXPECT_EQ(sum, loaded);
}

}  // namespace
}  // namespace weft::test
