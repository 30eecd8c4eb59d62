#include "sim/move_kernels.hpp"

#include "core/dispatch_moves.hpp"
#include "sim/run.hpp"

namespace weft::sim {
namespace {

template <class A, int unit>
MoveKernel kernel_of(const typename A::Work& work, bool one_thread) {
  const auto run = one_thread ? &run_rank<A, unit> : &run_thread<A, unit>;
  return [run, work](Machine& machine, Place place, const detail::Call& call) { run(machine, place, call, work); };
}

template <int unit>
struct Find {
  bool one_thread;

  template <class Shares, std::uint32_t most_tensors>
  MoveKernel operator()(const detail::CopyOperation<Shares, most_tensors>& op) const {
    return kernel_of<detail::PushCopy<Shares, false, most_tensors>, unit>(op.work, one_thread);
  }
  template <class Shares>
  MoveKernel operator()(const detail::ReduceScatterOperation<Shares>& op) const {
    return op.instance.type == DataType::i32 ? sum<Shares, DataType::i32>(op) : sum<Shares, DataType::bf16>(op);
  }
  template <class Shares, DataType type>
  MoveKernel sum(const detail::ReduceScatterOperation<Shares>& op) const {
    return kernel_of<detail::PushReduceScatter<Shares, type, ReduceOp::sum, 0, false>, unit>(op.work, one_thread);
  }
  MoveKernel operator()(const detail::BarrierOperation&) const {
    return kernel_of<detail::Barrier, unit>({}, one_thread);
  }
};

}  // namespace

MoveKernel find_move_kernel(const detail::MoveOperation& operation, int atomic_bytes, bool one_thread) {
  if (atomic_bytes == 16) return std::visit(Find<16>{one_thread}, operation);
  return std::visit(Find<8>{one_thread}, operation);
}

}  // namespace weft::sim
