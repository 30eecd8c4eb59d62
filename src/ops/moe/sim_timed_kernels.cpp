#include "ops/moe/sim_timed_kernels.hpp"

#include <stdexcept>

#include "ops/moe/moe_instances.hpp"
#include "sim/run.hpp"

namespace weft::sim {
namespace {

constexpr bool is_timed(const detail::DispatchQuery& query) {
  const bool cast = query.cast != RowCast::none;
  return query.type == RowType::bf16 && cast != query.ring && query.order == ScaleOrder::rows && !query.tallies &&
         !query.compact && query.use == detail::RoutingUse::once && !query.payloads;
}
constexpr bool is_timed(const detail::CombineQuery& query) {
  return query.type == DataType::bf16 && (query.ranks > 4 || query.ring) && !query.late;
}

template <class Query>
TimedKernel find(const Query& query, const typename Query::Work& work) {
  TimedKernel kernel;
  with_instance(rows_of<[](const auto& row) { return is_timed(row); }>(detail::MoeFamily::List{}), query,
                [&]<class A>() {
                  kernel = [work](TimedMachine& machine, std::uint32_t block, const detail::Call& call) {
                    TimedTeam team(machine, block);
                    run_with<A>(team, call, work);
                  };
                });
  if (!kernel) throw std::invalid_argument("simulator: no kernel with clocks serves this call");
  return kernel;
}

}  // namespace

TimedKernel find_timed_kernel(const detail::DispatchWork& work, bool ring) {
  return find(detail::DispatchQuery{.type = RowType::bf16,
                                    .cast = ring ? RowCast::none : RowCast::fp8,
                                    .order = ScaleOrder::rows,
                                    .ring = ring,
                                    .rounds = work.rounds.count != 1},
              work);
}
TimedKernel find_timed_kernel(const detail::CombineWork& work, std::uint32_t ranks, bool ring) {
  return find(
      detail::CombineQuery{.type = DataType::bf16, .ranks = ranks, .ring = ring, .rounds = work.rounds.count != 1},
      work);
}

}  // namespace weft::sim
