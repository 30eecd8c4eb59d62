#if WEFT_WITH_CUDA

#include "fabric/nccl_groups.hpp"

#include <exception>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "fabric/fault_record.hpp"
#include "fabric/nccl_api.hpp"
#include "kernel/cuda_error.hpp"

namespace weft::detail {
namespace {

using namespace std::chrono_literals;

// Time for kernels to see that they have been revoked, and for NCCL's threads to end.
constexpr std::chrono::seconds kGrace{10};

std::string in_words(ncclComm_t comm, ncclResult_t result) {
  const char* last = nccl().get_last_error(comm);
  const bool more = last != nullptr && *last != 0;
  return fmt::format("NCCL: {}{}{}", nccl().get_error_string(result), more ? ": " : "", more ? last : "");
}

ncclDataType_t type_of(DataType type) {
  constexpr ncclDataType_t types[] = {ncclBfloat16, ncclFloat16, ncclFloat32, ncclInt32, ncclInt64, ncclUint8};
  return types[static_cast<int>(type)];
}

ncclRedOp_t op_of(ReduceOp op) {
  constexpr ncclRedOp_t ops[] = {ncclSum, ncclMax, ncclMin, ncclAvg};
  return ops[static_cast<int>(op)];
}

struct Enqueue {
  ncclComm_t comm;
  cudaStream_t stream;
  std::int32_t* zero;

