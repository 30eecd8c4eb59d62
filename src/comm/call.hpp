// The path of a call, the same for every operation. It rejects calls that cannot be made, plans the others, notes them,
// and hands their steps on. A call that succeeds formats no words and takes no memory. NCCL, and the watch over its
// calls (fabric/call_watch.hpp), may.
//
// An operation describes one call of its own by a class (`Op`):
//   static constexpr const char* kRange   "weft::all_reduce": its range in profilers, and behind "weft::" its name
//   void check()                          throws Errc::invalid_argument with the argument's name; sends nothing
//   CallName plan(bool kept)              chooses everything that ranks must choose alike, and the grids. `kept`: the
//                                         call is made later, by replays
//   void each_step(run)                   the plan, a list of steps: run(KernelCall&&) for each of them in order. The
//                                         path fills in its Call and its stream
// An operation that NCCL can carry, for groups whose ranks do not reach each other's memory, adds:
//   bool wants_nccl() const               the caller has chosen NCCL
//   NcclPlan by_nccl()                    throws Errc::unsupported for calls that NCCL cannot make
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/nvtx.hpp"
#include "comm/arguments.hpp"
#include "comm/capture.hpp"
#include "comm/pairs.hpp"
#include "comm/state.hpp"
#include "fabric/nccl_call.hpp"
#include "kernel/kernel.hpp"
#include "weft/launch.hpp"

namespace weft::detail {

// A call's own reference to its group keeps the communicator. exit() may destroy a static communicator while another
// thread waits in a call.
Group held(const Group& caller);

// The part that operations have in common.
class GroupCall {
 public:
  // Other ranks wait for this call, so they are told of its rejection. Local calls need no peers.
  static constexpr bool kPeersWait = true;
  bool peers_wait() const { return true; }  // for a kind of call of which only some are waited for
  // It is one of its group's calls, which come one after the other.
  static constexpr bool kInTurn = true;
  // Added to the error that says that ranks must reach each other's memory.
  static constexpr std::string_view kHint = {};

  // `launch`: the caller's, if the operation has one.
  GroupCall(const Group& caller, Stream stream, const Launch& launch = {})
      : group_(held(caller)), channel_(&group_.state()), stream_(stream), in_pairs_(detail::in_pairs(launch)) {}
  const Group& group() const { return group_; }
  GroupState& channel() const { return *channel_; }
  // It comes behind the group's calls, and those of its channel if that is another one.
  void begin_turn() const {
    group_.state().begin_turn(stream_);
    if (channel_ != &group_.state()) channel_->begin_turn(stream_);
  }
  void end_turn() const {
    group_.state().end_turn(stream_);
    if (channel_ != &group_.state()) channel_->end_turn(stream_);
  }
  Stream stream() const { return stream_; }
  // Whether its blocks start in clusters of two. A step of one block, which helps this rank alone, has no partner.
  bool runs_in_pairs(const KernelCall& step) const { return in_pairs_ && step.blocks % 2 == 0; }
  // As is_kept() says. Asked once, as each question under capture keeps the fabric.
  bool kept() {
    if (!kept_) kept_ = is_kept(group_, stream_);
    return *kept_;
  }

 protected:
  void use_channel(GroupState& channel) { channel_ = &channel; }

 private:
  Group group_;
  GroupState* channel_;
  Stream stream_;
  bool in_pairs_;
  std::optional<bool> kept_;
};

struct NcclPlan {
  CallName name;
  NcclWork work;
};

// Tells the group's other ranks that this one has rejected its next call, which they would wait for. Nothing can be
// told where NCCL serves the group, and while a call is recorded or captured: there they find out by their deadlines.
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

// NCCL divides an average of u8 after the sum has wrapped: Errc::unsupported.
void check_nccl_reduces(DataType type, ReduceOp op);

// Lets NCCL make the call. Ranks do not compare such calls, and NCCL's kernels know no deadline: the fabric watches
// over them.
void call_nccl(const Group& handle, Stream stream, const NcclPlan& plan);
// The part of a call's words in front of its tag.
constexpr std::string_view carrier(bool direct) {
  return direct ? "" : " nccl";
}

constexpr const char* operation_in(const char* range) {
  return range + std::string_view("weft::").size();
}
template <class Op>
constexpr const char* name_of_operation() {
  return operation_in(Op::kRange);
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
    const CallName name = op.plan(op.kept());
    channel.remember(name);
    const bool in_turn = Op::kInTurn && !op.kept();  // a capture may not wait for what is outside it
    if (in_turn) op.begin_turn();
    const Call call = channel.call(name.fingerprint);
    op.each_step([&](KernelCall&& step) {
      step.call = call;
      step.stream = op.stream();
      step.in_pairs = op.runs_in_pairs(step);
      run_held(op.group(), step);
    });
    if (in_turn) op.end_turn();
  };
  if constexpr (!Op::kPeersWait) {
    make();
  } else {
    try {
      make();
    } catch (const Error& error) {
      // A call that failed has a record, which says why.
      if (error.fault().rank < 0 && op.peers_wait()) tell_rejection(channel, op.stream(), error);
      throw;
    }
  }
}

}  // namespace weft::detail
