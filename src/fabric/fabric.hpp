// The difference between CPU ranks and GPU ranks: the place of memory, the way to it, and the way to run an operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/nccl_call.hpp"
#include "kernel/executor.hpp"
#include "protocol/channel.hpp"
#include "rendezvous/bootstrap.hpp"
#include "tuning/tuning.hpp"
#include "weft/config.hpp"
#include "weft/error.hpp"

namespace weft::detail {

inline constexpr int kMaxGroups = 64;  // of one communicator, the world included
inline constexpr int kMailChannel = kMaxGroups, kMaxChannels = kMaxGroups + 1;

// Memory that this rank's operations use besides windows. Its address stays until the last captured graph is gone.
struct Control {
  Channel* channels;     // [kMaxChannels]
  LocalState* locals;    // [kMaxChannels]
  HostNumbers* numbers;  // [kMaxGroups]
  std::uint32_t* claim;  // [kFaultKinds]
  const std::uint32_t* abort;
  FaultRecord* record;  // [kFaultKinds]
};

// A fault that the host saw, in a call whose kernels are not Weft's.
struct HostFault {
  Errc code = Errc::ok;
  int group = 0;
  std::uint64_t call = 0;  // among those that NCCL served for the group, from 1; 0: none
  std::string operation = {};
  std::string reason = {};  // NCCL's words, if it gave a reason
};

// One rank's side of the fabric. All ranks call the functions marked collective, in the same order.
class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual Device device() const = 0;
  virtual int cuda_device() const { return -1; }  // the number of this rank's GPU
  virtual std::string description() const = 0;
  // The processor whose tuning tables are used.
  virtual Processor processor() const { return {.name = std::string(kCpuProcessor)}; }
  virtual int max_blocks() const = 0;                             // of one launch, which all run at once
  virtual int max_paired_blocks() const { return max_blocks(); }  // of one in clusters of two: an even number
  virtual std::size_t control_bytes() const = 0;
  virtual Control control() const = 0;  // as operations see it

  // Collective. Opens window `number`, number 0 first. window() is null for a rank whose memory cannot be reached from
  // here, and while the window is closed.
  virtual void open_window(Bootstrap& bootstrap, int number, std::size_t bytes) = 0;
  // Gives this rank's part back; does nothing if it is not open. No call may still touch any rank's part: see
  // finish_calls().
  virtual void close_window(int number) = 0;
  virtual std::byte* window(int number, int world_rank) const = 0;
  // This rank's part of an open window, even if no rank reaches another's and window() is null for its own.
  virtual std::byte* own_memory(int number) const = 0;
  // Waits until this rank's calls have ended, calls of graphs included. Throws Errc::timeout by half of the rendezvous
  // deadline, so that peers that wait for this rank's answer get the reason.
  virtual void finish_calls() = 0;

  // Memory of this rank that keeps its address, like Control, and is the same for a number every time. Calls read it
  // before they know whether their window is there. The first call with a number takes it.
  static constexpr std::size_t kLastingBytes = std::size_t{20} << 10;
  virtual std::byte* lasting(int number) = 0;

  // All ranks' windows number 0 at one address, through NVLink's switches: on GPUs, if Config::multicast has asked for
  // it. Else null.
  virtual std::byte* multicast() const { return nullptr; }
  // The reason why multicast cannot be used; empty if none is known.
  virtual std::string multicast_problem() const { return {}; }

  // Into control memory or this rank's own window; done on return.
  virtual void write(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill(void* to, std::uint8_t value, std::size_t bytes) = 0;
  // The same as write(), in the order of `stream`; `from` is read before it returns.
  virtual void write_behind(Stream stream, void* to, const void* from, std::size_t bytes) = 0;
  // Out of this rank's own window.
  virtual void read(void* to, const void* from, std::size_t bytes) = 0;
  // Into any window, by the same kind of store that operations use; done on return.
  virtual void push(Pack* to, const std::vector<Pack>& packs) = 0;

  // The first fault of its kind, or one with complete == 0. Waits for nothing.
  virtual FaultRecord record(FaultKind kind) const = 0;
  virtual void clear_record(FaultKind kind) = 0;
  // The host's knowledge of peers while no call is under way; neither waits for anything. poison(): the word that a
  // peer has written to end the communicator, as far as the host can read it; 0: none. dead_peers(): ranks whose
  // processes are gone.
  virtual std::uint32_t poison() const { return 0; }
  virtual std::vector<int> dead_peers() const = 0;
  // The first fault among calls that NCCL serves. Waits for nothing.
  virtual std::optional<HostFault> host_fault() const { return std::nullopt; }
  // Ends the communicator on every rank that can be reached. Returns when these ranks' next calls will know it, on GPUs
  // after a second at most.
  virtual void abort() noexcept = 0;

  // Throws Errc::invalid_argument with the argument's name if an operation could not use it.
  virtual void check_buffer(const char* name, const void* data) const = 0;
  // The same for memory that an operation writes and the host reads meanwhile.
  virtual void check_host_memory(const char* name, const void* data) const = 0;
  virtual void check_stream(Stream stream) const = 0;
  // False: the call has failed, and the record has the reason. CPU ranks know that at once; GPUs only enqueue the call.
  virtual bool run(const KernelCall& planned) = 0;
  // mark(): remembers how far `stream` has got, for a group. follow(): the group's calls that `stream` gets from now on
  // wait for the newest mark. CPU ranks have made their calls when they return.
  virtual void mark(int group, Stream stream) { static_cast<void>(group), static_cast<void>(stream); }
  virtual void follow(int group, Stream stream) { static_cast<void>(group), static_cast<void>(stream); }
  // Whether a graph is being captured on `stream`; it then keeps `what` alive.
  virtual bool keep_alive(Stream stream, const std::shared_ptr<Fabric>& what) = 0;

  // Collective over the world; `color` as in Communicator::split. Group 0 is the world.
  virtual void split(int group, int color) = 0;
  // host_fault() reports failures.
  virtual void call_nccl(const NcclCall& call) = 0;
  // Collective over the group: NCCL moves data that is then checked.
  virtual void nccl_check(int group, int rank, int size) = 0;
};

struct FabricArgs {
  Bootstrap& bootstrap;
  const Config& config;
  ncclComm* nccl = nullptr;  // an engine's, or null
};
std::shared_ptr<Fabric> make_cpu_fabric(const FabricArgs& args);
std::shared_ptr<Fabric> make_cuda_fabric(const FabricArgs& args);

// The reason why `device` cannot be used (no driver, no GPU, too old, NCCL's version, …). −1: the calling thread's
// current device. Empty if no reason is known, also for a device that does not exist.
std::string why_no_cuda(int device);
// The same for one existing GPU alone: it is older than the GPUs that the kernels are compiled for.
std::string why_too_old(int device);
// The GPU of a rank without a given device: ranks take GPUs in turn.
int cuda_device_in_turn(int number);

}  // namespace weft::detail
