// The path of a call, the same for every operation. It rejects impossible calls, decides how the call is made, notes
// it, and hands on its steps. A call that succeeds formats no words and takes no memory.
//
// Each operation describes one call of its own (`Op`):
//   static constexpr const char* kRange   "weft::all_reduce": its range in profilers, and behind "weft::" its name
//   void check()                          throws Errc::invalid_argument with the argument's name; sends nothing
//   CallName plan(bool kept)              chooses everything that ranks must choose alike, and the grids. `kept`: the
//                                         call is made later, by replays
//   bool kept()                           optional: the answer, if check() has asked for it already
//   void each_step(run)                   the plan, a list of steps: run(KernelCall&&) for each of them in order, with
//                                         all but its Call, which the path fills in
// An operation that NCCL can carry, for groups whose ranks do not reach each other's memory, adds:
//   bool wants_nccl() const               the caller has chosen NCCL
//   NcclPlan by_nccl()                    throws Errc::unsupported for calls that NCCL cannot make
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/nvtx.hpp"
#include "comm/arguments.hpp"
#include "comm/capture.hpp"
#include "comm/state.hpp"
#include "fabric/nccl_call.hpp"
#include "kernel/kernel.hpp"
#include "weft/collectives.hpp"

namespace weft::detail {

// A call's own reference to its group, which keeps the communicator. For another thread's exit() destroys a static
// communicator while a call on it waits.
Group held(const Group& caller);

// The common part of operations.
class GroupCall {
 public:
  // Other ranks wait for this call, so they are told of its rejection. Local calls need no peers.
  static constexpr bool kPeersWait = true;
  // Added to the error that says that ranks must reach each other's memory.
  static constexpr std::string_view kHint = {};

  GroupCall(const Group& caller, Stream stream) : group_(held(caller)), channel_(&group_.state()), stream_(stream) {}
  const Group& group() const { return group_; }
  GroupState& channel() const { return *channel_; }
  Stream stream() const { return stream_; }

 private:
  Group group_;
  GroupState* channel_;
  Stream stream_;
};

struct NcclPlan {
  CallName name;
  NcclWork work;
};

// Tells the group's other ranks that this one has rejected their next call. If NCCL serves the group, or if a call is
// recorded or captured, nothing can be told: they find out by their deadlines.
void tell_rejection(GroupState& group, Stream stream, const Error& error) noexcept;

// "\nlast calls of this rank on this group:", and a line for each: the end of an error's message.
std::string last_calls(std::string_view whose, const std::vector<CallRecord>& calls);
// Launches something; if that fails, the error lists this rank's last calls. Faults that kernels find are on record.
template <class LaunchIt>
void with_history(const GroupState& group, LaunchIt launch) {
  try {
    launch();
  } catch (const Error& error) {
    if (error.code() != Errc::system) throw;
    throw Error(error.fault(), error.what() + last_calls("this group", group.recent_calls()));
  }
}

// Throws Errc::released, with the channel's last calls, if the communicator's memory is released; else the fault that
// has ended the communicator, if any.
void check_alive(const Group& group, const GroupState& channel, const char* operation);
void check_not_ended(const Group& handle);
// Throws Errc::unsupported if ranks do not reach each other's memory.
void check_direct(const GroupState& group, const char* operation, std::string_view hint);
// For a call that NCCL would carry: NCCL knows no rows, so it throws if they do not lie side by side.
void check_side_by_side(const GroupState& group, const char* operation, const Extent& extent);

// Lets NCCL make the call. Ranks do not compare such calls, and NCCL's kernels know no deadline: the fabric watches
// over them.
void call_nccl(const Group& handle, Stream stream, const NcclPlan& plan);
// The part of a call's words in front of its tag.
constexpr std::string_view carrier(bool direct) {
  return direct ? "" : " nccl";
}

template <class Op>
constexpr const char* name_of_operation() {
  return Op::kRange + std::string_view("weft::").size();
}

// Makes the call. CPU ranks: throws its fault.
template <class Op>
void make_call(Op& op) {
  const NvtxRange range(Op::kRange);
  GroupState& channel = op.channel();
  const auto make = [&] {
    op.check();
    check_alive(op.group(), channel, name_of_operation<Op>());
    if constexpr (requires { op.by_nccl(); }) {
      if (!channel.direct() || op.wants_nccl()) return call_nccl(op.group(), op.stream(), op.by_nccl());
    } else if constexpr (Op::kPeersWait) {
      check_direct(channel, name_of_operation<Op>(), Op::kHint);
    }
    bool kept = false;
    if constexpr (requires { op.kept(); }) {
      kept = op.kept();
    } else {
      kept = is_kept(op.group(), op.stream());
    }
    const CallName name = op.plan(kept);
    channel.remember(name);
    const Call call = channel.call(name.fingerprint);
    op.each_step([&](KernelCall&& step) {
      step.call = call;
      run_held(op.group(), step);
    });
  };
  if constexpr (!Op::kPeersWait) {
    make();
  } else {
    try {
      make();
    } catch (const Error& error) {
      if (error.fault().rank < 0) tell_rejection(channel, op.stream(), error);  // else it failed: the record says why
      throw;
    }
  }
}

}  // namespace weft::detail
