#include "base/fingerprint.hpp"
#include "base/nvtx.hpp"
#include "comm/call.hpp"
#include "ops/moves/move_kernels.hpp"

namespace weft {

static void make_barrier(const Group& handle, const BarrierArgs& args) {
  const detail::GroupState& group = handle.state();
  group.communicator().fabric().check_stream(args.stream);
  detail::check_alive(handle, "barrier");
  const detail::CallName name{detail::fingerprint("barrier", args.tag),
                              fmt::format("barrier{} tag {}", detail::carrier(group.direct()), args.tag)};
  if (!group.direct()) return detail::call_nccl(handle, name, args.stream, detail::NcclBarrier{});
  detail::make_call(handle, {.name = name,
                             .bound = detail::find_kernel(detail::BarrierQuery{}).with({}),
                             .blocks = 1,
                             .threads = 128,
                             .stream = args.stream});
}

void barrier(const Group& caller, const BarrierArgs& args) {
  const detail::NvtxRange range("weft::barrier");
  const Group handle = detail::held(caller);
  detail::make_or_tell(handle.state(), args.stream, [&] { make_barrier(handle, args); });
}

}  // namespace weft
