#include "comm/call.hpp"
#include "core/fingerprint.hpp"
#include "core/nvtx.hpp"

namespace weft {

void barrier(const Group& handle, const BarrierArgs& args) {
  const detail::NvtxRange range("weft::barrier");
  const detail::GroupState& group = handle.state();
  group.communicator().fabric().check_stream(args.stream);
  detail::check_alive(handle, "barrier");
  const detail::CallName name{detail::fingerprint("barrier", args.tag),
                              fmt::format("barrier{} tag {}", detail::carrier(group.direct()), args.tag)};
  if (!group.direct()) return detail::call_nccl(handle, name, args.stream, detail::NcclBarrier{});
  detail::make_call(
      handle,
      {.name = name, .operation = detail::BarrierOperation{}, .blocks = 1, .threads = 128, .stream = args.stream});
}

}  // namespace weft
