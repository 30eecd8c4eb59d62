// Communicators and groups: who takes part, which memory they share, and how a failure is seen.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/error.hpp"
#include "weft/types.hpp"

namespace weft {

namespace detail {
class CommunicatorState;
class GroupState;
}  // namespace detail

// Options of a communicator. All ranks must pass the same values, but for those that are marked, and tuning_file; a
// difference is found at creation (Errc::rendezvous).
struct Config {
  Device device = Device::automatic;  // automatic: CUDA where this build and this machine can, else CPU
  // Each rank's own, 0 … number of GPUs − 1. −1: LOCAL_RANK (from_environment) or the rank (local), modulo the number
  // of GPUs; else the current device.
  int cuda_device = -1;

  // How long one wait inside an operation may last before the call fails with Errc::timeout. 0: for ever. Held in
  // device memory, so that it also holds for captured graphs; a wait of a tenth of it is logged as a warning. For calls
  // that NCCL serves it is the time from the call's begin on the GPU to its end, and replays of graphs have none.
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
  // Each rank's own: how long creation, split, acquire and every other host-side meeting may take. 0: for ever.
  std::chrono::nanoseconds rendezvous_deadline = std::chrono::seconds(60);

  // Largest message that the one-shot and the two-shot algorithm take in one piece, up to 2^40 bytes; larger ones go in
  // several. They decide the memory taken: `weft info` prints it. 0: on GPUs 8 MiB among up to two ranks, 1 MiB among
  // up to four, else 512 KiB, and 16 MiB; on CPU ranks 64 KiB and 1 MiB. CPU ranks whose windows are more than their
  // machine, or the control group that they share, has left are Errc::system before any of it is touched.
  std::size_t one_shot_bytes = 0;
  std::size_t two_shot_bytes = 0;
  // Calls of split(), 0 … 63, and the two limits above for each group. Limits of 0: on GPUs 512 KiB and 4 MiB; on CPU
  // ranks the world's defaults.
  int max_groups = 4;
  std::size_t group_one_shot_bytes = 0;
  std::size_t group_two_shot_bytes = 0;

  // For Algorithm::multimem_one_shot and _two_shot alone: bind the window to a multicast object of NVLink's switches
  // (NCCL does it), and take buffers for them, three times two_shot_bytes. Without it no multicast object is ever made
  // on Weft's behalf. Where GPUs, NCCL or the NVLink domain cannot, creation fails with Errc::unsupported and the
  // reason; Communicator::multicast() tells it beforehand.
  bool multicast = false;

  // A file of tuning tables that `weft tune` wrote: which algorithm and grid serve an all-reduce of a size. Rank 0's is
  // read and used by all ranks; empty: the tables that are compiled in. A file that is no such table, or has a value
  // outside its range, is Errc::invalid_argument at creation, with its name, the key, the value and the range; on ranks
  // other than 0 Errc::rendezvous, with the same words.
  std::string tuning_file = {};

  // What ranks that create several communicators know this one by: up to 64 bytes without control characters (else
  // Errc::invalid_argument). Ranks meet those of the same name alone: communicators that a process creates from the
  // environment in several threads at a time need different ones, and a second creation under a name in use, or under
  // none, is Errc::invalid_argument at once. Those of one name are told apart by their order, which must be the same on
  // every rank. Ranks with one id (from_id, from_nccl) and different names are Errc::rendezvous.
  std::string name = {};
};

// What a caller distributes so that ranks find each other: made in the process of rank 0, passed unchanged to all. It
// is a secret: it holds a random key of 32 bytes, and who has it can take part (docs/reliability.md, "Trust model").
struct UniqueId {
  std::array<std::byte, 128> bytes{};

