#include "comm/call.hpp"
#include "core/fingerprint.hpp"
#include "core/nvtx.hpp"

namespace weft {

void barrier(const Group& handle, const BarrierArgs& args) {
  const detail::NvtxRange range("weft::barrier");
  handle.state().communicator().fabric().check_stream(args.stream);
  detail::check_ready(handle, "barrier");
  detail::make_call(handle,
                    {.name = {detail::fingerprint("barrier", args.tag), fmt::format("barrier tag {}", args.tag)},
                     .operation = detail::BarrierOperation{},
                     .blocks = 1,
                     .threads = 128,
                     .stream = args.stream});
}

}  // namespace weft