  ncclResult_t operator()(const NcclAllReduce& w) const {
    return nccl().all_reduce(w.input, w.output, w.count, type_of(w.type), op_of(w.op), comm, stream);
  }
  ncclResult_t operator()(const NcclReduceScatter& w) const {
    return nccl().reduce_scatter(w.input, w.output, w.count, type_of(w.type), op_of(w.op), comm, stream);
  }
  ncclResult_t operator()(const NcclReduce& w) const {
    return nccl().reduce(w.input, w.output, w.count, type_of(w.type), op_of(w.op), w.root, comm, stream);
  }
  ncclResult_t operator()(const NcclAllGather& w) const {
    return nccl().all_gather(w.input, w.output, w.bytes, ncclChar, comm, stream);
  }
  ncclResult_t operator()(const NcclAllToAll& w) const {
    return nccl().all_to_all(w.input, w.output, w.bytes, ncclChar, comm, stream);
  }
  ncclResult_t operator()(const NcclBroadcast& w) const {
    return nccl().broadcast(w.input, w.output, w.bytes, ncclChar, w.root, comm, stream);
  }
  // A group that has begun must end, or later calls of this thread would join it. The first error stays.
  ncclResult_t operator()(const NcclMessages& w) const {
    ncclResult_t result = nccl().group_start();
    if (result != ncclSuccess) return result;
    for (const NcclMessage& message : w.all) {
      if (message.bytes == 0) continue;
      if (result != ncclSuccess && result != ncclInProgress) break;
      result = message.sends ? nccl().send(message.data, message.bytes, ncclChar, message.peer, comm, stream)
                             : nccl().recv(message.data, message.bytes, ncclChar, message.peer, comm, stream);
    }
    const ncclResult_t ended = nccl().group_end();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
  }
  // Sums of zeros in place: the word stays zero even if several groups do this at once.
  ncclResult_t operator()(const NcclBarrier&) const {
    return nccl().all_reduce(zero, zero, 1, ncclInt32, ncclSum, comm, stream);
  }
};

}  // namespace

NcclGroups::NcclGroups(const Args& args) : args_(args) {
  if (args.lent != nullptr) comms_[0] = args.lent;
}

NcclGroups::~NcclGroups() {
  watch_.reset();
  for (const ncclComm_t comm : comms_) {
    if (comm != nullptr && comm != args_.lent && !stuck_) static_cast<void>(nccl().comm_destroy(comm));
  }
}

void NcclGroups::init(int size, const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t& comm = comms_[0];
  const ncclResult_t result = nccl().comm_init_rank_config(&comm, size, id, args_.rank, &config);
  settle_nccl(result, comm, "ncclCommInitRank", args_.setup_deadline);
}

void NcclGroups::split(int group, int color) {
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclComm_t world = at(0);
  const auto lock = alone();
  const ncclResult_t result =
      nccl().comm_split(world, color < 0 ? NCCL_SPLIT_NOCOLOR : color, args_.rank, &comm, &config);
  settle_nccl(result, world, "ncclCommSplit", args_.setup_deadline);
  if (comm != nullptr) settle_nccl(ncclSuccess, comm, "ncclCommSplit", args_.setup_deadline);
  comms_.at(index_of(group)) = comm;
}

void NcclGroups::try_out(int group, std::int32_t* data, std::size_t count, cudaStream_t stream) {
  serves_ = true;
  const ncclComm_t comm = at(group);
  const Deadline deadline(args_.setup_deadline / 2);
  ncclResult_t result = ncclSuccess;
  {
    const std::scoped_lock lock(comms_mutex_);
    result = nccl().all_reduce(data, data, count, ncclInt32, ncclSum, comm, stream);
  }
  result = settle(comm, result, deadline);
  const auto runs = [&] { return cudaStreamQuery(stream) == cudaErrorNotReady; };
  const auto wait_until = [&](const Deadline& end) {
    while (runs() && !end.passed()) std::this_thread::sleep_for(100us);
    const bool idle = !runs();
    static_cast<void>(cudaGetLastError());
    return idle;
  };
  if (result == ncclSuccess && wait_until(deadline)) return check_cuda(cudaStreamQuery(stream), "NCCL's first call");
  const bool late = result == ncclSuccess || result == ncclInProgress;
  const std::string reason = late ? fmt::format("nothing arrived {}", deadline.text()) : in_words(comm, result);
  note({.code = late ? Errc::timeout : Errc::system,
        .group = group,
        .operation = "the first call of NCCL's",
        .reason = reason});
  revoke();
  stuck_ = !wait_until(Deadline(kGrace));
  throw Error(Errc::rendezvous, fmt::format("NCCL serves this group, and moves no data between its ranks: {}", reason));
}

void NcclGroups::call(const NcclCall& call) {
  const ncclComm_t comm = at(call.group);
  WatchedCall watched{.group = call.group, .words = call.words};
  {
    const std::scoped_lock lock(mutex_);
    watched.number = ++served_.at(index_of(call.group));
    last_ = watched;
  }
  serves_ = true;
  if (aborted_)
    note({.code = Errc::aborted, .group = call.group, .call = watched.number, .operation = call.words.text()});
  if (ended_) return;
  const CallWatch::Mark mark = watch().begin(call.stream);
  ncclResult_t result = ncclSuccess;
  {
    const std::scoped_lock lock(comms_mutex_);
    result = std::visit(Enqueue{comm, call.stream, args_.zero}, call.work);
  }
  result = settle(comm, result, Deadline(args_.setup_deadline));
  if (result != ncclSuccess) return note_error(comm, result, watched);
  watch().end(mark, call.stream, std::move(watched));
}

std::optional<HostFault> NcclGroups::fault() {
  ask_for_errors();
  const std::scoped_lock lock(mutex_);
  return fault_;
}

void NcclGroups::abort() noexcept {
  aborted_ = true;
  if (!serves_) return;  // should it ever, its first call will see it
  try {
    WatchedCall last{.words = CallWords("abort")};
    {
      const std::scoped_lock lock(mutex_);
      if (last_.number != 0) last = last_;
    }
    note({.code = Errc::aborted, .group = last.group, .call = last.number, .operation = last.words.text()});
  } catch (const std::exception&) {
    // No memory for words: the next call has some, or throws.
  }
}

bool NcclGroups::close() {
  const auto wait = [] { std::this_thread::sleep_for(1ms); };
  if (watch_ != nullptr) {
    while (!watch_->idle() && !ended_) wait();  // the deadline ends it
    if (ended_) revoke();
    const Deadline grace(kGrace);
    while (!watch_->idle() && !grace.passed()) wait();
    stuck_ |= !watch_->idle();
  }
  // A communicator that is being revoked must not be destroyed yet.
  for (const ncclComm_t comm : comms_) {
    if (comm == nullptr || comm == args_.lent || !revoked()) continue;
    stuck_ |= settle(comm, ncclInProgress, Deadline(kGrace)) == ncclInProgress;
  }
  return !stuck_;
}

// Some of NCCL's calls return ncclSuccess while their work goes on, so the communicator is always asked. The lock is
// free in between, so that abort() gets through.
ncclResult_t NcclGroups::settle(ncclComm_t comm, ncclResult_t result, const Deadline& deadline) {
  const bool ended = ended_;
  while (result == ncclSuccess || result == ncclInProgress) {
    {
      const std::scoped_lock lock(comms_mutex_);
      const ncclResult_t asked = nccl().comm_get_async_error(comm, &result);
      if (asked != ncclSuccess) return asked;
    }
    if (result != ncclInProgress || deadline.passed() || ended_ != ended) return result;
    std::this_thread::sleep_for(50us);
  }
  return result;
}

// The first fault stays.
void NcclGroups::note(HostFault fault) {
  const std::scoped_lock lock(mutex_);
  if (!fault_) fault_ = std::move(fault);
  ended_ = true;
  if (watch_ != nullptr) watch_->wake();
}

void NcclGroups::note_error(ncclComm_t comm, ncclResult_t result, const WatchedCall& call) {
  const Errc code = result == ncclInProgress    ? Errc::timeout
                    : result == ncclRemoteError ? Errc::peer_failed
                                                : Errc::system;
  note({.code = code,
        .group = call.group,
        .call = call.number,
        .operation = call.words.text(),
        .reason = code == Errc::timeout ? "" : in_words(comm, result)});
}

// If NCCL serves nothing, its errors do not matter. The engine asks for errors of its own communicator.
void NcclGroups::ask_for_errors() {
  if (ended_ || !serves_) return;
  const std::unique_lock lock(comms_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread that calls NCCL now asks, too
  for (const ncclComm_t comm : comms_) {
    if (comm == nullptr || comm == args_.lent) continue;
    ncclResult_t result = ncclSuccess;
    if (nccl().comm_get_async_error(comm, &result) != ncclSuccess || result == ncclSuccess ||
        result == ncclInProgress) {
      continue;
    }
    WatchedCall last;
    {
      const std::scoped_lock words(mutex_);
      last = last_;
    }
    return note_error(comm, result, last);
  }
}

// Ends running kernels, and those enqueued behind them. It returns before that is done: NCCL has a thread for it.
void NcclGroups::revoke() {
  const std::scoped_lock lock(comms_mutex_);
  if (std::exchange(revoked_, true)) return;
  for (const ncclComm_t comm : comms_) {
    if (comm == nullptr || comm == args_.lent) continue;
    const ncclResult_t result = nccl().comm_revoke(comm, NCCL_REVOKE_DEFAULT);
    if (result != ncclSuccess && result != ncclInProgress) logger().warn("{}", in_words(comm, result));
  }
}

bool NcclGroups::revoked() {
  const std::scoped_lock lock(comms_mutex_);
  return revoked_;
}

CallWatch& NcclGroups::watch() {
  const std::scoped_lock lock(mutex_);
  if (watch_ != nullptr) return *watch_;
  watch_ = std::make_unique<CallWatch>(CallWatch::Args{
      .device = args_.device,
      .deadline = args_.deadline,
      .look =
          [this] {
            ask_for_errors();
            if (ended_) revoke();
          },
      .slow =
          [this](const WatchedCall& call) {
            logger().warn("rank {}: call {} of NCCL's, {}, has run for more than {}", args_.rank, call.number,
                          call.words.text(), slow_wait_text(args_.deadline));
          },
      .late =
          [this](const WatchedCall& call) {
            note({.code = Errc::timeout, .group = call.group, .call = call.number, .operation = call.words.text()});
          }});
  return *watch_;
}

}  // namespace weft::detail

#endif
