// A communicator beside an engine's own NCCL communicator.
#include "comm/state.hpp"
#include "weft/communicator.hpp"

#if WEFT_WITH_CUDA

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "fabric/nccl_api.hpp"
#include "fabric/nccl_table.hpp"
#include "kernel/cuda_error.hpp"
#include "rendezvous/deadline.hpp"
#include "rendezvous/process_identity.hpp"
#include "rendezvous/unique_id.hpp"

namespace weft {
namespace {

using detail::check_cuda;
using detail::Deadline;

struct Place {
  ncclComm* nccl;
  int rank = 0, size = 0, device = 0;
};

// Device memory and a stream. They stay if a kernel has not ended: giving them back would wait for it.
struct Scratch {
  explicit Scratch(std::size_t bytes) {
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    if (const cudaError_t result = cudaMalloc(&memory, bytes); result != cudaSuccess) {
      static_cast<void>(cudaStreamDestroy(stream));
      check_cuda(result, "cudaMalloc for the meeting point");
    }
  }
  ~Scratch() {
    if (busy) return;
    static_cast<void>(cudaFree(memory));
    static_cast<void>(cudaStreamDestroy(stream));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  bool busy = false;
};

[[noreturn]] void throw_late(const std::string& deadline) {
  throw Error(Errc::rendezvous,
              fmt::format("from_nccl: ncclAllGather was not done {}; has every rank called?", deadline));
}

void all_gather(const Place& place, std::byte* all, std::size_t bytes, const Deadline& deadline) {
  const detail::DeviceScope scope(place.device);
  const auto size = static_cast<std::size_t>(place.size);
  Scratch scratch(bytes * size);
  auto* const memory = static_cast<std::byte*>(scratch.memory);
  std::byte* const mine = memory + bytes * static_cast<std::size_t>(place.rank);
  check_cuda(cudaMemcpyAsync(mine, all + (mine - memory), bytes, cudaMemcpyHostToDevice, scratch.stream),
             "cudaMemcpyAsync of the meeting point");
  scratch.busy = true;
  ncclResult_t result = detail::nccl().all_gather(mine, memory, bytes, ncclChar, place.nccl, scratch.stream);
  while (result == ncclInProgress) {
    if (deadline.passed()) throw_late(deadline.text());
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    detail::check_nccl(detail::nccl().comm_get_async_error(place.nccl, &result), "ncclCommGetAsyncError", place.nccl);
  }
  detail::check_nccl(result, "ncclAllGather", place.nccl);
  while (cudaStreamQuery(scratch.stream) == cudaErrorNotReady) {
    if (deadline.passed()) throw_late(deadline.text());
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  scratch.busy = false;
  check_cuda(cudaMemcpyAsync(all, memory, bytes * size, cudaMemcpyDeviceToHost, scratch.stream),
             "exchanging the meeting point over NCCL");
  check_cuda(cudaStreamSynchronize(scratch.stream), "exchanging the meeting point over NCCL");
}

// Gathers `mine` of every rank, in rank order, by NCCL itself, because there is no other way to meet yet. An engine's
// communicator may be a blocking one: its first call waits for its peers inside of NCCL, perhaps for ever. So a thread
// makes that call, and is left behind when the deadline has passed.
template <class T>
std::vector<T> gather_by_nccl(const Place& place, const T& mine, std::chrono::nanoseconds limit) {
  struct Meeting {
    std::vector<T> all;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
  };
  const auto meeting = std::make_shared<Meeting>();
  meeting->all.resize(static_cast<std::size_t>(place.size));
  meeting->all[static_cast<std::size_t>(place.rank)] = mine;
  const Deadline deadline(limit);
  std::thread([meeting, place, deadline] {
    std::exception_ptr error;
    try {
      all_gather(place, reinterpret_cast<std::byte*>(meeting->all.data()), sizeof(T), deadline);
    } catch (...) {
      error = std::current_exception();
    }
    const std::scoped_lock lock(meeting->mutex);
    meeting->error = error;
    meeting->done = true;
    meeting->changed.notify_all();
  }).detach();
  std::unique_lock lock(meeting->mutex);
  const auto done = [&] { return meeting->done; };
  // The gather has its own deadline, and its error says more: so wait a second longer.
  constexpr std::chrono::nanoseconds most = std::chrono::hours(24 * 365);  // beyond it clocks overflow
  const auto patience = std::min(limit, most) + std::chrono::seconds(1);
  if (limit.count() == 0 || limit > most) {
    meeting->changed.wait(lock, done);
  } else if (!meeting->changed.wait_for(lock, patience, done)) {
    throw_late(deadline.text());
  }
  if (meeting->error != nullptr) std::rethrow_exception(meeting->error);
  return meeting->all;
}

// A rank's value, or the reason why it has none.
template <class T>
struct Word {
  T value;
  Errc code = Errc::ok;
  char trouble[512] = {};
};

// Gathers all ranks' values; throws on all ranks if one of them has none. `speak` may throw.
template <class T, class Speak>
std::vector<T> exchange_words(const Place& place, std::chrono::nanoseconds limit, Speak&& speak) {
  Word<T> mine{};
  try {
    mine.value = speak();
  } catch (const Error& error) {
    mine.code = error.code();
    std::strncpy(mine.trouble, error.what(), sizeof(mine.trouble) - 1);
  }
  const std::vector<Word<T>> words = gather_by_nccl(place, mine, limit);
  if (mine.code != Errc::ok) throw Error(mine.code, mine.trouble);
  std::vector<T> values;
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].code != Errc::ok) {
      throw Error(Errc::rendezvous, fmt::format("from_nccl: failed on rank {}: {}", rank, words[rank].trouble));
    }
    values.push_back(words[rank].value);
  }
  return values;
}

}  // namespace

