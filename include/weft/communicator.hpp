// Communicators and groups: which ranks take part, which memory they share, and how a caller sees a failure.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/config.hpp"
#include "weft/error.hpp"
#include "weft/types.hpp"
#include "weft/unique_id.hpp"

namespace weft {

namespace detail {
class CommunicatorState;
class GroupState;
}  // namespace detail

// Names a file of NCCL for this process. It is taken when the first GPU rank is made, if the process has no copy then
// and the variable WEFT_NCCL is not set. Without either, it is the system's. Thread-safe.
void use_nccl(const std::string& file);

// Memory that a communicator holds, in bytes, on each rank.
struct MemoryUse {
  std::size_t window = 0;   // that peers write to, with exchanges and SymmetricMemory (freed by release())
  std::size_t control = 0;  // epochs, peer table and fault record (kept until destruction)
};

// One past call, from the flight recorder. Replays of captured graphs are not in it, because the host does not see
// them.
struct CallRecord {
  std::uint64_t number = 0;  // of the calls that this rank's host made on the group, from 0
  std::string operation;
  std::chrono::system_clock::time_point time;
};

// Ranks that make collective calls together: all of a communicator, or a part made by split().
//
// Copying a Group copies a reference; the communicator lives until the last reference is gone. A call holds a reference
// of its own, so exit() may destroy a static communicator while a thread waits in a call on it. Thread safety: calls on
// one group come from one thread at a time and in the same order on every rank. Different groups may be used from
// different threads. status() and abort() may be called from any thread at any time.
class Group {
 public:
  Group() = default;
  explicit Group(std::shared_ptr<detail::GroupState> state) : state_(std::move(state)) {}

  int rank() const;                      // this rank's place in the group, 0 … size() − 1
  int size() const;                      // number of ranks
  std::span<const int> members() const;  // world rank of each member, ascending
  Device device() const;
  int cuda_device() const;  // number of this rank's GPU; −1 on CPU ranks
  // The tuning table that serves the group's all-reduces; if it was not made for these very ranks, also the reason for
  // it: "NVIDIA H200, 4 ranks (measured)", "NVIDIA H200, 8 ranks (extrapolated), as there is no table for NVIDIA B200,
  // 8 ranks". Norms, gathers, scatters and crossings that have a table of their own follow: "…; norms: NVIDIA H200, 4
  // ranks (measured)". Norms without one use it, too. The same on every rank of the group.
  std::string tuning() const;

  // The first fault seen by this rank, without waiting for anything; empty while all is well. On GPUs an enqueued call
  // that has not run yet cannot have failed yet: after a synchronised stream the answer is final. A rank that makes no
  // call still sees two things. The process of a peer on its host is gone without destroying its communicator; or, on
  // CPU ranks, a peer has ended the communicator. A replay of a graph or recording whose memory is gone is reported
  // here, as Errc::released, until acquire(). It ends nothing, and other calls go on.
  std::optional<Fault> status() const;
  // Throws Error with the fault when status() is not empty. The message ends with the flight recorder: the last calls
  // of the group that failed, which may be another group; for an exchange, its dispatches and combines. Only faults,
  // and calls while the memory is released, have this record. A call rejected otherwise, or a failure to make or change
  // a communicator, was never a call.
  void check() const;
  // The last calls made on this group, oldest first (at most 32).
  std::vector<CallRecord> recent_calls() const;

  // For code between Weft and its user, such as a binding, that refuses a call before Weft has seen it. The ranks that
  // wait in the call are told, as if Weft had rejected it: they end with Errc::mismatch and the reason. The next call
  // works if all ranks have refused alike. It fails silently where Weft tells nothing either (weft/error.hpp). GPU: it
  // enqueues a small kernel on `stream`. Counts as a call for thread safety.
  void refuse(std::string_view reason, Stream stream = nullptr) const noexcept;

  detail::GroupState& state() const;

 private:
  std::shared_ptr<detail::GroupState> state_;
};

// A set of ranks with symmetric memory. Creation is collective: all ranks must call every function that makes or
// changes a communicator. It either succeeds on all ranks, or throws on all of them, with the reason, within the
// rendezvous deadline. Destruction is local. It waits for this rank's calls on the GPU, which end by the deadline. It
// waits for NCCL to give back its own part here (ncclCommDestroy). It does not wait for peers to do the same.
//
// A child that fork() makes is no rank, and inherits no windows. Every call on its copy of a communicator, or of an
// object made with one, throws Errc::unsupported before it touches anything. This includes rank() and status(); abort()
// does nothing. The child may destroy its copies, which tells no rank and frees nothing of its parent's. It may make
// communicators of its own (on GPUs only after exec, as CUDA does not survive a fork).
class Communicator {
 public:
  // From the environment of a launcher: torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), mpirun
  // (OMPI_COMM_WORLD_*, PMI_*), srun (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, …); a world of one if none is set.
  // WEFT_RENDEZVOUS=host:port overrides the meeting point; mpirun over several hosts gives none. A variable that is
  // missing or outside its range is Errc::rendezvous. No environment variable is ever set.
  //
  // Ranks prove to each other that they know a secret. It is WEFT_SECRET, 16 … 4096 characters that are the same for
  // all ranks. Else it is Open MPI's key for its jobs. Else, if ranks meet on a loopback address, it is a key file of
  // this user's, which the first rank makes: $XDG_RUNTIME_DIR/weft/key or /tmp/weft-<uid>/key. Without any it is
  // Errc::rendezvous. Thread-safe for different Config::name.
  static Communicator from_environment(const Config& config = {});

