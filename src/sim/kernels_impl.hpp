// How a launch runs in the simulator: as executors/cuda_executor.cu runs a kernel, thread by thread, or as
// executors/cpu_executor.cpp does, phase by phase.
#pragma once

#include <array>
#include <utility>

#include "algorithms/bulk_all_reduce.hpp"
#include "algorithms/one_shot_all_reduce.hpp"
#include "algorithms/two_shot_all_reduce.hpp"
#include "sim/kernels.hpp"

namespace weft::sim {

template <class A, class Run>
void for_phases(Run&& run) {
  [&]<int... phase>(std::integer_sequence<int, phase...>) {
    static_cast<void>((run.template operator()<phase>() && ...));
  }
  (std::make_integer_sequence<int, A::kPhases>{});
}

template <class A, int unit>
void run_thread(Machine& machine, Place place, const detail::Call& call, const typename A::Work& work) {
  SimTeam<unit> team{machine, place};
  detail::Session session = approach(team, call);
  const typename A::Places places = A::places(team, call, work);
  const typename A::Early early = A::early(team, places);
  if (!enter(team, session)) return;
  for_phases<A>([&]<int phase>() { return A::template run<phase>(team, session, work, places, early); });
  leave(team, session);
}

template <class A, int unit>
void run_rank(Machine& machine, Place place, const detail::Call& call, const typename A::Work& work) {
  constexpr std::uint32_t kBlocks = 2;
  static_cast<void>(place);
  std::array<SimTeam<unit>, kBlocks> team{SimTeam<unit>{machine, {0, kBlocks, 0, 1}},
                                          SimTeam<unit>{machine, {1, kBlocks, 0, 1}}};
  std::array<detail::Session, kBlocks> session{approach(team[0], call), approach(team[1], call)};
  for (std::uint32_t block = 0; block < kBlocks; ++block) {
    if (!enter(team[block], session[block])) return;
  }
  const std::array<typename A::Places, kBlocks> places{A::places(team[0], call, work), A::places(team[1], call, work)};
  const std::array<typename A::Early, kBlocks> early{A::early(team[0], places[0]), A::early(team[1], places[1])};
  bool good = true;
  for_phases<A>([&]<int phase>() {
    for (std::uint32_t block = 0; good && block < kBlocks; ++block) {
      good = A::template run<phase>(team[block], session[block], work, places[block], early[block]);
    }
    return good;
  });
  for (std::uint32_t block = 0; block < kBlocks; ++block) leave(team[block], session[block]);
}

template <int unit>
AllReduceKernel find_kernel_of(const KernelQuery& query) {
  const auto of_algorithm = [&]<class A>() -> AllReduceKernel {
    return query.one_thread ? &run_rank<A, unit> : &run_thread<A, unit>;
  };
  const auto of_size = [&]<class R, std::uint32_t known_size>() {
    using BulkReduction = detail::Reduction<R::kType, R::kOp, detail::Plain>;
    switch (query.algorithm) {
      case Algorithm::one_shot:
        return of_algorithm.template operator()<detail::OneShotAllReduce<R, known_size, false>>();
      case Algorithm::two_shot:
        return of_algorithm.template operator()<detail::TwoShotAllReduce<R, known_size, false>>();
      default:
        return of_algorithm.template operator()<detail::BulkAllReduce<BulkReduction, known_size, false>>();
    }
  };
  // Three ranks take the instance for any number of ranks.
  const auto of_type = [&]<DataType type>() {
    if (query.op == ReduceOp::max) return of_size.template operator()<detail::Reduction<type, ReduceOp::max>, 0>();
    using R = detail::Reduction<type, ReduceOp::sum>;
    if (query.ranks == 2) return of_size.template operator()<R, 2>();
    if (query.ranks == 4) return of_size.template operator()<R, 4>();
    return of_size.template operator()<R, 0>();
  };
  switch (query.type) {
    case DataType::bf16:
      return of_type.template operator()<DataType::bf16>();
    case DataType::f32:
      return of_type.template operator()<DataType::f32>();
    case DataType::i32:
      return of_type.template operator()<DataType::i32>();
    case DataType::f16:
      return of_type.template operator()<DataType::f16>();
  }
  return nullptr;
}

}  // namespace weft::sim
