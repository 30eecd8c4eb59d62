// NCCL's part of a communicator: an NCCL communicator for every group, its collectives, and their outcome.
//
// NCCL's kernels know neither deadline nor poison. So the host watches over the calls that NCCL serves (CallWatch), and
// ends them by revoking Weft's own communicators. It never ends a communicator that an engine has lent: its calls are
// reported, and the engine must end them.
#pragma once

#include <nccl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "fabric/call_watch.hpp"
#include "fabric/fabric.hpp"
#include "rendezvous/deadline.hpp"

namespace weft::detail {

class NcclGroups {
 public:
  struct Args {
    int device, rank;
    std::chrono::nanoseconds deadline;        // of a call
    std::chrono::nanoseconds setup_deadline;  // of every wait of the host
    std::int32_t* zero;                       // on the GPU: the value that barriers add up
    ncclComm_t lent = nullptr;                // an engine's, for group 0
  };
  explicit NcclGroups(const Args& args);
  ~NcclGroups();
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;

  // Collective; with the device current.
  void init(int size, const ncclUniqueId& id);
  void split(int group, int color);
  ncclComm_t at(int group) const { return comms_.at(index_of(group)); }
  // Adds up `count` i32 in place. Throws if that is not done within half of the host's deadline, so that peers that
  // wait for this rank's answer get the reason.
  void try_out(int group, std::int32_t* data, std::size_t count, cudaStream_t stream);

  void call(const NcclCall& call);
  std::optional<HostFault> fault();
  void abort() noexcept;

  // No other thread calls NCCL while the lock lives: for calls on communicators made elsewhere.
  std::unique_lock<std::mutex> alone() { return std::unique_lock(comms_mutex_); }
  // Call it before freeing memory that NCCL's kernels use, or whose release would wait for them. False: calls go on
  // that nothing can end, and everything must stay.
  bool close();
  // Communicators stay when this object is destroyed, because kernels may still use memory registered with them.
  void keep() { stuck_ = true; }

 private:
  static std::size_t index_of(int group) { return static_cast<std::size_t>(group); }
  ncclResult_t settle(ncclComm_t comm, ncclResult_t result, const Deadline& deadline);
  void note(HostFault fault);
  void note_error(ncclComm_t comm, ncclResult_t result, const WatchedCall& call);
  void ask_for_errors();
  void revoke();
  bool revoked();
  CallWatch& watch();

  Args args_;
  std::array<ncclComm_t, kMaxGroups> comms_ = {};  // by group; null if this rank is not in it
  std::mutex comms_mutex_;             // NCCL takes one call at a time on a communicator, questions included
  std::atomic<bool> serves_ = false;   // NCCL serves calls of some group
  std::atomic<bool> aborted_ = false;  // even if NCCL serves none
  std::atomic<bool> ended_ = false;    // no call is made any more
  bool revoked_ = false;               // under comms_mutex_
  bool stuck_ = false;                 // a kernel runs that nothing can end

  std::mutex mutex_;  // guards the fields below
  std::optional<HostFault> fault_;
  std::array<std::uint64_t, kMaxGroups> served_ = {};  // calls, by group
  WatchedCall last_;
  std::unique_ptr<CallWatch> watch_;
};

}  // namespace weft::detail