  // From an id that the caller distributed. Blocks until all `world_size` ranks, 72 at most, have called. An impossible
  // rank or size is Errc::invalid_argument at once, and leaves the id as it was.
  static Communicator from_id(const UniqueId& id, int rank, int world_size, const Config& config = {});

  // From an engine's NCCL communicator, which stays the engine's and must outlive this one: Weft never aborts it. Two
  // small ncclAllGather on it exchange the ranks' meeting point. If a rank has not called by the rendezvous deadline,
  // they are left waiting on the engine's communicator, which is then useless for anything else. Errc::unsupported: the
  // process has several copies of NCCL, and the variable WEFT_NCCL does not name the communicator's.
  static Communicator from_nccl(ncclComm* nccl, const Config& config = {});

  // `world_size` ranks, 1 … 72 (else Errc::invalid_argument), as threads of this process. Element i is rank i; use it
  // from one thread of its own. On GPUs, rank i drives device i. Several ranks share a device if there are fewer
  // devices than ranks; do this in tests alone.
  static std::vector<Communicator> local(int world_size, const Config& config = {});

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int rank() const { return world().rank(); }
  int size() const { return world().size(); }
  Device device() const { return world().device(); }
  const Group& world() const { return world_; }
  operator const Group&() const { return world(); }

  // Splits the world into groups that work side by side. Ranks with the same `color` (≥ 0) form one, ordered by world
  // rank. A rank with color −1 takes part in the call and in no group (an empty Group is returned). Collective over all
  // ranks. No call of any group may be made while it runs. Throws Errc::invalid_argument for a color below −1, or when
  // Config::max_groups splits exist already; Errc::released while the memory is released. Groups share the GPU: from
  // then on a call of any group, or of the world, takes no more than its part of the blocks. Split before graphs are
  // captured.
  Group split(int color);

  // release() frees the window (engines that sleep), with exchanges' and SymmetricMemory's; acquire() takes them again.
  // Collective; no call of any group may be made while either runs. Calls and graphs on the GPU's queues are finished
  // first: like any freeing of GPU memory, release() waits for everything there, including work that Weft did not
  // enqueue. If the GPU has not come to rest by half of the rendezvous deadline, it throws Errc::timeout, and nothing
  // has happened. On the other ranks it throws Errc::rendezvous. Captures of other threads go on, except those of
  // global mode. release() of released memory is Errc::released; acquire() of memory that is not released is
  // Errc::invalid_argument.
  //
  // Graphs captured before stay valid if the window comes back to the same addresses. NCCL gives the same addresses if
  // nothing else was registered meanwhile. Otherwise their replays end at once with Errc::released; capture them anew.
  // A call between the two is rejected with Errc::released. A graph replayed between them ends at once with the same
  // code in status(). Callers must not replay a graph that reads SymmetricMemory between them: that memory is gone,
  // like any freed memory. If a rank has too little memory left, acquire() throws on every rank, the memory stays
  // released, and acquire() may be called again.
  void release();
  void acquire();

  // Ends every current and later operation of every rank with Errc::aborted. Callable from any thread. It waits for no
  // rank. On GPUs it returns when its kernel has told all ranks' GPUs, or after a second.
  //
  // If NCCL serves a group, its calls end on this rank, with those enqueued directly behind them. Calls on an engine's
  // communicator (from_nccl) are the exception: the engine must end them. Other ranks see a rank that does not answer,
  // and end by their deadlines. Graphs that hold calls of NCCL's must not be replayed after a fault.
  void abort() noexcept;

  std::optional<Fault> status() const { return world().status(); }
  void check() const { world().check(); }
  MemoryUse memory() const;
  // The path that carries data between ranks, and the reason: "shared memory, 4 CPU ranks", "peer memory, 4 × NVIDIA
  // H200", "NCCL: only 2 of 4 ranks share an NVLink domain with rank 0 (NVIDIA H200)", "NCCL: ranks 0 and 1 are linked
  // by PCIe, not NVLink (2 × NVIDIA L40S)".
  std::string fabric() const;
  // Whether the multimem algorithms can be used, and any known obstacle: "bound to the window", "not asked for
  // (Config::multicast); GPU 0 (…) does not support it". Obstacles are those that the driver reports for the GPU; a
  // machine may forbid multimem all the same.
  std::string multicast() const;
  std::string tuning() const { return world().tuning(); }

 private:
  explicit Communicator(std::shared_ptr<detail::CommunicatorState> state);
  std::shared_ptr<detail::CommunicatorState> state_;
  Group world_;
};

}  // namespace weft