  // Makes an id whose rendezvous is served by the calling process at `host` (a name or address that every rank can
  // reach), of up to 87 characters (else Errc::invalid_argument). Throws Errc::system when no port can be opened.
  // Thread-safe.
  //
  // It listens from then on, at that address alone, until rank 0 has used the id. An id that is never used stays open
  // until its process has made 128 more; the oldest is then good for nothing any more (Errc::rendezvous).
  static UniqueId create(const std::string& host = "127.0.0.1");
};

// Memory that a communicator holds, in bytes, on each rank.
struct MemoryUse {
  std::size_t window = 0;   // that peers write to, of exchanges and SymmetricMemory, too (freed by release())
  std::size_t control = 0;  // epochs, peer table and fault record (kept until destruction)
};

// One past call, from the flight recorder. Replays of captured graphs are not in it: the host does not see them.
struct CallRecord {
  std::uint64_t number = 0;  // of the calls that this rank's host made on the group, from 0
  std::string operation;
  std::chrono::system_clock::time_point time;
};

// Ranks that make collective calls together: all of a communicator, or a part made by split().
//
// Copying a Group copies a reference; the communicator lives until the last one is gone. A call has one of its own: so
// exit() may destroy a static communicator while a thread waits in a call of it. Thread safety: calls on one
// group come from one thread at a time and in the same order on every rank; different groups may be used from different
// threads. status() and abort() may be called from any thread at any time.
class Group {
 public:
  Group() = default;
  explicit Group(std::shared_ptr<detail::GroupState> state) : state_(std::move(state)) {}

  int rank() const;                      // this rank's place in the group, 0 … size() − 1
  int size() const;                      // number of ranks
  std::span<const int> members() const;  // world rank of each member, ascending
  Device device() const;
  // The tuning table that serves the group's all-reduces, and why that one where it is not for these very ranks:
  // "NVIDIA H200, 4 ranks (measured)", "NVIDIA H200, 8 ranks (extrapolated), as there is no table for NVIDIA B200, 8
  // ranks". The same on every rank of the group.
  std::string tuning() const;

  // The first fault seen by this rank, without waiting for anything; empty while all is well. On GPUs a call that was
  // enqueued and has not run yet cannot have failed yet: after a synchronised stream the answer is final. A rank that
  // makes no call sees that the process of a peer is gone which has not destroyed its communicator (ranks of one host),
  // and on CPU ranks also that a peer has ended the communicator. A replay of a graph or recording whose memory is gone
  // is told here, as Errc::released, until acquire(); it ends nothing, and other calls go on.
  std::optional<Fault> status() const;
  // Throws Error with the fault when status() is not empty. The message ends with the flight recorder: the last calls
  // of the group that failed, which need not be this one; of an exchange, its dispatches and combines. Only faults have
  // that, and calls that come while the memory is released: what is rejected otherwise, or fails while a communicator
  // is made or changed, was never a call.
  void check() const;
  // The last calls made on this group, oldest first (at most 32).
  std::vector<CallRecord> recent_calls() const;

  detail::GroupState& state() const;

 private:
  std::shared_ptr<detail::GroupState> state_;
};

// A set of ranks with symmetric memory. Creation is collective: every function that makes or changes a communicator
// must be called by all its ranks, and either succeeds on all of them or throws on all of them, with the reason, within
// the rendezvous deadline. Destruction is local: it waits for this rank's calls on the GPU, which end by the deadline,
// and for NCCL to give back what it holds here (ncclCommDestroy), not for peers to do the same.
//
// A child that fork() makes is no rank, and inherits no windows. Every call on its copy of a communicator, or of what
// was made with one, throws Errc::unsupported before it touches anything, rank() and status() included; abort() does
// nothing. The child may destroy its copies, which tells nobody and frees nothing of its parent's, and may make
// communicators of its own (on GPUs only after exec, as CUDA does not survive a fork).
class Communicator {
 public:
  // From the environment of a launcher: torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), mpirun
  // (OMPI_COMM_WORLD_*, PMI_*), srun (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, …); a world of one where none is set.
  // WEFT_RENDEZVOUS=host:port overrides the meeting point, which mpirun over several hosts does not give. A variable
  // that is missing or outside its range is Errc::rendezvous. No environment variable is ever set.
  //
  // Ranks prove to each other that they know a secret: WEFT_SECRET, 16 … 4096 characters that are the same for all
  // ranks; else Open MPI's key for its jobs; else, where they meet on a loopback address, a key file of this user's
  // ($XDG_RUNTIME_DIR/weft/key or /tmp/weft-<uid>/key), which the first one makes. Without any it is Errc::rendezvous.
  // Thread-safe for different Config::name.
  static Communicator from_environment(const Config& config = {});