Communicator Communicator::from_nccl(ncclComm* nccl, const Config& config) {
  if (nccl == nullptr) throw Error(Errc::invalid_argument, "nccl: null");
  // No call would be safe: a call to another copy than the communicator's reads foreign memory.
  if (const std::string problem = detail::why_maker_unknown(); !problem.empty())
    throw Error(Errc::unsupported, "from_nccl: " + problem);
  const detail::NcclTable& table = detail::nccl();
  Place place{.nccl = nccl};
  detail::check_nccl(table.comm_user_rank(nccl, &place.rank), "ncclCommUserRank", nccl);
  detail::check_nccl(table.comm_count(nccl, &place.size), "ncclCommCount", nccl);
  detail::check_nccl(table.comm_cu_device(nccl, &place.device), "ncclCommCuDevice", nccl);
  const detail::DeviceScope scope(place.device);

  struct Host {
    detail::ProcessIdentity process;
    char name[256];
  };
  const auto hosts = exchange_words<Host>(place, config.rendezvous_deadline, [&] {
    if (config.device == Device::cpu) {
      throw Error(Errc::invalid_argument, "Config::device: cpu, with an NCCL communicator");
    }
    if (const std::string reason = detail::why_no_cuda(place.device); !reason.empty())
      throw Error(Errc::unsupported, reason);
    Host mine{.process = detail::ProcessIdentity::current(), .name = {}};
    static_cast<void>(gethostname(mine.name, sizeof(mine.name) - 1));
    return mine;
  });
  const Host& first = hosts.front();
  // Containers of different hosts may have one name. Containers of one host may have different loopback interfaces.
  const bool one_host =
      std::ranges::all_of(hosts, [&](const Host& other) { return other.process.same_network(first.process); });
  UniqueId made{};
  const auto make = [&] {
    if (place.rank == 0) made = UniqueId::create(one_host ? "127.0.0.1" : first.name);
    return made;
  };
  UniqueId id{};
  try {
    id = exchange_words<UniqueId>(place, config.rendezvous_deadline, make).front();
  } catch (...) {
    detail::discard(made);  // a peer is in trouble, so no rank will use it
    throw;
  }

  Config chosen = config;
  chosen.device = Device::cuda;
  chosen.cuda_device = place.device;
  return Communicator(detail::CommunicatorState::create(
      detail::make_id_bootstrap(id, place.rank, place.size, config.rendezvous_deadline, config.name), chosen, nccl));
}

void use_nccl(const std::string& file) {
  detail::name_nccl(file);
}

}  // namespace weft

#else

namespace weft {

Communicator Communicator::from_nccl(ncclComm*, const Config&) {
  throw Error(Errc::unsupported, detail::why_no_cuda(-1));
}

void use_nccl(const std::string&) {}

}  // namespace weft

#endif
