#include "comm/call.hpp"

#include <fmt/format.h>

#include "comm/rejection_kernels.hpp"

namespace weft::detail {

Group held(const Group& caller) {
  return caller;
}

std::string last_calls(std::string_view whose, const std::vector<CallRecord>& calls) {
  std::string text = fmt::format("\nlast calls of this rank on {}:", whose);
  // A run of equal calls takes one line.
  for (std::size_t begin = 0, end = 0; begin < calls.size(); begin = end) {
    while (end < calls.size() && calls[end].operation == calls[begin].operation &&
           calls[end].number == calls[begin].number + (end - begin))
      ++end;
    text += end - begin == 1 ? fmt::format("\n  {} {}", calls[begin].number, calls[begin].operation)
                             : fmt::format("\n  {} … {} {} (× {})", calls[begin].number, calls[end - 1].number,
                                           calls[begin].operation, end - begin);
  }
  return text;
}

void tell_rejection(GroupState& group, Stream stream, const Error& error) noexcept try {
  const CommunicatorState& communicator = group.communicator();
  communicator.check_process();  // a child of fork() tells its peers nothing
  Fabric& fabric = communicator.fabric();
  if (group.size() == 1 || !group.direct() || communicator.released() || Capture::current() != nullptr) return;
  fabric.check_stream(stream);
  if (fabric.keep_alive(stream, communicator.shared_fabric())) return;
  const std::string_view reason = error.what();
  const KernelFor<NoWork> kernel = find_kernel(RejectionQuery{});
  const std::string words = fmt::format("a call that it rejected ({})", reason.substr(0, reason.find('\n')));
  communicator.board().note_anew(static_cast<std::uint32_t>(group.id()), {kRejectedCall, CallWords(words)});
  group.begin_turn(stream);
  static_cast<void>(fabric.run({.call = group.call(kRejectedCall),
                                .bound = kernel.with({}),
                                .blocks = 1,
                                .threads = kernel.kernel->most_threads,
                                .stream = stream}));
  group.note_rejection(stream);
} catch (const std::exception&) {
  // This rank's own error is already on its way to the caller.
}

void check_alive(const Group& group, const GroupState& channel, const char* operation) {
  if (channel.communicator().released()) {
    throw Error(Errc::released, fmt::format("{}: the communicator's memory is released; call acquire() first{}",
                                            operation, last_calls("this group", channel.recent_calls())));
  }
  check_not_ended(group);
}

void check_not_ended(const Group& handle) {
  handle.state().communicator().check_ending(handle.state());
}

void check_direct(const GroupState& group, const char* operation, std::string_view hint) {
  if (group.direct()) return;
  throw Error(Errc::unsupported, fmt::format("{}: needs ranks that reach each other's memory, and these do not ({}){}",
                                             operation, group.communicator().fabric().description(), hint));
}

void check_side_by_side(const GroupState& group, const char* operation, const Extent& extent) {
  if (extent.rows <= 1 || extent.row_bytes == 0 || extent.stride == extent.row_bytes) return;
  throw Error(Errc::unsupported,
              fmt::format("{}: {}_stride: {} bytes from row to row are not the {} of a row: rows must lie side by side "
                          "where NCCL moves them, as here ({})",
                          operation, extent.name, extent.stride, extent.row_bytes,
                          group.communicator().fabric().description()));
}

void check_nccl_reduces(DataType type, ReduceOp op) {
  if (type != DataType::u8 || op != ReduceOp::avg) return;
  throw Error(Errc::unsupported,
              "op: avg of u8 is not what NCCL makes, which divides the sum modulo 2^8; take sum, max or min");
}

void call_nccl(const Group& handle, Stream stream, const NcclPlan& plan) {
  GroupState& group = handle.state();
  const std::shared_ptr<Fabric>& fabric = group.communicator().shared_fabric();
  with_history(group, [&] {
    const bool captured = fabric->keep_alive(stream, fabric);
    if (!captured) group.begin_turn(stream);
    fabric->call_nccl({.group = group.id(), .words = plan.name.words, .stream = stream, .work = plan.work});
    if (!captured) group.end_turn(stream);
  });
  // Only now: before, the call could have been rejected.
  group.remember(plan.name);
  check_not_ended(handle);
}

}  // namespace weft::detail
