#include "sim/move_kernels.hpp"

#include "core/dispatch_moves.hpp"

namespace weft::sim {
namespace {

template <int unit>
struct Find {
  bool one_thread;

  template <class Shares, std::uint32_t most_tensors>
  Kernel operator()(const detail::CopyOperation<Shares, most_tensors>& op) const {
    return kernel_of<detail::PushCopy<Shares, false, most_tensors>, unit>(op.work, one_thread);
  }
  template <class Shares>
  Kernel operator()(const detail::ReduceScatterOperation<Shares>& op) const {
    return op.instance.type == DataType::i32 ? sum<Shares, DataType::i32>(op) : sum<Shares, DataType::bf16>(op);
  }
  template <class Shares, DataType type>
  Kernel sum(const detail::ReduceScatterOperation<Shares>& op) const {
    return kernel_of<detail::PushReduceScatter<Shares, type, ReduceOp::sum, 0, false>, unit>(op.work, one_thread);
  }
  Kernel operator()(const detail::BarrierOperation&) const { return kernel_of<detail::Barrier, unit>({}, one_thread); }
};

}  // namespace

Kernel find_move_kernel(const detail::MoveOperation& operation, int atomic_bytes, bool one_thread) {
  if (atomic_bytes == 16) return std::visit(Find<16>{one_thread}, operation);
  return std::visit(Find<8>{one_thread}, operation);
}

}  // namespace weft::sim