  // From an id that the caller distributed. Blocks until all `world_size` ranks, 72 at most, have called. A rank or a
  // size that cannot be is Errc::invalid_argument at once, and leaves the id as it was.
  static Communicator from_id(const UniqueId& id, int rank, int world_size, const Config& config = {});

  // From an engine's NCCL communicator, which stays the engine's and must outlive this one: it is never aborted. Two
  // small ncclAllGather on it exchange where the ranks meet. Where they are not done by the rendezvous deadline, as a
  // rank has not called, they are left to wait on the engine's communicator, which is then good for nothing else.
  static Communicator from_nccl(ncclComm* nccl, const Config& config = {});

  // `world_size` ranks, 1 … 72 (else Errc::invalid_argument), as threads of this process. Element i is rank i and is to
  // be used by one thread of its own; on GPUs, rank i drives device i (several ranks share a device where there are
  // fewer devices than ranks, which is good for tests and for nothing else).
  static std::vector<Communicator> local(int world_size, const Config& config = {});

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int rank() const { return world().rank(); }
  int size() const { return world().size(); }
  Device device() const { return world().device(); }
  const Group& world() const { return world_; }
  operator const Group&() const { return world(); }

  // Splits the world into groups that work side by side: ranks with the same `color` (≥ 0) form one, ordered by world
  // rank; color −1 takes part in the call and in no group (an empty Group is returned). Collective over all ranks.
  // No call of any group may be made while it runs. Throws Errc::invalid_argument for a color below −1, or when
  // Config::max_groups splits exist already, Errc::released while the memory is released. Groups share the GPU: from
  // then on a call of any, or of the world, takes no more than its part of the blocks. Split before graphs are
  // captured.
  Group split(int color);

  // Frees the window (engines that sleep), those of exchanges and SymmetricMemory, and takes them again. Collective,
  // and no call of any group may be made while either runs. Calls and graphs that are on the GPU's queues are finished
  // first: release() waits for all that is there, whosever it is, as freeing memory of a GPU does. Where the GPU has
  // not come to rest by half of the rendezvous deadline, it throws Errc::timeout (on the other ranks Errc::rendezvous),
  // and nothing has happened. Captures of other threads go on, but for those of global mode. What is released already
  // is Errc::released, and what is not, acquire()'s Errc::invalid_argument. Graphs captured before stay valid when the
  // window comes back to the same addresses, which is what NCCL does when nothing else was registered meanwhile; else
  // their replays end at once with Errc::released, and must be captured anew. A call between the two is rejected with
  // Errc::released; a graph replayed between them ends at once with the same code in status(), unless what it reads
  // lies in SymmetricMemory, which is gone: that is no more allowed than it is with any memory that was freed. Where a
  // rank has too little memory left, acquire() throws on every rank, the memory stays released, and acquire() may be
  // called again.
  void release();
  void acquire();

  // Ends every current and later operation of every rank with Errc::aborted. Callable from any thread; waits for
  // nothing.
  //
  // Where NCCL serves a group: on this rank its calls end, with those enqueued directly behind them, but for those on
  // an engine's communicator (from_nccl), which are the engine's to end. Other ranks see a rank that does not answer,
  // and end by their deadlines. Graphs that hold calls of NCCL's must not be replayed after a fault.
  void abort() noexcept;

  std::optional<Fault> status() const { return world().status(); }
  void check() const { world().check(); }
  MemoryUse memory() const;
  // What carries data between ranks and why: "shared memory, 4 CPU ranks", "peer memory, 4 × NVIDIA H200", "NCCL: only
  // 2 of 4 ranks share an NVLink domain with rank 0 (NVIDIA H200)", "NCCL: ranks 0 and 1 are linked by PCIe, not NVLink
  // (2 × NVIDIA L40S)".
  std::string fabric() const;
  // Whether the multimem algorithms can be used, and what is known against it: "bound to the window", "not asked for
  // (Config::multicast); GPU 0 (…) does not support it". That nothing is known against it is what the driver says of
  // the GPU: a machine may still forbid it.
  std::string multicast() const;
  std::string tuning() const { return world().tuning(); }

 private:
  explicit Communicator(std::shared_ptr<detail::CommunicatorState> state);
  std::shared_ptr<detail::CommunicatorState> state_;
  Group world_;
};

}  // namespace weft
